"""Values in and out of the form, for every option of the schema."""

import pytest

from kohya_gui.form import HIDDEN, Form, from_widget, plain, to_widget
from kohya_gui.planning import try_build
from sd_scripts.options.schema import specs
from test.gui.conftest import RECIPE

SPECS = {name: spec for name, spec in specs(RECIPE.options).items() if name not in HIDDEN}


def another_value(spec):
    """A legal value that is not the default."""
    if spec.is_flag:
        return not spec.default
    if spec.choices:
        return next(c for c in reversed(spec.choices) if c != spec.default)
    if spec.is_list:
        items = {str: ["a=1", "b c=$(x) 桌面"], float: [0.5, 1e-5], int: [3, 4]}
        return items[spec.type]
    if spec.type is str:
        return f"/a b/[{spec.name}] 桌面 #1.toml"
    low = spec.minimum if spec.minimum is not None else spec.exclusive_minimum
    high = spec.maximum if spec.maximum is not None else spec.exclusive_maximum
    candidates = [7, 3, 0.25, 0.125] if spec.type is float else [7, 3, 600]
    inside = [c for c in candidates if (low is None or c > low) and (high is None or c < high) and c != spec.default]
    return inside[0]


@pytest.fixture(scope="module")
def form():
    return Form(RECIPE.options)


def test_every_option_goes_through_the_form_unchanged(form):
    values = {name: another_value(spec) for name, spec in SPECS.items()}
    wanted, problems = try_build(RECIPE.options, values)
    assert not problems
    got, problems = try_build(RECIPE.options, form.given(form.shown(values)))
    assert not problems
    assert got == wanted


def test_an_untouched_form_gives_the_defaults(form):
    got, problems = try_build(RECIPE.options, form.given(form.shown({})))
    assert not problems
    assert got == RECIPE.options()


@pytest.mark.parametrize("name", [n for n, s in SPECS.items() if s.type in (int, float) and not s.is_flag])
def test_zero_is_a_value_and_empty_is_unset(name):
    spec = SPECS[name]
    if spec.choices or spec.is_list:
        assert from_widget(spec, "") is None
        return
    assert from_widget(spec, "0") == "0"
    assert from_widget(spec, "") is None
    assert from_widget(spec, None) is None
    if spec.default != 0:
        assert to_widget(spec, 0) == "0"


@pytest.mark.parametrize(
    ("value", "text"),
    [(64.0, "64"), (1e-4, "1e-4"), (0.001, "0.001"), (2.5e-6, "2.5e-6"), (0.1, "0.1"), (0, "0"), (1e20, "1e20")],
)
def test_numbers_are_written_as_people_write_them(value, text):
    assert plain(value).replace("e+", "e") == text
    assert float(plain(value)) == value


@pytest.mark.parametrize("value", [1 / 3, 0.1 + 0.2, 1.23456789012345e-7, 3.0000000000000004e-5])
def test_no_digit_is_lost(value):
    assert float(plain(value)) == value


def test_a_text_that_is_no_number_stays_and_is_named(form):
    values = form.shown({})
    values[list(form.specs).index("network_dim")] = "eight"
    built, problems = try_build(RECIPE.options, form.given(values))
    assert built is None
    assert [(p.option, p.level) for p in problems] == [("network_dim", "error")]
    assert "eight" in problems[0].message


def test_a_value_outside_the_choices_stays_visible_and_is_named(form):
    shown = form.shown({"mixed_precision": "fp8"})
    assert shown[list(form.specs).index("mixed_precision")] == "fp8"
    built, problems = try_build(RECIPE.options, form.given(shown))
    assert built is None and problems[0].option == "mixed_precision"


@pytest.mark.parametrize(("raw", "wanted"), [(1, True), ("true", True), (0, False), ("False", False), (None, False)])
def test_switches_take_the_spellings_of_old_files(raw, wanted):
    assert to_widget(SPECS["flip_aug"], raw) is wanted


def test_choices_come_back_in_their_own_type():
    assert from_widget(SPECS["max_token_length"], "150") == 150
    assert to_widget(SPECS["max_token_length"], 150) == "150"


def test_widgets_survive_what_browsers_send():
    for spec in SPECS.values():
        for raw in (None, "", 64.0, "text", True):
            from_widget(spec, raw)
