"""A training tab: presets, the form, the plan beside it, Start and Stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from kohya_gui import launch
from kohya_gui.context import Context
from kohya_gui.form_values import read_state
from kohya_gui.forms import TrainingForm
from kohya_gui.plan_view import plan_html
from kohya_gui.planning import Checked, check
from kohya_gui.tabs import preset_row
from kohya_gui.tabs.form_view import form_html, found, loaded, part_id
from kohya_gui.tabs.words import bad, good
from sd_scripts.errors import UserError
from sd_scripts.options.toml_files import settings_toml

QUICK: dict[str, Any] = {"show_progress": "hidden"}


@dataclass
class TrainingTab:
    """The parts of a tab that events and the rest of the page use."""

    form: TrainingForm
    fields: gr.HTML
    presets: preset_row.PresetRow
    start: gr.Button
    stop: gr.Button
    show: gr.Button
    said: gr.HTML
    question: gr.Group
    asked: gr.HTML
    replace: gr.Button
    keep: gr.Button
    live: gr.HTML
    plan: gr.HTML
    command: gr.Code


def build(context: Context, form: TrainingForm) -> TrainingTab:
    """Draw the tab. `connect` makes it live once the rest of the page stands."""

    def named(part: str) -> str:
        return part_id(form, part)

    with gr.Row(elem_classes="page", elem_id=named("page")):
        with gr.Column(scale=3, min_width=340):
            presets = preset_row.build(context.presets[form.name], form)
            fields = form_html(form, context.start)
        with gr.Column(scale=2, min_width=320, elem_classes="beside"):
            with gr.Row(elem_classes="actions"):
                start = gr.Button("Start training", variant="primary", elem_id=named("start"), min_width=120, size="md")
                stop = gr.Button("Stop", elem_id=named("stop"), interactive=False, min_width=70, size="md")
                show = gr.Button("Print command", elem_id=named("print"), min_width=110, size="md")
            said = gr.HTML(elem_id=named("said"))
            with gr.Group(visible=False, elem_classes="question") as question:
                asked = gr.HTML()
                with gr.Row():
                    replace = gr.Button("Replace it", variant="stop", size="sm", elem_id=named("replace"))
                    keep = gr.Button("Cancel", size="sm")
            live = gr.HTML(elem_id=named("live"))
            gr.HTML("<h3>Plan</h3>")
            plan = gr.HTML(elem_id=named("plan"))
            command = gr.Code(
                visible=False, language="shell", label="Command and settings", elem_id=named("command"), wrap_lines=True
            )
    return TrainingTab(
        form, fields, presets, start, stop, show, said, question, asked, replace, keep, live, plan, command
    )


def connect(context: Context, tab: TrainingTab, show_run: Callable[[str], list], show_run_outputs: list) -> None:
    """Connect the tab.

    Args:
        show_run: from a new run's name to updates for `show_run_outputs`, which bring it to the front.
    """
    form = tab.form

    def checked_now(text: str) -> Checked:
        state = read_state(form, text)
        context.drafts.save(form, state)
        return check(form, state)

    def look(text: str) -> dict:
        return shown(checked_now(text))

    def shown(checked: Checked) -> dict:
        return {tab.fields: found(checked), tab.plan: plan_html(checked, form)}

    def fill(state: dict) -> dict:
        """Updates that show another state and its plan."""
        context.drafts.save(form, state)
        checked = check(form, state)
        return {tab.fields: loaded(state, checked), tab.plan: plan_html(checked, form)}

    def begin(text: str, sure: bool = False) -> dict:
        checked = checked_now(text)
        answer = shown(checked) | {tab.said: "", tab.question: gr.Group(visible=False)}
        if not checked.can_start:
            return answer | {tab.said: bad("Not started: mend what is marked red first.")}
        if checked.overwrites and not sure:
            words = f"{checked.overwrites} exists already and would be replaced at the end of this run."
            return answer | {tab.question: gr.Group(visible=True), tab.asked: bad(words)}
        try:
            run = context.manager.submit(checked.recipe, checked.options, checked.launch)
        except UserError as failure:
            return answer | {tab.said: bad(f"Not started: {failure}")}
        waits = run.status.state == "queued"
        answer[tab.said] = good("Waiting for the run before it." if waits else "Started.")
        return answer | dict(zip(show_run_outputs, show_run(run.name), strict=True))

    def begin_anyway(text: str) -> dict:
        return begin(text, sure=True)

    def stop_active() -> str:
        run = context.manager.active()
        return good(context.manager.stop(run.name)) if run else good("Nothing runs.")

    def print_command(text: str) -> dict:
        checked = checked_now(text)
        answer = shown(checked)
        if checked.options is None or checked.launch is None:
            return answer | {tab.said: bad("Mend what is marked red first."), tab.command: gr.Code(visible=False)}
        command = launch.training_command(
            checked.recipe, checked.options, checked.launch, Path("settings.toml"), run_dir=None
        )
        settings = settings_toml(checked.options)
        secrets = "".join(f"# set {name} in the environment first\n" for name in launch.secrets_of(checked.options))
        printed = f"# settings.toml\n{settings}\n# command\n{secrets}{launch.command_text(command)}\n"
        return answer | {tab.said: "", tab.command: gr.Code(value=printed, visible=True)}

    found_outputs = [tab.fields, tab.plan]
    after_start = [*found_outputs, tab.said, tab.question, tab.asked, *show_run_outputs]
    tab.fields.look(look, tab.fields, found_outputs, trigger_mode="always_last", concurrency_limit=4, **QUICK)
    tab.start.click(begin, tab.fields, after_start, trigger_mode="once", **QUICK)
    tab.replace.click(begin_anyway, tab.fields, after_start, trigger_mode="once", **QUICK)
    tab.keep.click(lambda: gr.Group(visible=False), None, tab.question, **QUICK)
    tab.stop.click(stop_active, None, tab.said, **QUICK)
    tab.show.click(print_command, tab.fields, [*found_outputs, tab.said, tab.command], **QUICK)
    preset_row.connect(context, tab.presets, form, tab.fields, tab.plan, fill)
