"""A training form on the page: one HTML component that the browser fills from the schema.

Its template is empty and constant, so that updates from the server never touch what the script has drawn in it. Its value
is the form's state as JSON text; `report` is what the last look at the plan found.
"""

from __future__ import annotations

from collections.abc import Mapping

import gradio as gr

from kohya_gui.form_schema import report_json, schema_json
from kohya_gui.form_values import FieldValue, write_state
from kohya_gui.forms import TrainingForm
from kohya_gui.paths import asset
from kohya_gui.planning import MODEL, Checked, family_of, family_report
from kohya_gui.settings import Start

SCRIPTS = ("values", "field", "section", "form")  # of assets/form, in the order in which they build on each other
# What never changes stands in the script: an update replaces all props of a tab that was not looked at yet.
JOIN = """const { tab, familyDefaults, browse } = %s;
(window.kohyaForms ??= []).push({ element, props, watch, look: () => trigger("look"), tab, familyDefaults, browse });"""


def part_id(form: TrainingForm, part: str) -> str:
    """The id in the page of a tab's part that is no field; the id of a field is `<form>--<option>`."""
    return f"gui-{form.name}-{part}"


def form_html(form: TrainingForm, start: Start) -> gr.HTML:
    """The form, empty until a page is opened and `opened` fills it.

    Its event `look` asks for a look at the plan: at first, and after a pause in typing.
    """
    fixed = {"tab": form.name, "familyDefaults": start.by_family.get(form.name, {})}
    fixed["browse"] = start.browse.get(form.name, {})
    return gr.HTML(
        "",
        html_template='<div class="kform"></div>',
        js_on_load=JOIN % report_json(fixed),
        apply_default_css=False,
        report="{}",
        elem_id=part_id(form, "form"),
        elem_classes="form-holder",
    )


def opened(state: Mapping[str, FieldValue]) -> gr.HTML:
    """An update that fills a form that was just opened; it asks for its plan by itself."""
    return gr.HTML(value=write_state(state), report=report_json(family_report(family_of(state.get(MODEL)))))


def scripts_html() -> gr.HTML:
    """The schema and the scripts, once for all forms of a page."""
    code = "\n".join(asset(f"form/{name}.js") for name in SCRIPTS)
    return gr.HTML(
        "", js_on_load=code, html_template="<i hidden></i>", schema=schema_json(), elem_id="gui-form-scripts"
    )


def found(checked: Checked) -> gr.HTML:
    """An update that shows in the form what a look found; what is typed meanwhile stays."""
    return gr.HTML(report=report_json(checked.report()))


def loaded(state: Mapping[str, FieldValue], checked: Checked) -> gr.HTML:
    """An update that fills the form anew."""
    return gr.HTML(value=write_state(state), report=report_json(checked.report()))
