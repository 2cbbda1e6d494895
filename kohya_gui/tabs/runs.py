"""The Runs tab: all runs, and everything about the chosen one while it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from kohya_gui import run_panels
from kohya_gui.board import log_folder
from kohya_gui.context import Context
from kohya_gui.live import mark
from kohya_gui.runs import Run, newest_active_or_last
from sd_scripts.errors import UserError
from sd_scripts.options.toml_files import read_settings

POLL_S = 1.5
CHOOSE = """element.addEventListener("click", (event) => {
  const card = event.target.closest("[data-run]");
  if (card) trigger("select", { run: card.dataset.run });
});"""


@dataclass
class RunsTab:
    """The parts that polling fills, in the order of `Poll.outputs`."""

    chosen: gr.State
    seen: gr.State
    runs: gr.HTML
    panels: dict[str, gr.HTML]
    buttons: dict[str, gr.Button]
    board: gr.HTML


def build(context: Context) -> RunsTab:
    """Draw the tab. `connect` makes it live once the rest of the page stands."""
    chosen, seen = gr.State(None), gr.State(dict)
    panels, buttons = {}, {}
    with gr.Row(elem_classes="page"):
        with gr.Column(scale=1, min_width=240, elem_classes="run-list"):
            runs = gr.HTML(js_on_load=CHOOSE, elem_id="gui-runs")
        with gr.Column(scale=4, min_width=340):
            panels["head"] = gr.HTML(elem_id="gui-run-head")
            with gr.Row(elem_classes="actions"):
                for name, label in (("stop", "Stop"), ("save", "Save now"), ("sample", "Draw samples now")):
                    buttons[name] = gr.Button(
                        label, size="sm", interactive=False, elem_id=f"gui-run-{name}", min_width=80
                    )
                buttons["board"] = gr.Button("TensorBoard", size="sm", elem_id="gui-run-board", min_width=100)
                buttons["end_board"] = gr.Button("Stop TensorBoard", size="sm", visible=False, min_width=130)
            board = gr.HTML(elem_id="gui-board")
            panels["charts"] = gr.HTML(elem_id="gui-run-charts")
            gr.HTML("<h3>Samples</h3>")
            panels["wall"] = gr.HTML(elem_id="gui-run-wall")
            gr.HTML("<h3>Files</h3>")
            panels["files"] = gr.HTML(elem_id="gui-run-files")
            with gr.Accordion("Log", open=True):
                panels["log"] = gr.HTML(elem_id="gui-run-log", autoscroll=True, max_height=360)
    return RunsTab(chosen, seen, runs, panels, buttons, board)


def connect(
    context: Context, tab: RunsTab, live: list[gr.HTML], stop_on_forms: list[gr.Button], page: gr.Blocks
) -> None:
    """Start the polling and connect the buttons.

    Args:
        live: in each form's tab, the line about what goes on.
        stop_on_forms: the forms' own stop buttons.
    """

    def poll(chosen: str | None, seen: dict) -> list:
        listed = context.manager.runs()
        run = next((r for r in listed if r.name == chosen), None) or newest_active_or_last(listed)
        active = next((r for r in listed if r.is_active), None)
        now = {"runs": run_panels.list_html(listed, run.name if run else None), "live": _live(active, listed)}
        if run is not None:
            view = context.views.of(run)
            looks = mark(run, view)
            if looks != seen.get("mark"):
                now |= {"head": run_panels.head_html(run, view), "charts": run_panels.charts_html(view)}
                now |= {"wall": run_panels.wall_html(view, context.shelf), "files": run_panels.files_html(view)}
                now |= {"log": run_panels.log_html(run), "buttons": _button_state(run), "mark": looks}
        now |= {"board": _board(context), "form stop": active is not None}
        changed = {key: value for key, value in now.items() if seen.get(key) != value}
        return _updates(changed, seen | changed, run)

    def _updates(changed: dict, seen: dict, run: Run | None) -> list:
        html = [changed.get(key, gr.skip()) for key in ("runs", *["live"] * len(live), "board", *tab.panels)]
        stop, rest = changed.get("buttons", (None, None))
        acts = (
            [gr.skip()] * 3 if stop is None else [gr.Button(stop, interactive=rest), *[gr.Button(interactive=rest)] * 2]
        )
        form_stop = gr.Button(interactive=changed["form stop"]) if "form stop" in changed else gr.skip()
        end_board = gr.Button(visible=bool(changed["board"])) if "board" in changed else gr.skip()
        return [run.name if run else None, seen, *html, *acts, *[form_stop] * len(stop_on_forms), end_board]

    def choose(event: gr.EventData) -> tuple[str, dict]:
        return event.run, {}

    def stop(name: str | None) -> None:
        if name:
            gr.Info(context.manager.stop(name))

    def ask(what: str):
        def asked(name: str | None) -> None:
            if name:
                gr.Info(context.manager.request(name, what))

        return asked

    def start_board(name: str | None) -> str:
        run = context.manager.find(name) if name else None
        if run is None:
            return ""
        try:
            settings = read_settings(run.folder.config) if run.folder.config.exists() else {}
            context.board.start(log_folder(run.folder.path, settings.get("logging_dir")))
        except UserError as failure:
            return f'<p class="said bad">{escape(str(failure))}</p>'
        return _board(context)

    names = ("stop", "save", "sample")
    outputs = [tab.chosen, tab.seen, tab.runs, *live, tab.board, *tab.panels.values()]
    outputs += [*(tab.buttons[n] for n in names), *stop_on_forms, tab.buttons["end_board"]]
    quick: dict[str, Any] = {"show_progress": "hidden"}
    polled = {"fn": poll, "inputs": [tab.chosen, tab.seen], "outputs": outputs, **quick}
    timer = gr.Timer(POLL_S)
    timer.tick(**polled, queue=False)
    page.load(**polled)
    tab.runs.select(choose, None, [tab.chosen, tab.seen], **quick).then(**polled)
    tab.buttons["stop"].click(stop, tab.chosen, None, **quick).then(**polled)
    for name in ("save", "sample"):
        tab.buttons[name].click(ask(name), tab.chosen, None, **quick)
    tab.buttons["board"].click(start_board, tab.chosen, tab.board, **quick)
    tab.buttons["end_board"].click(context.board.stop, None, None, **quick).then(**polled)


def _button_state(run: Run) -> tuple[str, bool]:
    """The stop button's label, and whether a running run's buttons can be pressed."""
    label = "Stop at once" if run.stop_asked and not run.is_over else "Stop"
    return label, not run.is_over


def _live(active: Run | None, listed: list[Run]) -> str:
    """One line about what goes on, for the form's page."""
    waiting = sum(1 for run in listed if run.status.state == "queued")
    queue = f" · {waiting} waiting" if waiting else ""
    if active is None:
        return f'<p class="quiet">{waiting} waiting</p>' if waiting else ""
    status = active.status
    steps = f"step {status.step} of {status.total_steps}" if status.total_steps else status.phase or status.state
    percent = round(100 * status.step / status.total_steps) if status.total_steps else 0
    name = escape(run_panels.short_name(active.name))
    return (
        f'<div class="live"><b>{name}</b> {run_panels.badge(active)} {escape(steps)}{queue}'
        f'<div class="bar"><i style="width:{percent}%"></i></div></div>'
    )


def _board(context: Context) -> str:
    if not context.board.is_running:
        return ""
    if not context.board.answers():
        return '<p class="quiet">TensorBoard is starting …</p>'
    url = context.board.url
    where = '<span class="quiet">(on the machine that runs this page)</span>'
    return f'<p>TensorBoard: <a href="{url}" target="_blank">{url}</a> {where}</p>'
