"""The row above a form that loads and saves presets and other settings files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from kohya_gui.context import Context
from kohya_gui.form_values import State, read_state, to_state
from kohya_gui.forms import FAMILY, TrainingForm
from kohya_gui.plan_view import plan_html
from kohya_gui.planning import check
from kohya_gui.presets import Loaded, PresetFolder, load_settings, preset_toml
from kohya_gui.tabs.form_view import found, part_id
from kohya_gui.tabs.words import bad, good
from sd_scripts.errors import UserError

QUICK: dict[str, Any] = {"show_progress": "hidden"}
FILE_TYPES = [".toml", ".json", ".txt"]


@dataclass
class PresetRow:
    """The row's widgets and the question that may stand beneath it."""

    choice: gr.Dropdown
    load: gr.Button
    save: gr.Button
    upload: gr.UploadButton
    defaults: gr.Button
    said: gr.HTML
    question: gr.Group
    asked: gr.HTML
    replace: gr.Button
    keep: gr.Button


def build(presets: PresetFolder, form: TrainingForm) -> PresetRow:
    """Draw the row."""
    names = presets.names()

    def button(label: str, part: str, **more: Any) -> gr.Button:
        return gr.Button(label, min_width=60, size="md", elem_id=part_id(form, part), **more)

    with gr.Row(elem_classes="presets"):
        choice = gr.Dropdown(
            names,
            value=None,
            label="Preset",
            info="Choose one, or type a name to save, a path to load.",
            allow_custom_value=True,
            scale=4,
            elem_id=part_id(form, "preset"),
        )
        load = button("Load", "load-preset")
        save = button("Save", "save-preset")
        upload = gr.UploadButton(
            "Open file…", file_types=FILE_TYPES, min_width=90, size="md", elem_id=part_id(form, "open-file")
        )
        defaults = button("Start from defaults", "defaults")
    said = gr.HTML(elem_id=part_id(form, "preset-said"))
    with gr.Group(visible=False, elem_classes="question") as question:
        asked = gr.HTML()
        with gr.Row():
            replace = gr.Button("Replace it", variant="stop", size="sm", elem_id=part_id(form, "replace-preset"))
            keep = gr.Button("Cancel", size="sm")
    return PresetRow(choice, load, save, upload, defaults, said, question, asked, replace, keep)


def connect(
    context: Context,
    row: PresetRow,
    form: TrainingForm,
    fields: gr.HTML,
    plan: gr.HTML,
    fill: Callable[[State], dict],
) -> None:
    """Connect the row to its form.

    Args:
        fill: from a state to updates that show it in the form, with its plan.
    """
    presets = context.presets[form.name]

    def load(name: str | None) -> dict:
        try:
            loaded = presets.load(name or "", form)
        except UserError as failure:
            return {row.said: bad(str(failure))}
        return {row.said: loaded_html(loaded, form)} | fill(to_state(form, loaded.values))

    def open_file(path: str | None) -> dict:
        if not path:
            return {row.said: ""}
        file = Path(path)
        try:
            loaded = load_settings(file, form)
        except UserError as failure:
            return {row.said: bad(str(failure).replace(path, file.name))}
        finally:
            file.unlink(missing_ok=True)  # the page's copy: it may hold secrets
        return {row.said: loaded_html(loaded, form)} | fill(to_state(form, loaded.values))

    def start_over() -> dict:
        source = context.start.source
        words = f"All fields have their defaults{f', and those that {source} sets' if source else ''}."
        return {row.said: good(words)} | fill(dict(context.start.defaults.get(form.name, {})))

    def save(name: str | None, text: str, sure: bool = False) -> dict:
        state = read_state(form, text)
        answer = {row.question: gr.Group(visible=False)}
        try:
            target = presets.target(name or "")
            content = preset_toml(form, state)
            if target.exists() and not sure:
                words = bad(f"A preset of the name {target.stem} exists already.")
                return answer | {row.question: gr.Group(visible=True), row.asked: words, row.said: ""}
            presets.save(name or "", content)
        except UserError as failure:
            checked = check(form, state)
            shown = {fields: found(checked), plan: plan_html(checked, form)}
            return answer | shown | {row.said: bad(f"Not saved: {failure}")}
        names = presets.names()
        chosen = gr.Dropdown(names, value=next(n for n in names if presets.path(n) == target))
        return answer | {row.said: good(f"Saved as {target}."), row.choice: chosen}

    def save_anyway(name: str | None, text: str) -> dict:
        return save(name, text, sure=True)

    filled = [row.said, fields, plan]
    saved = [row.said, row.question, row.asked, row.choice, fields, plan]
    row.load.click(load, row.choice, filled, **QUICK)
    row.upload.upload(open_file, row.upload, filled, **QUICK)
    row.defaults.click(start_over, None, filled, **QUICK)
    row.save.click(save, [row.choice, fields], saved, **QUICK)
    row.replace.click(save_anyway, [row.choice, fields], saved, **QUICK)
    row.keep.click(lambda: gr.Group(visible=False), None, row.question, **QUICK)


def loaded_html(loaded: Loaded, form: TrainingForm) -> str:
    """What a file gave, and a list of what was changed or left aside on the way."""
    count = len([name for name in loaded.values if name != FAMILY])
    text = f"Loaded {loaded.source}: {count} {'option' if count == 1 else 'options'}; all others have their defaults."
    parts = [good(text)]
    if loaded.meant_for:
        parts.append(bad(f"The file is for the tab {loaded.meant_for}; {form.title} takes what it knows of it."))
    if loaded.notes:
        items = "".join(f'<li class="{level}">{escape(note)}</li>' for level, note in loaded.notes)
        summary = f"{len(loaded.notes)} {'remark' if len(loaded.notes) == 1 else 'remarks'} on the file"
        parts.append(
            f'<details class="remarks"{" open" if len(loaded.notes) <= 4 else ""}><summary>{summary}</summary>'
            f'<ul class="problems">{items}</ul></details>'
        )
    return "".join(parts)
