"""The LoRA tab: the form, the plan beside it, presets, Start and Stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from kohya_gui import launch
from kohya_gui.context import Context
from kohya_gui.form import Form
from kohya_gui.plan_view import plan_html
from kohya_gui.planning import Checked, check
from kohya_gui.tabs import preset_row
from kohya_gui.tabs.words import bad, good
from sd_scripts.errors import UserError
from sd_scripts.options.recipes import RECIPES
from sd_scripts.options.toml_files import settings_toml

RECIPE = RECIPES["train_network"]
# Typing restarts the wait, so a look at the plan costs the server nothing until a pause.
PLAN_AFTER_A_PAUSE = """() => {
  clearTimeout(window.kohyaPlan);
  window.kohyaPlan = setTimeout(() => document.querySelector("#gui-look-at-plan").click(), 500);
}"""


@dataclass
class LoraTab:
    """What the rest of the page needs of the tab."""

    form: Form
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
    look: gr.Button


def build(context: Context) -> LoraTab:
    """Draw the tab. `connect` makes it live once the rest of the page stands."""
    form = Form(RECIPE.options)
    shown = dict(zip(form.specs, form.shown(context.start_values), strict=True))
    with gr.Row(elem_classes="page"):
        with gr.Column(scale=3, min_width=340):
            presets = preset_row.build(context)
            with gr.Column(elem_classes="essentials"):
                form.essentials(shown)
            form.sections(shown)
        with gr.Column(scale=2, min_width=320, elem_classes="beside"):
            with gr.Row(elem_classes="actions"):
                start = gr.Button("Start training", variant="primary", elem_id="gui-start", min_width=120, size="md")
                stop = gr.Button("Stop", elem_id="gui-stop", interactive=False, min_width=70, size="md")
                show = gr.Button("Show command", elem_id="gui-show-command", min_width=110, size="md")
            said = gr.HTML(elem_id="gui-said")
            with gr.Group(visible=False, elem_classes="question") as question:
                asked = gr.HTML()
                with gr.Row():
                    replace = gr.Button("Replace it", variant="stop", size="sm", elem_id="gui-replace")
                    keep = gr.Button("Cancel", size="sm")
            live = gr.HTML(elem_id="gui-live")
            gr.HTML("<h3>Plan</h3>")
            plan = gr.HTML(elem_id="gui-plan")
            command = gr.Code(
                visible=False, language="shell", label="Command and settings", elem_id="gui-command", wrap_lines=True
            )
            look = gr.Button("Look at the plan", visible="hidden", elem_id="gui-look-at-plan")
    return LoraTab(form, presets, start, stop, show, said, question, asked, replace, keep, live, plan, command, look)


def connect(
    context: Context, tab: LoraTab, page: gr.Blocks, show_run: Callable[[str], list], show_run_outputs: list
) -> None:
    """Connect the tab.

    Args:
        show_run: from a new run's name to updates for `show_run_outputs`, which bring it to the front.
    """
    form, plan = tab.form, tab.plan

    def checked(values: tuple) -> Checked:
        return check(RECIPE, form.given(values))

    def look_at_plan(*values: Any) -> str:
        return plan_html(checked(values), form.specs)

    def begin(*values: Any, sure: bool = False) -> list:
        found = checked(values)
        answer = {tab.said: "", plan: plan_html(found, form.specs), tab.question: gr.Group(visible=False)}
        if not found.can_start:
            return answer | {tab.said: bad("Not started: mend what is marked red first.")}
        if found.overwrites and not sure:
            text = f"{found.overwrites} exists already and would be replaced at the end of this run."
            return answer | {tab.question: gr.Group(visible=True), tab.asked: bad(text)}
        try:
            run = context.manager.submit(RECIPE, found.options)
        except UserError as failure:
            return answer | {tab.said: bad(f"Not started: {failure}")}
        waits = run.status.state == "queued"
        answer[tab.said] = good("Waiting for the run before it." if waits else "Started.")
        return answer | dict(zip(show_run_outputs, show_run(run.name), strict=True))

    def begin_anyway(*values: Any) -> list:
        return begin(*values, sure=True)

    def stop_active() -> str:
        run = context.manager.active()
        return good(context.manager.stop(run.name)) if run else good("Nothing runs.")

    def show_command(*values: Any) -> dict:
        found = checked(values)
        answer = {plan: plan_html(found, form.specs)}
        if found.options is None:
            return answer | {tab.said: bad("Mend what is marked red first."), tab.command: gr.Code(visible=False)}
        line = launch.command_text(launch.training_command(RECIPE, found.options, Path("settings.toml"), None))
        text = f"# settings.toml\n{settings_toml(found.options)}\n# command\n{line}\n"
        return answer | {tab.said: "", tab.command: gr.Code(value=text, visible=True)}

    quick = {"show_progress": "hidden"}
    inputs = form.inputs
    after_start = [tab.said, plan, tab.question, tab.asked, *show_run_outputs]
    gr.on([widget.change for widget in inputs], None, js=PLAN_AFTER_A_PAUSE, **quick)
    looked = {"fn": look_at_plan, "inputs": inputs, "outputs": plan, "concurrency_limit": 4, **quick}
    page.load(**looked)
    tab.look.click(**looked, trigger_mode="always_last")
    tab.start.click(begin, inputs, after_start, trigger_mode="once", **quick)
    tab.replace.click(begin_anyway, inputs, after_start, trigger_mode="once", **quick)
    tab.keep.click(lambda: gr.Group(visible=False), None, tab.question, **quick)
    tab.stop.click(stop_active, None, tab.said, **quick)
    tab.show.click(show_command, inputs, [tab.said, plan, tab.command], **quick)
    for name, button in form.browse_buttons.items():
        button.click(None, js=f"() => window.kohyaBrowse('{name}', '{form.specs[name].path}')", **quick)
    preset_row.connect(context, tab.presets, form, plan, checked)
