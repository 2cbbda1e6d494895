"""The option schema as the page gets it: one JSON text for all forms, from which the browser draws them.

An option stands in it once; where a method declares it otherwise, the tab says what differs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kohya_gui.form_values import is_switch, to_field
from kohya_gui.forms import FAMILY, FORMS, FRESH, TrainingForm
from sd_scripts.options.families import FAMILIES
from sd_scripts.options.schema import SET, OptionSpec

SEVERAL_LINES = frozenset({"sample_prompts", "training_comment", "metadata_description"})


@lru_cache
def schema_json() -> str:
    """Families, options and tabs."""
    options: dict[str, dict[str, Any]] = {}
    tabs = {form.name: _tab(form, options) for form in FORMS.values()}
    families = {f.name: {"label": f.label, "traits": sorted(f.traits)} for f in FAMILIES.values()}
    text = json.dumps(
        {"familyField": FAMILY, "freshField": FRESH, "families": families, "options": options, "tabs": tabs},
        ensure_ascii=False,
        separators=(",", ":"),
    )
    return text.replace("<", "\\u003c")


def _tab(form: TrainingForm, options: dict[str, dict[str, Any]]) -> dict[str, Any]:
    differing = {}
    for name, spec in form.specs.items():
        about = describe(spec)
        shared = options.setdefault(name, about)
        if about != shared:
            differing[name] = about
    essentials = [name for name, spec in form.specs.items() if spec.level == "essential"]
    rest = {title: [n for n in names if n not in essentials] for title, names in form.sections.items()}
    return {
        "essentials": essentials,
        "sections": [{"title": title, "names": names} for title, names in rest.items() if names],
        "families": list(form.families),
        "differing": differing,
    }


def describe(spec: OptionSpec) -> dict[str, Any]:
    """What the browser needs to know of an option; what is usual is left out."""
    about = {
        "label": spec.label,
        "help": spec.help,
        "section": spec.group,
        "kind": kind(spec),
        "default": to_field(spec, spec.default),
        "expert": spec.level == "expert",
        "defaults": {family: to_field(spec, value) for family, value in spec.defaults.items()},
        "choices": [to_field(spec, choice) for choice in _choices(spec)],
        "suggestions": [*spec.suggestions, *spec.words],
        "unit": spec.unit or "",
        "path": spec.path or "",
        "secret": spec.secret,
        "onlyFor": list(spec.only_for),
        "onlyWith": conditions(spec),
        "missing": not spec.available,
    }
    return {key: value for key, value in about.items() if value not in (False, "", [], {}) or key == "default"}


def kind(spec: OptionSpec) -> str:
    """The field: "switch", "choice", "number", "list", "lines" or "text"."""
    if is_switch(spec):
        return "switch"
    if (spec.choices or spec.is_flag) and not spec.is_list:
        return "choice"
    if spec.is_list:
        return "list"
    if spec.type in (int, float):
        return "number"
    return "lines" if spec.name in SEVERAL_LINES else "text"


def conditions(spec: OptionSpec) -> dict[str, Any]:
    """`only_with` as lists of values that are fine; "set" stands for SET."""
    return {
        other: "set" if wanted is SET else list(wanted) if isinstance(wanted, tuple) else [wanted]
        for other, wanted in spec.only_with.items()
    }


def _choices(spec: OptionSpec) -> tuple[Any, ...]:
    if spec.is_list:
        return ()
    return (True, False) if spec.is_flag and spec.nullable else spec.choices


def report_json(report: Mapping[str, Any]) -> str:
    """What a look at a form found, for the browser."""
    return json.dumps(report, ensure_ascii=False).replace("<", "\\u003c")
