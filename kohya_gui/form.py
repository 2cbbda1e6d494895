"""The option schema as a form: which widget an option gets, and how values go in and out.

Text fields take every option that is not a switch or a choice: an empty one is unset and shows the default in grey, "0"
is zero, and a text that is no number stays as it was typed, with the problem beneath it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from sd_scripts.options.schema import Options, OptionSpec, groups, specs

HIDDEN = frozenset({"run_dir"})  # the interface decides on it
UNSET = ""
SECTION_PREFIX = "section-"
TRUE_WORDS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}

FormValue = str | bool


class Form:
    """The widgets of a recipe by option name, in the order in which events pass their values."""

    def __init__(self, model: type[Options]):
        self.model = model
        self.specs = {name: spec for name, spec in specs(model).items() if name not in HIDDEN}
        self.widgets: dict[str, gr.components.Component] = {}
        self.browse_buttons: dict[str, gr.Button] = {}

    def essentials(self, start: Mapping[str, FormValue]) -> None:
        """The few fields that everybody fills."""
        self._fields([s for s in self.specs.values() if s.level == "essential"], start)

    def sections(self, start: Mapping[str, FormValue]) -> None:
        """Everything else: a closed section per group, its expert options one level further in."""
        for group in groups(self.model):
            mine = [s for s in self.specs.values() if s.group == group.title and s.level != "essential"]
            common = [s for s in mine if s.level == "common"]
            expert = [s for s in mine if s.level == "expert"]
            if not mine:
                continue
            with gr.Accordion(group.title, open=False, elem_id=section_id(group.title), elem_classes="section"):
                self._fields(common or expert, start)
                if common and expert:
                    with gr.Accordion("Expert", open=False, elem_classes="expert"):
                        self._fields(expert, start)

    @property
    def inputs(self) -> list[gr.components.Component]:
        return [self.widgets[name] for name in self.specs]

    def given(self, values: Sequence[Any]) -> dict[str, Any]:
        """What an event passed, as option values by name; unset ones are left out."""
        pairs = zip(self.specs.values(), values, strict=True)
        return {spec.name: value for spec, raw in pairs if (value := from_widget(spec, raw)) is not None}

    def shown(self, values: Mapping[str, Any]) -> list[FormValue]:
        """What the widgets show for option values; defaults where there is none."""
        return [to_widget(spec, values.get(name, spec.default)) for name, spec in self.specs.items()]

    def _fields(self, chosen: Sequence[OptionSpec], start: Mapping[str, FormValue]) -> None:
        with gr.Column(elem_classes="fields"):
            for spec in chosen:
                self.widgets[spec.name] = self._widget(spec, start.get(spec.name, to_widget(spec, spec.default)))

    def _widget(self, spec: OptionSpec, value: FormValue) -> gr.components.Component:
        about = {"label": title(spec), "info": spec.help, "elem_id": field_id(spec.name), "elem_classes": "option"}
        if spec.is_flag:
            return gr.Checkbox(value=bool(value), **about)
        if offered := choices(spec):
            return gr.Dropdown(offered, value=value, allow_custom_value=True, **about)
        if spec.path:
            self.browse_buttons[spec.name] = gr.Button("Browse…", render=False, size="sm")
            about["buttons"] = [self.browse_buttons[spec.name]]
            about["elem_classes"] = ["option", "wide"]
        hint = placeholder(spec)
        return gr.Textbox(value=str(value), lines=1, max_lines=1, placeholder=hint, **about)


def field_id(name: str) -> str:
    """The option's own name: the style sheet shows it beneath the field."""
    return name


def section_id(group_title: str) -> str:
    return SECTION_PREFIX + "".join(c if c.isalnum() else "-" for c in group_title.lower())


def title(spec: OptionSpec) -> str:
    return f"{spec.label} ({spec.unit})" if spec.unit else spec.label


def placeholder(spec: OptionSpec) -> str:
    return UNSET if spec.default is None else str(to_widget(spec, spec.default, show_default=True))


def choices(spec: OptionSpec) -> list[tuple[str, str]]:
    """What a drop-down offers; a value outside stays possible, so that a file's wrong value is seen and not lost."""
    offered = [(str(choice), str(choice)) for choice in spec.choices or spec.suggestions]
    if offered and spec.default is None:
        offered.insert(0, ("unset", UNSET))
    return offered


def to_widget(spec: OptionSpec, value: Any, *, show_default: bool = False) -> FormValue:
    """How a widget shows an option's value.

    Args:
        show_default: show a default as text; else a text field with the default is empty.
    """
    if spec.is_flag:
        word = value if isinstance(value, bool) else TRUE_WORDS.get(str(value).strip().lower())
        return bool(spec.default) if word is None else word
    if value is None or (value == spec.default and not choices(spec) and not show_default):
        return UNSET
    if isinstance(value, (list, tuple)):
        return shlex.join(plain(item) for item in value)
    return plain(value)


def plain(value: Any) -> str:
    """A value as people write it: 64, not 64.0; 1e-4, not 0.0001."""
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    short = f"{value:.12g}"
    if 0 < abs(value) < 0.001:
        mantissa, exponent = f"{value:.11e}".split("e")
        short = f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return short if float(short) == value else repr(value)


def from_widget(spec: OptionSpec, raw: Any) -> Any:
    """An option's value from what a widget delivered; None where it is unset. Wrong texts come out as they are."""
    if spec.is_flag:
        return bool(raw)
    if raw is None or not str(raw).strip():
        return None
    text = raw if isinstance(raw, str) else plain(raw)
    return next((choice for choice in spec.choices if str(choice) == text), text)
