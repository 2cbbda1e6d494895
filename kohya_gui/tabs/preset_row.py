"""The row above a form that loads and saves presets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from kohya_gui.context import Context
from kohya_gui.form import Form
from kohya_gui.plan_view import plan_html
from kohya_gui.planning import Checked
from kohya_gui.tabs.words import bad, good
from sd_scripts.errors import UserError


@dataclass
class PresetRow:
    """The row's widgets and the question that may stand beneath it."""

    choice: gr.Dropdown
    load: gr.Button
    save: gr.Button
    said: gr.HTML
    question: gr.Group
    asked: gr.HTML
    replace: gr.Button
    keep: gr.Button


def build(context: Context) -> PresetRow:
    """Draw the row."""
    names = context.presets.names()
    with gr.Row(elem_classes="presets"):
        choice = gr.Dropdown(
            names,
            value="demo" if "demo" in names else None,
            label="Preset",
            info="Choose one, or type a name to save under, or the path of a TOML file to load.",
            allow_custom_value=True,
            scale=4,
            elem_id="gui-preset",
        )
        load = gr.Button("Load", min_width=70, size="md", elem_id="gui-load-preset")
        save = gr.Button("Save", min_width=70, size="md", elem_id="gui-save-preset")
    said = gr.HTML(elem_id="gui-preset-said")
    with gr.Group(visible=False, elem_classes="question") as question:
        asked = gr.HTML()
        with gr.Row():
            replace = gr.Button("Replace it", variant="stop", size="sm", elem_id="gui-replace-preset")
            keep = gr.Button("Cancel", size="sm")
    return PresetRow(choice, load, save, said, question, asked, replace, keep)


def connect(context: Context, row: PresetRow, form: Form, plan: gr.HTML, checked: Callable[[tuple], Checked]) -> None:
    """Connect the row to a form and its plan.

    Args:
        checked: from the form's values to what a check finds.
    """

    def load(name: str | None) -> list:
        try:
            loaded = context.presets.load(name or "", form.specs)
        except UserError as failure:
            return [bad(str(failure)), gr.skip(), *[gr.skip()] * len(form.specs)]
        shown = form.shown(loaded.values)
        notes = "".join(f"<li>{escape(note)}</li>" for note in loaded.notes)
        text = f"Loaded {escape(loaded.source)}: {len(loaded.values)} options; all others have their defaults."
        said = f'<p class="said good">{text}</p>' + (f'<ul class="problems">{notes}</ul>' if notes else "")
        return [said, plan_html(checked(tuple(shown)), form.specs), *shown]

    def save(name: str | None, *values: Any, sure: bool = False) -> dict:
        answer = {row.question: gr.Group(visible=False)}
        found = checked(values)
        if found.options is None:
            return answer | {row.said: bad(f"Not saved: {found.problems[0]}"), plan: plan_html(found, form.specs)}
        try:
            target = context.presets.target(name or "")
            if target.exists() and not sure:
                text = bad(f"A preset of the name {target.stem} exists already.")
                return answer | {row.question: gr.Group(visible=True), row.asked: text, row.said: ""}
            context.presets.save(name or "", found.options)
        except UserError as failure:
            return answer | {row.said: bad(f"Not saved: {failure}")}
        names = context.presets.names()
        chosen = gr.Dropdown(names, value=next(n for n in names if context.presets.path(n) == target))
        return answer | {row.said: good(f"Saved as {target}."), row.choice: chosen}

    def save_anyway(name: str | None, *values: Any) -> dict:
        return save(name, *values, sure=True)

    quick = {"show_progress": "hidden"}
    saved = [row.said, row.question, row.asked, row.choice, plan]
    row.load.click(load, row.choice, [row.said, plan, *form.inputs], **quick)
    row.save.click(save, [row.choice, *form.inputs], saved, **quick)
    row.replace.click(save_anyway, [row.choice, *form.inputs], saved, **quick)
    row.keep.click(lambda: gr.Group(visible=False), None, row.question, **quick)
