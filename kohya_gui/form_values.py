"""Values in and out of a form: what its fields show for option values, and which values its texts mean.

A form's state is a JSON object that holds the fields that are filled in: a text by the option's name, or true and false
for a switch. A field that is not in it is unset and shows its default in grey; "0" is zero; a text that is no number stays
as it was typed.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from kohya_gui.forms import FAMILY, FRESH, TrainingForm
from sd_scripts.options.families import FAMILIES
from sd_scripts.options.problems import Problem, error
from sd_scripts.options.schema import OptionSpec

UNSET = ""
TRUE_WORDS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}

FieldValue = str | bool
State = dict[str, FieldValue]


def is_switch(spec: OptionSpec) -> bool:
    """Whether the field is a check box; an option that may also be undecided is a choice instead."""
    return spec.is_flag and not spec.nullable


def to_state(form: TrainingForm, values: Mapping[str, Any]) -> State:
    """The state that shows these option values; None and unknown names are left out."""
    shown = {name: to_field(form.specs[name], value) for name, value in values.items() if name in form.specs}
    state = {name: value for name, value in shown.items() if value != UNSET}
    if values.get(FAMILY) in FAMILIES:
        state[FAMILY] = values[FAMILY]
    return state


def from_state(form: TrainingForm, state: Mapping[str, FieldValue]) -> tuple[dict[str, Any], list[Problem]]:
    """The option values that a state means, and what cannot be understood in it."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, shown in state.items():
        if (spec := form.specs.get(name)) is None:
            continue
        try:
            value = from_field(spec, shown)
        except ValueError as failure:  # quotes that are never closed
            problems.append(error(name, f"cannot be split into words: {failure}".lower(), "close the quotes"))
            continue
        if value is not None:
            values[name] = value
    return values, problems


def to_field(spec: OptionSpec, value: Any) -> FieldValue:
    """How a field shows an option's value."""
    if value is None:
        return UNSET
    if is_switch(spec):
        word = value if isinstance(value, bool) else TRUE_WORDS.get(str(value).strip().lower())
        return UNSET if word is None else word
    if isinstance(value, (list, tuple)):
        return shlex.join(plain(item) for item in value)
    return plain(value)


def from_field(spec: OptionSpec, shown: Any) -> Any:
    """An option's value from what a field holds; None where it is unset. Wrong texts come out as they are.

    Raises:
        ValueError: a list whose quotes do not match.
    """
    if is_switch(spec):
        return to_field(spec, shown) if shown not in (None, UNSET) and to_field(spec, shown) != UNSET else None
    text = shown if isinstance(shown, str) else plain(shown)
    if shown is None or not text.strip():
        return None
    if spec.is_list:
        return shlex.split(text)
    return next((choice for choice in spec.choices if str(choice) == text), text)


def plain(value: Any) -> str:
    """A value as people write it: 64, not 64.0; 1e-4, not 0.0001."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(value)
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    short = f"{value:.12g}"
    if 0 < abs(value) < 0.001:
        mantissa, exponent = f"{value:.11e}".split("e")
        short = f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return short if float(short) == value else repr(value)


def read_state(form: TrainingForm, text: Any) -> State:
    """The state in a JSON text from a browser or a draft; what is none, or does not fit its field, is left out.

    So are characters that no file can hold (NUL, halves of surrogate pairs).
    """
    try:
        content = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    state = {name: _fitting(form.specs[name], value) for name, value in content.items() if name in form.specs}
    if content.get(FAMILY) in FAMILIES:
        state[FAMILY] = content[FAMILY]
    if content.get(FRESH) is True:
        state[FRESH] = True
    return {name: value for name, value in state.items() if value != UNSET}


def _fitting(spec: OptionSpec, value: Any) -> FieldValue:
    if is_switch(spec):
        return value if isinstance(value, bool) else UNSET
    if not isinstance(value, str):
        return UNSET
    return value.replace("\0", "").encode("utf-8", "ignore").decode("utf-8")


def write_state(state: Mapping[str, FieldValue]) -> str:
    """A state as JSON text; "<" is written as a code, so that the text is harmless in any page."""
    return json.dumps(dict(state), ensure_ascii=False).replace("<", "\\u003c")


def without_secrets(form: TrainingForm, state: Mapping[str, FieldValue]) -> State:
    return {name: value for name, value in state.items() if name not in form.specs or not form.specs[name].secret}
