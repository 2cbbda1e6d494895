"""What a look at a form finds, and how it is shown."""

import json

import pytest

from kohya_gui.form_schema import report_json
from kohya_gui.forms import FAMILY, FORMS
from kohya_gui.plan_view import problems_html
from kohya_gui.planning import check
from sd_scripts.options.network_arguments import NetworkArguments
from sd_scripts.options.problems import error
from sd_scripts.options.schema import specs
from test.tiny import tiny_model

LORA = FORMS["lora"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model("sd1", tmp_path_factory.mktemp("model") / "tiny.safetensors")


def of(checked, name):
    return [(problem.level, problem.message) for problem in checked.problems if problem.option == name]


def test_a_problem_leads_to_its_field():
    shown = problems_html([error("seed", "no number", "give one")], LORA)
    assert 'data-jump="seed"' in shown and "no number; give one." in shown


def test_problems_without_a_field_are_listed_only():
    shown = problems_html([error(None, "the disk is full", "make room"), error("no_such", "odd")], LORA)
    assert "the disk is full; make room." in shown and "data-jump" not in shown and "no_such" in shown


def test_the_list_escapes_what_users_typed():
    assert "<b>x" not in problems_html([error("seed", "<b>x")], LORA)


def test_the_report_names_fields_and_is_harmless_in_a_page():
    report = report_json(check(LORA, {"learning_rate": "</script>"}).report())
    assert "<" not in report
    (problem,) = [p for p in json.loads(report)["problems"] if p["option"] == "learning_rate"]
    assert problem["level"] == "error" and "</script>" in problem["text"]


def test_a_wrong_value_keeps_a_run_from_starting():
    found = check(LORA, {"lr_scheduler": "cosin", "network_dim": "eight"})
    assert not found.can_start and found.plan is None
    assert of(found, "network_dim")[0][0] == "error"


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_missing_essentials_keep_a_run_from_starting(form):
    found = check(form, {})
    wanted = {"pretrained_model_name_or_path", "train_data_dir", "output_dir"}
    assert wanted <= {p.option for p in found.problems if p.level == "error"}
    assert not found.can_start


def test_an_existing_file_is_asked_about(tmp_path):
    state = {"output_dir": str(tmp_path), "output_name": "cat"}
    assert check(LORA, state).overwrites is None
    (tmp_path / "cat.safetensors").touch()
    assert check(LORA, state).overwrites == tmp_path / "cat.safetensors"


def test_the_family_is_read_from_the_file_and_decides_on_the_trainer(model):
    found = check(LORA, {"pretrained_model_name_or_path": str(model), FAMILY: "flux"})
    assert found.family == "sd1" and found.recipe.script == "train_network"
    assert found.report()["asks"] is False and "1" in found.report()["label"]


@pytest.mark.parametrize(
    ("form", "family", "script"),
    [
        ("lora", "flux", "flux_train_network"),
        ("lora", "sdxl", "sdxl_train_network"),
        ("dreambooth", "sd1", "train_db"),
        ("dreambooth", "sdxl", "sdxl_train"),
        ("finetune", "sd2", "fine_tune"),
        ("textual_inversion", "sdxl", "sdxl_train_textual_inversion"),
    ],
)
def test_where_the_file_says_nothing_the_chosen_family_counts(form, family, script):
    found = check(FORMS[form], {FAMILY: family})
    assert found.family is None and found.report()["asks"] is True
    assert found.recipe.script == script


def test_dreambooth_trains_the_text_encoder_whichever_trainer_does_it():
    for family in ("sd1", "sdxl"):
        assert check(FORMS["dreambooth"], {FAMILY: family}).options.train_text_encoder is True
    assert check(FORMS["dreambooth"], {"train_text_encoder": False}).options.train_text_encoder is False


def test_items_of_the_adapter_are_gathered_in_their_list():
    found = check(LORA, {"conv_dim": "4", "conv_alpha": "0", "network_args": "'odd=a b'"})
    assert found.options.network_args == ["conv_dim=4", "conv_alpha=0.0", "odd=a b"]


def test_a_wrong_item_is_named_at_its_own_field(model):
    state = {"pretrained_model_name_or_path": str(model), "conv_dim": "four"}
    assert of(check(LORA, state), "conv_dim")[0][0] == "error"
    item = next(name for name, spec in specs(NetworkArguments).items() if name == "factor")
    found = check(LORA, {"pretrained_model_name_or_path": str(model), item: "7"})
    assert of(found, item) and not of(found, "network_args")


@pytest.mark.parametrize(
    "path", ["x" * 5000, "a" * 300, "con\n", "//////", "~nobody/x", "\\\\server\\share", "aux:", "\u202e"]
)
def test_odd_paths_are_problems_and_never_faults(path):
    names = [name for name, spec in LORA.specs.items() if spec.path]
    for name in names:
        assert not check(LORA, {name: path}).can_start
    assert not check(LORA, dict.fromkeys(names, path)).can_start
