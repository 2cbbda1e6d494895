"""Preset files of the known GUI (JSON), of any age, as options of today.

`fields.py` holds the keys that stand for themselves, `rules.py` those that mean something together, `networks.py` the LoRA
types, `omitted.py` what sets nothing, and why.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from sd_scripts.options.gui_presets import adapters, extra
from sd_scripts.options.gui_presets.conversion import Conversion, described, says_nothing
from sd_scripts.options.gui_presets.families import architecture_of, method_of
from sd_scripts.options.gui_presets.fields import METHOD_LABELS, TABLES, Table
from sd_scripts.options.gui_presets.findings import Finding
from sd_scripts.options.gui_presets.known import options_by_name, options_of, read_option
from sd_scripts.options.gui_presets.omitted import IDLE, OMITTED, RENAMED
from sd_scripts.options.gui_presets.readers import is_blank
from sd_scripts.options.gui_presets.rules import RULES, Rule

__all__ = ["Converted", "Finding", "convert", "form_keys", "keys_of"]


MAX_HINTS = 40  # the search for near names takes milliseconds each


@dataclass(frozen=True)
class Converted:
    """What a preset file says: whose it is, options by name, and what was found on the way."""

    method: str | None
    architecture: str | None
    values: dict[str, Any]
    findings: tuple[Finding, ...]


def convert(content: Mapping[str, Any]) -> Converted:
    """The options that a flat preset file sets."""
    content, renamed = _with_current_names(content)
    method = method_of(content)
    architecture, odd = architecture_of(content, method)
    it = Conversion(content, method, architecture, findings=[*renamed, *odd])
    if method == "adapter":
        adapters.settle_family(it)  # first: it decides which fields are there
    for key, rule in table_of(method).items():
        if key in content:
            it.plain(key, rule)
    if listed := it.values.pop("network_args", None):
        extra.set_besides(it, "network_args", listed, "network_args")
    for rule in rules_of(method):
        if any(key in content for key in rule.keys):
            rule.apply(it)
            it.seen.update(rule.keys)
    unknown = [key for key in content if key not in it.seen and not _is_leftover_known(it, key)]
    _name_unknown(it, unknown)
    _keep_what_the_trainer_has(it)
    return Converted(method, it.architecture, it.values, tuple(dict.fromkeys(it.findings)))


@lru_cache
def table_of(method: str | None) -> Table:
    """The plain keys of a tab; of all of them where the tab is not clear, the LoRA tab first."""
    if method is not None:
        return TABLES[method]
    return {key: rule for table in reversed(TABLES.values()) for key, rule in table.items()}


def rules_of(method: str | None) -> tuple[Rule, ...]:
    """The rules of a tab; of all of them where the tab is not clear."""
    return tuple(rule for rule in RULES if method is None or not rule.methods or method in rule.methods)


@lru_cache
def keys_of(method: str | None) -> frozenset[str]:
    """Every key that sets something on a tab."""
    return frozenset(table_of(method)) | {key for rule in rules_of(method) for key in rule.keys}


@lru_cache
def form_keys() -> frozenset[str]:
    """Every key that a form of any age writes and no trainer knows: what shows that a file is a form's."""
    known = keys_of(None) | set(OMITTED) | set(RENAMED) | {"save_as_bool"}
    return frozenset(known) - set(options_by_name())


def _with_current_names(content: Mapping[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    current = {key: value for key, value in content.items() if key not in RENAMED}
    findings = []
    for old, new in RENAMED.items():
        if says_nothing(content.get(old)):
            continue
        if says_nothing(current.get(new)):
            current[new] = content[old]
            findings.append(Finding("renamed", old, f"is now called {new}"))
        elif current[new] != content[old]:
            findings.append(Finding("ignored", old, f"the file also has its newer name, {new}, which counts"))
    return current, findings


def _is_leftover_known(it: Conversion, key: str) -> bool:
    """Take a key that the tab does not have, if it is one of another tab or an option by its own name."""
    label = METHOD_LABELS[it.method] if it.method else "this kind of training"
    if key in OMITTED:
        it.leave_out(key, OMITTED[key], *idle_values(key), it.content.get("pretrained_model_name_or_path"))
    elif (spec := options_by_name().get(key)) and spec.name in options_of(it.method):
        found = it.take(key, partial(read_option, spec))
        if found is not None:
            extra.set_besides(it, spec.name, found, key)
    elif spec or key in keys_of(None):
        it.leave_out(key, f"{label} has no such setting", *idle_values(key))
    else:
        return False
    return True


def _name_unknown(it: Conversion, keys: list[str]) -> None:
    """Say which keys nothing has the name of, the first ones with the nearest name."""
    keys = [key for key in keys if not is_blank(it.content[key])]
    names = [*keys_of(it.method), *options_of(it.method)]
    for key in keys[:MAX_HINTS]:
        nearest = difflib.get_close_matches(key, names, n=1, cutoff=0.75)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        it.leave_out(key, f"nothing has this name{hint}")
    for key in keys[MAX_HINTS:]:
        it.leave_out(key, "nothing has this name")


def idle_values(key: str) -> tuple[Any, ...]:
    """Values of a key that an untouched field holds, and that are not worth a word where they are not used."""
    fields = [table[key] for table in TABLES.values() if key in table]
    items = [adapters.ITEMS[key]] if key in adapters.ITEMS else []
    return (*IDLE.get(key, ()), *(entry.idle for entry in (*fields, *items)))


def _keep_what_the_trainer_has(it: Conversion) -> None:
    """Forms hold fields that their own trainer has no option for; what they say is left out, and said."""
    known = options_of(it.method)
    for name in [name for name in it.values if name not in known]:
        value = it.values.pop(name)
        key = it.origins.get(name, name)
        if not says_nothing(value) and key in it.content:
            reason = OMITTED.get(name, f"{METHOD_LABELS.get(it.method or '', 'no trainer')} has no such option")
            it.say("ignored", key, f"{described(value, key)} is not used: {reason}")
