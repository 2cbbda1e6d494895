"""The form's line of additional parameters: what follows a trainer's name on the command line, as options by name."""

from __future__ import annotations

import re
from typing import Any

from sd_scripts.options.gui_presets import readers
from sd_scripts.options.gui_presets.conversion import Conversion
from sd_scripts.options.gui_presets.findings import shown
from sd_scripts.options.gui_presets.known import is_secret, options_by_name, read_option
from sd_scripts.options.gui_presets.readers import Unreadable
from sd_scripts.options.network_arguments import unfold
from sd_scripts.options.schema import OptionSpec

KEY = "additional_parameters"
_FLAG = re.compile(r"--[A-Za-z]")


def additional_parameters(it: Conversion) -> None:
    """Set the options of the line. They win over the fields, as they do on the command line; a contradiction is said."""
    line = it.take(KEY, readers.text)
    if line is None:
        return
    for name, texts in _parts(it, readers.split(line)):
        spec = _option_of(name)
        if spec is None:
            it.say("ignored", KEY, f"--{name} is not used: there is no such option")
            continue
        try:
            value = read_option(spec, texts if spec.is_list else " ".join(texts) if texts else True)
        except Unreadable as failure:
            it.say("invalid", KEY, f"--{name}: the value cannot be read" if spec.secret else f"--{name}: {failure}")
            continue
        if value is not None:
            set_besides(it, spec.name, value, KEY)


def _option_of(name: str) -> OptionSpec | None:
    """The option of this name, or the only one that begins with it, as command lines may be cut short."""
    known = options_by_name()
    matching = {spec.name: spec for full, spec in known.items() if full.startswith(name)}
    return known.get(name) or (next(iter(matching.values())) if len(matching) == 1 else None)


def _parts(it: Conversion, words: list[str]) -> list[tuple[str, list[str]]]:
    """Each option with the words after it."""
    parts: list[tuple[str, list[str]]] = []
    for word in words:
        if _FLAG.match(word):
            name, equals, text = word[2:].partition("=")
            parts.append((name.replace("-", "_"), [text] if equals else []))
        elif parts:
            parts[-1][1].append(word)
        else:
            it.say("ignored", KEY, f"{word[:80]!r} is not used: it follows no --option")
    return parts


def set_besides(it: Conversion, name: str, value: Any, key: str) -> None:
    """Set an option that a field may have set already; say so where the two differ. `network_args` are set one by one."""
    before = it.values.get(name)
    if name == "network_args":
        items, value = unfold(value)
        for item, item_value in items.items():
            set_besides(it, item, item_value, key)
        if not value:
            return
    if isinstance(value, list) and isinstance(before, list) and name.endswith("_args"):
        value = _merged(it, name, before, value, key)
    elif before is not None and before != value and not (value is True and before is False):
        said = "two values" if is_secret(name) else f"{shown(before)} in the form and {shown(value)} there"
        it.say("ignored", it.origins.get(name, name), f"{key} sets {name} too: {said}, which counts")
    it.set(name, value, key)


def _merged(it: Conversion, name: str, before: list[str], after: list[str], key: str) -> list[str]:
    """Arguments of both; where both give one, the later."""
    given = {item.partition("=")[0] for item in after}
    for item in before:
        if item.partition("=")[0] in given and item not in after:
            it.say("ignored", it.origins.get(name, name), f"{item[:80]} is not used: {key} sets it otherwise")
    return [item for item in before if item.partition("=")[0] not in given] + after
