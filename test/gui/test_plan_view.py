"""The plan's panel and the marks at the fields."""

import re

from kohya_gui.form import SECTION_PREFIX
from kohya_gui.plan_view import marks_html, problems_html
from kohya_gui.planning import check
from sd_scripts.options.problems import error, note, warning
from test.gui.conftest import RECIPE
from test.gui.test_form import SPECS


def texts(style: str) -> dict[str, str]:
    """What a browser reads out of the style sheet: the field and the text under it."""
    found = re.findall(r'#([\w-]+)::after\{content:"((?:[^"\\]|\\.)*)"', style)
    return {name: re.sub(r"\\([0-9a-f]+) ", lambda m: chr(int(m[1], 16)), text) for name, text in found}


def test_each_problem_stands_under_its_field():
    style = marks_html([error("seed", "no number", "give one"), warning("vae", "not used")], SPECS)
    assert texts(style) == {"seed": "no number; give one.", "vae": "not used."}


def test_the_worst_problem_of_a_field_wins():
    style = marks_html([error("seed", "worst"), note("seed", "least")], SPECS)
    assert style.rindex("worst") > style.rindex("least")


def test_no_text_can_leave_the_style_sheet():
    evil = "\"}</style><script>alert(1)</script>\\ \n' 桌面 */ url(x)"
    style = marks_html([error("seed", evil)], SPECS)
    assert style.count("<") == 2 and "script" in texts(style)["seed"]
    assert texts(style)["seed"] == f"{evil}."


def test_the_section_of_a_closed_field_is_marked_too():
    style = marks_html([error("flip_aug", "bad")], SPECS)
    assert f"#{SECTION_PREFIX}size-and-buckets>" in style


def test_problems_without_a_field_are_listed_only():
    problems = [error(None, "the disk is full", "make room")]
    assert texts(marks_html(problems, SPECS)) == {}
    assert "the disk is full; make room." in problems_html(problems, SPECS)


def test_the_list_escapes_what_users_typed():
    assert "<b>x" not in problems_html([error("seed", "<b>x")], SPECS)


def test_a_wrong_value_keeps_a_run_from_starting():
    found = check(RECIPE, {"lr_scheduler": "cosin", "network_dim": "eight"})
    assert not found.can_start and found.plan is None
    assert "network_dim" in {p.option for p in found.problems}


def test_missing_essentials_keep_a_run_from_starting():
    found = check(RECIPE, {})
    wanted = {"pretrained_model_name_or_path", "train_data_dir", "output_dir"}
    assert wanted <= {p.option for p in found.problems if p.level == "error"}
    assert not found.can_start


def test_an_existing_file_is_asked_about(tmp_path):
    assert check(RECIPE, {"output_dir": str(tmp_path), "output_name": "cat"}).overwrites is None
    (tmp_path / "cat.safetensors").touch()
    assert check(RECIPE, {"output_dir": str(tmp_path), "output_name": "cat"}).overwrites == tmp_path / "cat.safetensors"
