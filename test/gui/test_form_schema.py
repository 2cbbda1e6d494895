"""What the browser is told of the options."""

import json

import pytest

from kohya_gui.form_schema import conditions, describe, schema_json
from kohya_gui.forms import FORMS
from sd_scripts.options.families import FAMILIES
from sd_scripts.options.schema import SET, OptionSpec, specs

MOST_BYTES = 300_000


@pytest.fixture(scope="module")
def schema():
    return json.loads(schema_json())


def test_every_option_is_told_once_and_lies_in_one_place_of_each_tab(schema):
    for form in FORMS.values():
        tab = schema["tabs"][form.name]
        placed = tab["essentials"] + [name for section in tab["sections"] for name in section["names"]]
        assert sorted(placed) == sorted(form.specs)
        for name, spec in form.specs.items():
            assert (tab["differing"] | {}).get(name, schema["options"][name]) == json.loads(json.dumps(describe(spec)))


def test_no_two_models_of_a_form_have_an_option_of_the_same_name():
    for form in FORMS.values():
        names = [name for model in form.models for name in specs(model)]
        assert len(names) == len(set(names))


def test_it_is_small_and_harmless_in_a_page():
    assert len(schema_json().encode()) < MOST_BYTES
    assert "<" not in schema_json()


def test_families_have_their_traits(schema):
    assert set(schema["families"]) == set(FAMILIES)
    assert set(schema["families"]["flux"]["traits"]) == {"flow", "dit", "t5"}
    assert schema["tabs"]["textual_inversion"]["families"] == ["sd1", "sd2", "sdxl"]


def test_conditions_are_lists_or_set():
    spec = OptionSpec("a", "", str, None, "", "", "common", only_with={"b": SET, "c": True, "d": ("x", 2)})
    assert conditions(spec) == {"b": "set", "c": [True], "d": ["x", 2]}


def test_a_method_says_only_what_it_has_otherwise(schema):
    defaults = {
        name: schema["tabs"][name]["differing"].get("train_text_encoder", schema["options"]["train_text_encoder"])[
            "default"
        ]
        for name in ("dreambooth", "finetune")
    }
    assert defaults == {"dreambooth": True, "finetune": False}
    assert schema["tabs"]["lora"]["differing"] == {}
