"""Values in and out of the forms, for every option of every tab."""

import json

import pytest

from kohya_gui.form_values import (
    from_field,
    from_state,
    is_switch,
    plain,
    read_state,
    to_field,
    to_state,
    without_secrets,
    write_state,
)
from kohya_gui.forms import FAMILY, FORMS, FRESH
from sd_scripts.options.build import try_build
from test.gui.values import another_value

LORA = FORMS["lora"]
ALL = [pytest.param(form, id=form.name) for form in FORMS.values()]
NUMBERS = [
    pytest.param(form, name, id=f"{form.name}-{name}")
    for form in FORMS.values()
    for name, spec in form.specs.items()
    if spec.type in (int, float) and not (spec.choices or spec.is_list)
]


def built(form, state):
    values, problems = from_state(form, state)
    assert not problems
    found = []
    for model in form.models:
        options, problems = try_build(model, form.part(model, values))
        assert options is not None, problems
        found.append(options)
    return found


@pytest.mark.parametrize("form", ALL)
def test_every_option_goes_through_the_form_unchanged(form):
    values = {name: another_value(spec) for name, spec in form.specs.items()}
    state = read_state(form, write_state(to_state(form, values)))
    assert set(state) == set(form.specs)
    wanted = [try_build(model, form.part(model, values))[0] for model in form.models]
    assert None not in wanted
    assert built(form, state) == wanted


@pytest.mark.parametrize("form", ALL)
def test_an_untouched_form_gives_the_defaults(form):
    assert built(form, {}) == [model() for model in form.models]
    assert to_state(form, {}) == {}


@pytest.mark.parametrize(("form", "name"), NUMBERS)
def test_zero_is_a_value_and_empty_is_unset(form, name):
    spec = form.specs[name]
    assert from_field(spec, "0") == "0"
    assert from_field(spec, "") is None and from_field(spec, "  ") is None
    assert to_field(spec, 0) == "0"
    assert to_field(spec, None) == ""


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


def test_a_text_that_is_no_number_stays():
    assert from_state(LORA, {"network_dim": "eight"}) == ({"network_dim": "eight"}, [])
    assert to_state(LORA, {"network_dim": "eight"}) == {"network_dim": "eight"}


def test_a_value_outside_the_choices_stays():
    assert to_state(LORA, {"mixed_precision": "fp7"}) == {"mixed_precision": "fp7"}


@pytest.mark.parametrize(("raw", "wanted"), [(1, True), ("true", True), (0, False), ("False", False)])
def test_switches_take_the_spellings_of_old_files(raw, wanted):
    assert to_field(LORA.specs["flip_aug"], raw) is wanted
    assert from_field(LORA.specs["flip_aug"], raw) is wanted


def test_a_switch_that_is_on_by_default_can_be_off():
    assert LORA.specs["enable_bucket"].default is True
    assert from_state(LORA, {"enable_bucket": False}) == ({"enable_bucket": False}, [])


def test_choices_come_back_in_their_own_type():
    assert from_field(LORA.specs["max_token_length"], "150") == 150
    assert to_field(LORA.specs["max_token_length"], 150) == "150"


def test_several_lines_of_prompts_stay_lines():
    prompts = "a cat --w 512\n\n# not this one\na dog"
    assert from_state(LORA, to_state(LORA, {"sample_prompts": prompts}))[0] == {"sample_prompts": prompts}


def test_quotes_that_do_not_close_are_named_at_their_field():
    values, problems = from_state(LORA, {"optimizer_args": 'betas="0.9', "seed": "3"})
    assert values == {"seed": "3"}
    assert [(p.option, p.level) for p in problems] == [("optimizer_args", "error")]


@pytest.mark.parametrize("form", ALL)
def test_fields_survive_what_browsers_send(form):
    for spec in form.specs.values():
        for raw in (None, "", 64.0, "text", True, False, "'", "\u2028", "-1e999"):
            state = read_state(form, json.dumps({spec.name: raw}))
            from_state(form, state)
            assert isinstance(state.get(spec.name, False if is_switch(spec) else ""), bool if is_switch(spec) else str)


@pytest.mark.parametrize("text", ["", "null", "[1]", "{", '"x"', "[" * 100_000, '{"a": {"b": 1}}', None, 7, "NaN"])
def test_what_is_no_state_is_an_empty_one(text):
    assert read_state(LORA, text) == {}


def test_what_does_not_fit_its_field_is_left_out():
    odd = {
        "seed": True,
        "flip_aug": "yes",
        "vae": 7,
        "no_such": "x",
        FAMILY: "x",
        FRESH: 1,
        "output_name": "",
        "unet_lr": "a",
    }
    assert read_state(LORA, json.dumps(odd)) == {"unet_lr": "a"}
    assert read_state(LORA, json.dumps({FAMILY: "flux", FRESH: True})) == {FAMILY: "flux", FRESH: True}


def test_characters_that_no_file_holds_are_left_out():
    assert read_state(LORA, '{"output_dir": "a\\u0000b\\ud800c"}') == {"output_dir": "abc"}


def test_a_state_is_harmless_in_a_page():
    state = {"output_name": "</script><script>alert(1)</script>"}
    assert "<" not in write_state(state)
    assert read_state(LORA, write_state(state)) == state


def test_secrets_are_left_out_of_what_is_kept():
    secret = [name for name, spec in LORA.specs.items() if spec.secret]
    assert {"wandb_api_key", "huggingface_token"} <= set(secret)
    assert without_secrets(LORA, {"wandb_api_key": "k", "seed": "1"}) == {"seed": "1"}


def test_the_family_that_was_chosen_is_kept_and_nonsense_is_not():
    assert to_state(LORA, {FAMILY: "flux"}) == {FAMILY: "flux"}
    assert to_state(LORA, {FAMILY: "x"}) == {}
