"""An option without effect is said to be one, and one whose code is to come is refused; nothing is silently ignored."""

from pathlib import Path
from typing import ClassVar

import pytest

import sd_scripts
from sd_scripts.options.build import build, try_build
from sd_scripts.options.effect import check_effect
from sd_scripts.options.objective import Flow
from sd_scripts.options.recipes import RECIPES, FullModelTraining, NetworkTraining
from sd_scripts.options.schema import SET, Options, option


class Sample(Options):
    title: ClassVar[str] = "Sample"

    plain: int = option(1, help="")
    for_flow: float = option(1.0, only_for=("flow",), help="")
    for_two: float = option(1.0, only_for=("sdxl", "flow"), help="")
    with_plain: bool = option(False, only_with={"name": SET}, help="")
    with_kinds: int = option(0, only_with={"name": ("Huber", "smooth")}, help="")
    without_plain: int = option(0, only_with={"with_plain": False}, help="")
    name: str | None = option(None, help="", formerly=("old_name",))
    later: int = option(0, available=False, help="")


CASES = [
    ({"plain": 5}, ("sd1",), []),
    ({"for_flow": 2}, ("sd1",), [("for_flow", "warning", "SD3")]),
    ({"for_flow": 2}, ("flux",), []),
    ({"for_flow": 1.0}, ("sd1",), []),  # its default: nobody asked for anything
    ({"for_two": 2}, ("sd1", "sd2"), [("for_two", "warning", "SDXL")]),
    ({"for_two": 2}, ("sdxl",), []),
    ({"with_plain": True}, ("sd1",), [("with_plain", "warning", "without name")]),
    ({"with_plain": True, "name": "x"}, ("sd1",), []),
    ({"with_kinds": 2, "name": "other"}, ("sd1",), [("with_kinds", "warning", "unless name is Huber or smooth")]),
    ({"with_kinds": 2, "name": "HUBER"}, ("sd1",), []),
    (
        {"without_plain": 2, "with_plain": True, "name": "x"},
        ("sd1",),
        [("without_plain", "warning", "with with_plain")],
    ),
    ({"later": 3}, ("sd1",), [("later", "error", "not yet available")]),
    ({"later": 0}, ("sd1",), []),
]


@pytest.mark.parametrize(("given", "families", "expected"), CASES)
def test_what_is_given_in_vain_is_said(given, families, expected):
    found = list(check_effect(build(Sample, given), families))
    assert [(problem.option, problem.level) for problem in found] == [(name, level) for name, level, _ in expected]
    for problem, (_, _, word) in zip(found, expected, strict=True):
        assert word.replace("SD3", "Stable Diffusion 3") in str(problem)


def test_a_former_name_is_taken_with_a_note_and_loses_to_the_current_one():
    options, problems = try_build(Sample, {"old_name": "x"})
    assert options.name == "x"
    assert [(problem.level, problem.option) for problem in problems] == [("note", "old_name")]
    options, _ = try_build(Sample, {"old_name": "x", "name": "y"})
    assert options.name == "y"


def test_another_trainers_option_is_a_warning_and_a_misspelt_one_an_error():
    options, problems = try_build(FullModelTraining, {"network_dim": 8, "learning_rate": 1e-5})
    assert options.learning_rate == 1e-5
    assert [(problem.level, problem.option) for problem in problems] == [("warning", "network_dim")]
    assert "train_network.py" in problems[0].message
    options, problems = try_build(NetworkTraining, {"netwrk_dim": 8})
    assert options is None
    assert [(problem.level, problem.remedy) for problem in problems] == [("error", "did you mean network_dim?")]


def test_launch_options_are_no_trainers():
    _, problems = try_build(NetworkTraining, {"num_processes": 2})
    assert [(problem.level, problem.option) for problem in problems] == [("warning", "num_processes")]
    assert "launch" in problems[0].message


def test_each_trainer_has_a_script_that_names_it():
    folder = Path(sd_scripts.__file__).parent
    for script in RECIPES:
        assert f'main("{script}")' in (folder / f"{script}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", ["a" * 256, "folder/" + "ü" * 128 + "/x", "C:\\" + "a" * 300, "a\0b", "a/" * 3000])
def test_what_can_be_no_path_is_said_before_anything_touches_the_disk(path):
    options, problems = try_build(NetworkTraining, {"train_data_dir": path})
    assert options is None
    assert [(problem.level, problem.option) for problem in problems] == [("error", "train_data_dir")]


def test_an_unset_option_counts_as_what_is_usual_for_the_family():
    shift = {"discrete_flow_shift": 2.0}
    assert not [p for p in check_effect(Flow(**shift), ("lumina",)) if p.option == "discrete_flow_shift"]
    (problem,) = check_effect(Flow(**shift), ("anima",))  # sigmoid, which has no fixed shift
    assert "timestep_sampling" in problem.message
