"""The page, put together."""

from __future__ import annotations

from html import escape
from pathlib import Path

import gradio as gr

from kohya_gui import browse
from kohya_gui.context import Context
from kohya_gui.drafts import Drafts
from kohya_gui.form_values import to_state
from kohya_gui.forms import FORMS
from kohya_gui.paths import PRESETS, asset
from kohya_gui.pictures import PictureShelf
from kohya_gui.presets import PresetFolder
from kohya_gui.runs import RunManager
from kohya_gui.settings import Start
from kohya_gui.tabs import about, runs, training
from kohya_gui.tabs.form_view import opened, scripts_html
from sd_scripts.errors import UserError

TITLE = "Kohya GUI"
DRAFTS = ".forms"  # folder in that of the runs
DIALOG = """<dialog class="browse"><input aria-label="Folder" spellcheck="false"><p class="quiet"></p><ul></ul>
<div><button type="button" data-do="cancel">Cancel</button>
<button type="button" data-do="choose">Choose this folder</button></div></dialog>"""


def make_page(runs_dir: Path, presets_root: Path = PRESETS, start: Start | None = None) -> tuple[gr.Blocks, RunManager]:
    """The page and the manager of the runs behind it; nothing is served or watched yet.

    Args:
        presets_root: holds a folder of presets for each form.
        start: what the forms begin with; None for defaults, and the demo in the first one.
    """
    start = start or Start()
    presets = {name: PresetFolder(presets_root / name) for name in FORMS}
    first = {"lora": _demo(presets["lora"])} | dict(start.defaults)
    drafts = Drafts(runs_dir / DRAFTS, first, start.asked_for)
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True) as page:
        shelf = PictureShelf(lambda path: page.allowed_paths.append(path))
        context = Context(RunManager(runs_dir), presets, shelf, start, drafts)
        _fill(page, context)
    return page, context.manager


def _fill(page: gr.Blocks, context: Context) -> None:
    gr.HTML(f'<h1 class="brand">{TITLE}<small>train image models</small></h1>')
    if context.start.notes:
        gr.HTML(_notes(context.start), elem_id="gui-start-notes")
    made: list[training.TrainingTab] = []
    with gr.Tabs(elem_id="gui-tabs") as tabs:
        for form in FORMS.values():
            with gr.Tab(form.title, id=form.name):
                made.append(training.build(context, form))
        with gr.Tab("Runs", id="runs"):
            runs_tab = runs.build(context)
        with gr.Tab("About", id="about"):
            about.build(context)

    def show_run(name: str) -> list:
        return [gr.Tabs(selected="runs"), name, {}]

    def restore() -> list:
        forms = [opened(context.drafts.load(tab.form)) for tab in made]
        return [*forms, *(gr.Dropdown(choices=context.presets[tab.form.name].names()) for tab in made)]

    for tab in made:
        training.connect(context, tab, show_run, [tabs, runs_tab.chosen, runs_tab.seen])
    runs.connect(context, runs_tab, [tab.live for tab in made], [tab.stop for tab in made], page)
    page.load(
        restore, None, [*(tab.fields for tab in made), *(tab.presets.choice for tab in made)], show_progress="hidden"
    )
    scripts_html()
    gr.HTML(DIALOG, js_on_load=asset("browse.js"), server_functions=[browse.list_for_page], elem_id="gui-browse")


def _notes(start: Start) -> str:
    items = "".join(f'<li class="warning">{escape(note)}</li>' for note in start.notes)
    count = f"{len(start.notes)} {'remark' if len(start.notes) == 1 else 'remarks'} on {escape(start.source)}"
    return f'<details class="remarks"><summary>{count}</summary><ul class="problems">{items}</ul></details>'


def _demo(presets: PresetFolder) -> dict:
    """What a newcomer finds in the form: the demo, ready to start."""
    form = FORMS["lora"]
    try:
        return to_state(form, presets.load("demo", form).values) if "demo" in presets.names() else {}
    except UserError:  # a demo preset that somebody broke must not keep the page from opening
        return {}


def look() -> dict:
    """Theme, style sheet and script for the launch. System fonts only: the page loads nothing from elsewhere."""
    theme = gr.themes.Base(
        primary_hue=gr.themes.colors.indigo,
        neutral_hue=gr.themes.colors.slate,
        radius_size=gr.themes.sizes.radius_md,
        spacing_size=gr.themes.sizes.spacing_sm,
        text_size=gr.themes.sizes.text_sm,
        font=["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"],
        font_mono=["ui-monospace", "SF Mono", "Consolas", "monospace"],
    ).set(body_text_color_subdued="*neutral_500")  # a shade darker: help texts are read
    return {"theme": theme, "css": asset("page.css") + asset("form.css")}
