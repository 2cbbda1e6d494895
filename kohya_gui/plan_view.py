"""The plan and its problems as HTML. A problem leads to its field: the form's script listens to `data-jump`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kohya_gui.forms import TrainingForm
from kohya_gui.planning import Checked, sentence
from sd_scripts.options.problems import Problem
from sd_scripts.plan_text import plan_lines

LABEL_WIDTH = 11  # columns that `plan_lines` gives to the labels
PROBLEM_LABELS = frozenset({"Error", "Warning", "Note"})
HEADLINES = {
    True: '<p class="verdict good">Ready to start.</p>',
    False: '<p class="verdict bad">Cannot start yet.</p>',
}


def plan_html(checked: Checked, form: TrainingForm) -> str:
    """The plan panel: can it start, what is in the way, what will be done."""
    parts = [HEADLINES[checked.can_start], problems_html(checked.problems, form)]
    if checked.plan is not None:
        parts.append(_table(checked))
    return "".join(parts)


def problems_html(problems: Sequence[Problem], form: TrainingForm) -> str:
    if not problems:
        return ""
    return f'<ul class="problems">{"".join(_item(problem, form) for problem in problems)}</ul>'


def _item(problem: Problem, form: TrainingForm) -> str:
    spec = form.specs.get(problem.option or "")
    if spec is None:
        name = f"<b>{escape(problem.option)}:</b> " if problem.option else ""
        return f'<li class="{problem.level}">{name}{escape(sentence(problem))}</li>'
    button = f'<button type="button" data-jump="{spec.name}" title="Go to the field">{escape(spec.label)}</button>'
    return f'<li class="{problem.level}">{button} {escape(sentence(problem))}</li>'


def _table(checked: Checked) -> str:
    rows, last = [], None
    for line in plan_lines(checked.plan):
        label, text = line[:LABEL_WIDTH].strip(), line[LABEL_WIDTH:].strip()
        if label in PROBLEM_LABELS:
            continue
        shown = "" if label == last else label
        rows.append(f"<tr><th>{escape(shown)}</th><td>{escape(text)}</td></tr>")
        last = label or last
    return f'<table class="plan">{"".join(rows)}</table>' if rows else ""
