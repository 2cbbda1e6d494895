"""The page, put together."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

from kohya_gui import browse
from kohya_gui.context import Context
from kohya_gui.paths import PRESETS, asset
from kohya_gui.pictures import PictureShelf
from kohya_gui.presets import PresetFolder, load_settings
from kohya_gui.runs import RunManager
from kohya_gui.tabs import about, lora, runs
from sd_scripts.errors import UserError
from sd_scripts.options.schema import specs

TITLE = "Kohya GUI"
DIALOG = """<dialog class="browse"><input aria-label="Folder" spellcheck="false"><p class="quiet"></p><ul></ul>
<div><button type="button" data-do="cancel">Cancel</button>
<button type="button" data-do="choose">Choose this folder</button></div></dialog>"""


def make_page(
    runs_dir: Path, presets_root: Path = PRESETS / "lora", first: Path | None = None
) -> tuple[gr.Blocks, RunManager]:
    """The page and the manager of the runs behind it; nothing is served or watched yet.

    Args:
        first: settings that fill the form at the start; None for the demo.

    Raises:
        UserError: those settings cannot be read.
    """
    presets = PresetFolder(presets_root)
    values = load_settings(first, specs(lora.RECIPE.options)).values if first else _demo(presets)
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True) as page:
        shelf = PictureShelf(lambda path: page.allowed_paths.append(path))
        context = Context(RunManager(runs_dir), presets, shelf, values)
        _fill(page, context)
    return page, context.manager


def _fill(page: gr.Blocks, context: Context) -> None:
    gr.HTML(f'<h1 class="brand">{TITLE}<small>train image models</small></h1>')
    with gr.Tabs(elem_id="gui-tabs") as tabs:
        with gr.Tab("LoRA", id="lora"):
            lora_tab = lora.build(context)
        with gr.Tab("Runs", id="runs"):
            runs_tab = runs.build(context)
        with gr.Tab("About", id="about"):
            about.build(context)

    def show_run(name: str) -> list:
        return [gr.Tabs(selected="runs"), name, {}]

    lora.connect(context, lora_tab, page, show_run, [tabs, runs_tab.chosen, runs_tab.seen])
    runs.connect(context, runs_tab, lora_tab.live, lora_tab.stop, page)
    gr.HTML(DIALOG, js_on_load=asset("browse.js"), server_functions=[browse.list_for_page], elem_id="gui-browse")


def _demo(presets: PresetFolder) -> dict:
    """What a newcomer finds in the form: the demo, ready to start."""
    known = specs(lora.RECIPE.options)
    try:
        return presets.load("demo", known).values if "demo" in presets.names() else {}
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
    )
    return {"theme": theme, "css": asset("page.css")}
