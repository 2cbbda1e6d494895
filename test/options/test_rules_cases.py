"""Every rule by itself: where it speaks (of which option, how loudly), and where it is silent."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from sd_scripts.options.build import build
from sd_scripts.options.families import FAMILIES
from sd_scripts.options.recipes import RECIPES
from sd_scripts.options.rules import RULES, _asked, network, output, precision
from sd_scripts.options.sizes import DIVISORS
from test.options.rules import captions as captions_cases
from test.options.rules import data as data_cases
from test.options.rules import loss as loss_cases
from test.options.rules import model as model_cases
from test.options.rules import network as network_cases
from test.options.rules import optimizer as optimizer_cases
from test.options.rules import output as output_cases
from test.options.rules import precision as precision_cases

METHODS = {recipe.method: recipe.options for recipe in RECIPES.values()}
SUBJECTS = (
    model_cases, data_cases, captions_cases, network_cases, optimizer_cases, precision_cases, loss_cases, output_cases,
)  # fmt: skip

# rule, method, families, options, and what is found: the option and the level, or nothing
# "{file}" and "{folder}" are there, "{state}" is a saved state, anything else is not
CASES = [case for subject in SUBJECTS for case in subject.CASES]


@pytest.fixture
def nothing_is_installed(monkeypatch) -> None:
    """None of the packages that rules ask for."""
    there = importlib.util.find_spec
    missing = {"xformers", "flash_attn", "sageattention", "deepspeed", "tensorboard", "wandb"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else there(name))


@pytest.fixture
def places(tmp_path) -> dict[str, str]:
    """What the cases call files and folders."""
    for name in ("folder", "state"):
        (tmp_path / name).mkdir()
    (tmp_path / "file.txt").touch()
    for name in ("train_state.json", "events.jsonl", "old.safetensors"):
        (tmp_path / "state" / name).touch()
    return {"file": str(tmp_path / "file.txt"), "folder": str(tmp_path / "folder"), "state": str(tmp_path / "state")}


def placed(value, places: dict[str, str]):
    if isinstance(value, list):
        return [placed(item, places) for item in value]
    return value.format_map(places) if isinstance(value, str) and "{" in value else value


def names() -> Iterator[str]:
    for rule, method, families, values, found in CASES:
        what = "-".join([*values, found[1] if found else "silent"])
        yield f"{rule.__name__}-{method}-{families if isinstance(families, str) else '+'.join(families)}-{what}"


@pytest.mark.usefixtures("nothing_is_installed")
@pytest.mark.parametrize(("rule", "method", "families", "values", "expected"), CASES, ids=list(names()))
def test_rule(places, rule, method, families, values, expected):
    options = build(METHODS[method], {name: placed(value, places) for name, value in values.items()})
    problems = _asked(rule, options, (families,) if isinstance(families, str) else families)
    assert [(problem.option, problem.level) for problem in problems] == ([expected] if expected else [])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_rule_has_a_case_in_which_it_speaks_and_one_in_which_it_is_silent(rule):
    outcomes = {found is None for other, _, _, _, found in CASES if other is rule}
    assert outcomes == {True, False}


def test_packages_that_are_installed_are_no_problem(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    for rule, family, values in (
        (precision.xformers_is_installed, "sd1", {"xformers": True}),
        (precision.attention_can_train, "anima", {"attn_mode": "flash"}),
        (precision.attention_can_train, "lumina", {"use_flash_attn": True}),
        (precision.deepspeed_is_ready, "sd1", {"deepspeed": True, "offload_optimizer_device": "cpu"}),
        (output.trackers_are_installed, "sd1", {}),
    ):
        assert _asked(rule, build(METHODS["adapter"], values), (family,)) == []
    offloaded = {"deepspeed": True, "offload_param_device": "nvme"}
    (problem,) = _asked(precision.deepspeed_is_ready, build(METHODS["adapter"], offloaded), ("sd1",))
    assert problem.option == "offload_param_nvme_path"


def test_every_family_has_what_rules_know_of_families():
    assert set(DIVISORS) == set(network.ENCODERS) == set(FAMILIES)
    assert set(precision.MOST_BLOCKS) == set(FAMILIES)
