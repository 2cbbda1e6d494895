"""The plan and its problems as HTML, and as marks at the fields they concern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from kohya_gui.form import field_id, section_id
from kohya_gui.planning import Checked
from sd_scripts.options.problems import Problem
from sd_scripts.options.schema import OptionSpec
from sd_scripts.plan_text import plan_lines

LABEL_WIDTH = 11  # columns that `plan_lines` gives to the labels
PROBLEM_LABELS = frozenset({"Error", "Warning", "Note"})
HEADLINES = {
    True: '<p class="verdict good">Ready to start.</p>',
    False: '<p class="verdict bad">Cannot start yet.</p>',
}


def plan_html(checked: Checked, specs: Mapping[str, OptionSpec]) -> str:
    """The plan panel: can it start, what is in the way, what will be done."""
    parts = [HEADLINES[checked.can_start], problems_html(checked.problems, specs)]
    if checked.plan is not None:
        parts.append(_table(checked))
    return "".join(parts) + marks_html(checked.problems, specs)


def problems_html(problems: Sequence[Problem], specs: Mapping[str, OptionSpec]) -> str:
    if not problems:
        return ""
    items = "".join(
        f'<li class="{p.level}"><b>{escape(_name(p, specs))}</b> {escape(_sentence(p))}</li>' for p in problems
    )
    return f'<ul class="problems">{items}</ul>'


def marks_html(problems: Sequence[Problem], specs: Mapping[str, OptionSpec]) -> str:
    """A style sheet that writes each problem under its field and marks the section around it.

    A style sheet, because fields of closed sections are not in the page yet: it takes hold once they are.
    """
    rules, sections = [], {}
    for problem in reversed(problems):  # the worst comes first and shall win
        spec = specs.get(problem.option or "")
        if spec is None:
            continue
        colour = f"var(--mark-{problem.level})"
        rules.append(
            f'#{field_id(spec.name)}::after{{content:"{_css_text(_sentence(problem))}";color:{colour}}}'
            f"#{field_id(spec.name)}{{--field-mark:{colour}}}"
        )
        if spec.level != "essential" and problem.level != "note":
            sections[spec.group] = colour
    for group, colour in sections.items():
        rules.append(f'#{section_id(group)}>button::before{{content:"";background:{colour}}}')
    return f"<style>{''.join(rules)}</style>"


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


def _name(problem: Problem, specs: Mapping[str, OptionSpec]) -> str:
    spec = specs.get(problem.option or "")
    return f"{spec.label}:" if spec else (f"{problem.option}:" if problem.option else "")


def _sentence(problem: Problem) -> str:
    return f"{problem.message}; {problem.remedy}." if problem.remedy else f"{problem.message}."


def _css_text(text: str) -> str:
    """Text for a quoted string in a style sheet inside HTML: everything but plain characters as a code."""
    return "".join(c if (c.isalnum() and c.isascii()) or c in " .,:;_-()" else f"\\{ord(c):x} " for c in text)
