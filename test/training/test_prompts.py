"""Sample prompt files: what each form means, and one line for every mistake."""

import gzip
import json
from pathlib import Path

import pytest

from sd_scripts.errors import UserError
from sd_scripts.options.output import Samples
from sd_scripts.training.prompts import SAMPLERS, SamplePrompt, parse_line, read_prompts

GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "tokens.json.gz"
CASES = {
    case["inputs"]["line"]: case["expected"]["value"]
    for case in json.loads(gzip.decompress(GOLDEN.read_bytes()))
    if case["kind"] == "sample_prompt_line"
}
OURS = {  # where the reference loses text or a number silently, which is a defect
    "x --ss euler_a --g 3.5 --fs 3.0": {"flow_shift": 3.0},  # a number, not its text
    "neg --n has -- dashes --h 64": {"negative_prompt": "has -- dashes"},  # two dashes alone are no mark
}
REFUSED = "q --ctr 0.25 --rcfg 1.0 --d abc"  # the reference drops the seed


@pytest.mark.parametrize("line", [line for line in CASES if line != REFUSED])
def test_golden_lines(line):
    assert parse_line(line) == CASES[line] | OURS.get(line, {})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (REFUSED, "line 3: --d 'abc' must be a whole number"),
        ("a --w 1e3", "line 3: --w '1e3' must be a whole number"),
        ("a --w", "line 3: --w '' must be a whole number"),
        ("a --d -1", "line 3: --d '-1' must be a whole number"),
        ("a --l 7,5", "line 3: --l '7,5' must be a number"),
        ("a --ss eulr", "line 3: --ss 'eulr' must be one of ddim"),
        ("a --wide 3", "line 3: unknown mark --wide; known are --n, --w"),
        ("--w 64 a cat", "line 3 starts with a mark"),
    ],
)
def test_mistakes_name_the_line(tmp_path, line, expected):
    path = tmp_path / "p.txt"
    path.write_text(f"# ours\na cat\n{line}\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_prompts(path, 8)
    assert str(caught.value).startswith(f"p.txt, {expected}")
    assert "\n" not in str(caught.value)


def test_a_text_file(tmp_path):
    path = tmp_path / "p.txt"
    path.write_text("\ufeff# comment\n\na cat --W 650 --h 40 --s 2000\n  Ein Hündchen, --n böse\n", encoding="utf-8")
    first, second = read_prompts(path, 64, size=128, steps=20, scale=5)
    assert (first.prompt, first.width, first.height, first.steps, first.scale) == ("a cat", 640, 64, 1000, 5)
    assert first.notes == (
        "p.txt, line 3: width 650 becomes 640 (at least 64, a multiple of 64)",
        "p.txt, line 3: height 40 becomes 64 (at least 64, a multiple of 64)",
        "p.txt, line 3: 2000 steps, 1000 are drawn",
    )
    assert second == SamplePrompt("Ein Hündchen,", "böse", 128, 128, 20, 5)


@pytest.mark.parametrize(
    ("text", "is_prompts"),
    [
        ("a cat --w 64", True),
        ("a cat\na dog.txt", True),
        ("x" * 5000, True),
        ("gone.txt", False),
        ("gone.JSON", False),
        ("HERE", False),
        (None, False),
    ],
)
def test_prompts_may_stand_in_the_option_itself(tmp_path, text, is_prompts):
    here = tmp_path / "prompts"
    here.write_text("a cat", encoding="utf-8")
    text = str(here) if text == "HERE" else text
    assert Samples(sample_prompts=text).prompt_lines == (text if is_prompts else None)


def test_lines_of_text_are_read_like_a_text_file():
    first, second = read_prompts("# ours\na cat --d 7\n\na dog --w 64\n", 8)
    assert (first.prompt, first.seed, second.prompt, second.width) == ("a cat", 7, "a dog", 64)
    with pytest.raises(UserError, match=r"^sample_prompts, line 2: unknown mark --q"):
        read_prompts("a cat\na dog --q 3", 8)


def test_a_toml_file(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(
        '[prompt]\nwidth = 256\nscale = 5\n[[prompt.subset]]\nprompt = "a -- b --w 3"\nseed = 0\n'
        '[[prompt.subset]]\nprompt = "c"\nsample_sampler = "k_euler"\nguidance_scale = 3.5\n',
        encoding="utf-8",
    )
    first, second = read_prompts(path, 8)
    assert (first.prompt, first.width, first.height, first.seed) == ("a -- b --w 3", 256, 512, 0)
    assert (second.sampler, second.scale, dict(second.extra)) == ("k_euler", 5, {"guidance_scale": 3.5})


def test_a_json_file(tmp_path):
    path = tmp_path / "p.json"
    entries = ["a cat --d 7", {"prompt": "b", "width": 64, "scale": 1.5}]
    path.write_text(json.dumps(entries), encoding="utf-8")
    first, second = read_prompts(path, 8)
    assert (first.prompt, first.seed) == ("a cat", 7)
    assert (second.prompt, second.width, second.scale) == ("b", 64, 1.5)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("p.toml", "[prompt\n", "is no valid TOML"),
        ("p.toml", "x = 1\n", r"needs a \[prompt\] table"),
        ("p.toml", "[prompt]\nseed = 1\n[[prompt.subset]]\nseed = 2\n", "subset 1: seed is in .prompt. too"),
        ("p.toml", '[prompt]\nprompt = "a"\nwidht = 3\n', "subset 1: unknown key 'widht'; did you mean width?"),
        ("p.toml", '[prompt]\nprompt = "a"\nwidth = 3.5\n', "width '3.5' must be a whole number"),
        ("p.json", "{", "is no valid JSON"),
        ("p.json", "{}", "must hold a list"),
        ("p.json", "[3]", "entry 1 must be a text or an object"),
        ("p.txt", b"\xff\xfe\x00", "is not UTF-8 text"),
    ],
)
def test_bad_files(tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    with pytest.raises(UserError, match=expected):
        read_prompts(path, 8)


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        read_prompts(tmp_path / "none.txt", 8)


def test_sampler_names_are_those_that_exist():
    from sd_scripts.models import sampling

    assert set(SAMPLERS) == {*sampling.SAMPLERS, *sampling.ALIASES}
