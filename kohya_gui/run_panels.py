"""The parts of the Runs page as HTML, each made from a run and its events."""

from __future__ import annotations

import time
from collections.abc import Iterable
from html import escape
from pathlib import Path

from kohya_gui.charts import Line, chart
from kohya_gui.logs import tail
from kohya_gui.pictures import PictureShelf
from kohya_gui.run_view import RunView
from kohya_gui.runs import Run

STATE_WORDS = {
    "queued": "waiting",
    "starting": "starting",
    "running": "running",
    "saving": "saving",
    "done": "done",
    "stopped": "stopped",
    "failed": "failed",
}
MOST_COLUMNS = 60
MOST_LISTED = 200


def list_html(runs: Iterable[Run], selected: str | None) -> str:
    """The list of runs to choose from."""
    cards = [_card(run, run.name == selected) for run in list(runs)[:MOST_LISTED]]
    if not cards:
        return '<p class="quiet">No runs yet. Fill the form on the LoRA tab and press Start.</p>'
    return f'<div class="runs">{"".join(cards)}</div>'


def _card(run: Run, is_selected: bool) -> str:
    status = run.status
    bar = "" if run.is_over else f'<span class="thin bar"><i style="width:{_percent(run)}%"></i></span>'
    return (
        f'<button type="button" class="run{" selected" if is_selected else ""}" data-run="{escape(run.name)}">'
        f"<b>{escape(short_name(run.name))}</b>{badge(run)}<small>{escape(_when(run.name))}"
        f"{f' · {status.step} of {status.total_steps} steps' if status.total_steps else ''}</small>"
        f"{bar}</button>"
    )


def head_html(run: Run, view: RunView) -> str:
    """Name, state, progress and the numbers of the moment."""
    status = run.status
    numbers = _numbers(run, view)
    cells = "".join(f"<div><small>{escape(name)}</small><b>{escape(value)}</b></div>" for name, value in numbers)
    note = ""
    if status.message:
        note = f'<p class="note {escape(status.state)}">{escape(status.message)}</p>'
    elif run.stop_asked and not run.is_over:
        note = '<p class="note">Stopping: the step is finished and the weights are saved.</p>'
    warnings = "".join(f'<li class="warning">{escape(text)}</li>' for text in view.warnings[-5:])
    return (
        f'<div class="run-head"><h3>{escape(short_name(run.name))} {badge(run)}</h3>'
        f'<p class="quiet">{escape(_when(run.name))} · {escape(str(run.folder.path))}</p>'
        f'<div class="bar"><i style="width:{_percent(run)}%"></i></div>'
        f'<div class="numbers">{cells}</div>{note}{f"<ul class=problems>{warnings}</ul>" if warnings else ""}</div>'
    )


def charts_html(view: RunView) -> str:
    losses = [
        Line("loss", "faint", view.curve("loss")),
        Line("average", "strong", view.curve("average_loss")),
    ]
    rates = [Line(name, f"line-{i % 4}", points) for i, (name, points) in enumerate(view.rates().items())]
    return f'<div class="charts">{chart("Loss", losses)}{chart("Learning rate", rates)}</div>'


def wall_html(view: RunView, shelf: PictureShelf) -> str:
    """Samples: a row for a prompt, a column for a step."""
    steps, rows = view.wall()
    if not rows:
        return '<p class="quiet">No samples yet. They need a prompt file and an interval; see Samples in the form.</p>'
    steps = steps[-MOST_COLUMNS:]
    head = "".join(f"<th>step {step}</th>" for step in steps)
    body = "".join(
        f'<tr><th title="{escape(prompt)}">{escape(prompt)}</th>'
        + "".join(_picture(pictures.get(step), prompt, step, shelf) for step in steps)
        + "</tr>"
        for prompt, pictures in rows.values()
    )
    return f'<div class="wall"><table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _picture(path: Path | None, prompt: str, step: int, shelf: PictureShelf) -> str:
    if path is None:
        return "<td></td>"
    alt = escape(f"{prompt}, step {step}")
    return (
        f'<td><a href="{escape(shelf.url(path))}" target="_blank">'
        f'<img src="{escape(shelf.thumb_url(path))}" alt="{alt}" title="{alt}" loading="lazy"></a></td>'
    )


def files_html(view: RunView) -> str:
    """What the run wrote, newest first."""
    if not view.files:
        return '<p class="quiet">Nothing written yet.</p>'
    rows = "".join(
        f"<tr><td>{'state' if file.get('kind') == 'state' else 'weights'}</td><td>step {file.get('step', '')}</td>"
        f'<td class="path">{escape(str(file.get("path", "")))}{_gone(file)}</td><td>{size(file.get("bytes"))}</td></tr>'
        for file in reversed(view.files)
    )
    return f'<table class="files"><tbody>{rows}</tbody></table>'


def log_html(run: Run) -> str:
    text = tail(run.folder.log)
    return f'<pre class="log" tabindex="0">{escape(text) or "The log is empty."}</pre>'


def badge(run: Run) -> str:
    return f'<span class="badge {run.status.state}">{STATE_WORDS.get(run.status.state, run.status.state)}</span>'


def size(count: int | None) -> str:
    """Bytes for people."""
    if count is None:
        return ""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""


def duration(seconds: float | None) -> str:
    """Seconds for people: "45 s", "3 min 20 s", "2 h 5 min"."""
    if seconds is None:
        return "–"
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _numbers(run: Run, view: RunView) -> list[tuple[str, str]]:
    status, last = run.status, view.last
    found = [("Step", f"{status.step} of {status.total_steps}" if status.total_steps else "–")]
    if status.total_epochs:
        found.append(("Epoch", f"{status.epoch} of {status.total_epochs}"))
    if not run.is_over:
        found.append(("Phase", _phase(run, view)))
        found.append(("Time left", duration(view.seconds_left(status.total_steps))))
    if last:
        average = last.get("average_loss")
        found.append(("Loss", f"{average if average is not None else last.get('loss'):.4f}"))
        found.append(("Speed", _speed(last.get("seconds_per_step"))))
        found.append(("Waiting for data", f"{100 * (last.get('data_wait') or 0):.0f} %"))
    return found


def _phase(run: Run, view: RunView) -> str:
    name = run.status.phase or run.status.state
    if view.phase and view.phase.get("total") and view.phase.get("phase") == name:
        return f"{name} ({view.phase.get('done')} of {view.phase['total']})"
    return name


def _speed(seconds_per_step: float | None) -> str:
    if not seconds_per_step:
        return "–"
    return f"{seconds_per_step:.2f} s a step" if seconds_per_step >= 1 else f"{1 / seconds_per_step:.1f} steps/s"


def _percent(run: Run) -> int:
    if run.status.state == "done":
        return 100
    return round(100 * run.status.step / run.status.total_steps) if run.status.total_steps else 0


def short_name(name: str) -> str:
    """A run folder's name without the time at its start."""
    return name[16:] if _stamp(name) else name


def _when(name: str) -> str:
    stamp = _stamp(name)
    if stamp is None:
        return ""
    form = "%H:%M" if time.strftime("%Y%m%d") == time.strftime("%Y%m%d", stamp) else "%Y-%m-%d %H:%M"
    return time.strftime(form, stamp)


def _stamp(name: str) -> time.struct_time | None:
    """The time at the start of a run folder's name."""
    try:
        return time.strptime(name[:15], "%Y%m%d-%H%M%S")
    except ValueError:
        return None


def _gone(file: dict) -> str:
    return "" if Path(str(file.get("path", ""))).exists() else ' <span class="quiet">(removed since)</span>'
