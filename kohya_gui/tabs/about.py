"""The About tab: versions and places."""

from __future__ import annotations

from html import escape

import gradio as gr

from kohya_gui.context import Context
from kohya_gui.paths import PROJECT_ROOT
from sd_scripts.versions import version_lines


def build(context: Context) -> None:
    places = {
        "Program": PROJECT_ROOT,
        "Runs": context.manager.root,
        "Presets": next(iter(context.presets.values())).root.parent,
    }
    rows = "".join(f"<tr><th>{name}</th><td>{escape(str(path))}</td></tr>" for name, path in places.items())
    gr.HTML(
        f'<div class="about"><h3>Places</h3><table class="plan">{rows}</table>'
        f"<h3>Versions</h3><pre>{escape(chr(10).join(version_lines()))}</pre></div>"
    )
