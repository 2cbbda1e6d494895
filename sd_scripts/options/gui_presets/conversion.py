"""One preset file on its way to options: what is read, what is set, and what is said about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sd_scripts.options.families import FAMILIES
from sd_scripts.options.gui_presets.fields import Field
from sd_scripts.options.gui_presets.findings import Finding, FindingKind, shown
from sd_scripts.options.gui_presets.known import is_secret
from sd_scripts.options.gui_presets.readers import Reader, Unreadable, is_blank


@dataclass
class Conversion:
    """`content` holds current keys; a key that was looked at is in `seen`, so that nothing is left out unsaid."""

    content: Mapping[str, Any]
    method: str | None
    architecture: str | None
    values: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    origins: dict[str, str] = field(default_factory=dict)  # option -> key of the form

    @property
    def family(self) -> str:
        """The family whose fields act; no box ticked is SD 1.x."""
        return self.architecture or "sd1"

    def say(self, kind: FindingKind, key: str, message: str) -> None:
        self.findings.append(Finding(kind, key, message))

    def take(self, key: str, read: Reader) -> Any:
        """The value of a key; None when it is not set, or cannot be read, which is said."""
        self.seen.add(key)
        value = self.content.get(key)
        try:
            return read(value)
        except Unreadable as failure:
            hidden = "the value is not a text (it is not shown, as it is a secret)"
            self.say("invalid", key, hidden if is_secret(key) else f"{failure}; left out")
            return None

    def set(self, option: str, value: Any, key: str) -> None:
        """Set an option from a key of the form."""
        self.values[option] = value
        self.origins[option] = key

    def leave_out(self, key: str, reason: str, *idle: Any) -> None:
        """Say that a value is not used, unless it says nothing: blank, false, 0, or what an untouched field holds."""
        self.seen.add(key)
        if not says_nothing(self.content.get(key), *idle):
            self.say("ignored", key, f"{described(self.content.get(key), key)} is not used: {reason}")

    def plain(self, key: str, rule: Field) -> None:
        """A key that sets one option."""
        if rule.families and self.family not in rule.families:
            wanted = ", ".join(FAMILIES[name].label for name in rule.families)
            self.leave_out(key, f"it is for {wanted}; the file is for {FAMILIES[self.family].label}", rule.idle)
            return
        value = self.take(key, rule.read)
        if value is not None and value not in rule.unset:
            self.set(rule.option, value, key)


def says_nothing(value: Any, *idle: Any) -> bool:
    """Whether a value is blank, false, 0 or one of those that an untouched field holds, also written as text."""
    if is_blank(value) or value == {} or (isinstance(value, list) and all(map(is_blank, value))):
        return True
    if isinstance(value, (bool, int, float, str)):
        texts = {str(item).casefold() for item in (0, 0.0, False, *idle) if item is not None}
        return any(value == item for item in (0, *idle)) or str_of(value).strip().casefold() in texts
    return False


def str_of(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # a whole number of thousands of digits
        return ""


def described(value: Any, key: str) -> str:
    return "the value" if is_secret(key) else shown(value)
