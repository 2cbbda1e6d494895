"""Settings come from TOML and the command line with the same meaning, and go out so that they read back equal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sd_scripts.errors import UserError
from sd_scripts.options.build import build
from sd_scripts.options.cli import parse
from sd_scripts.options.problems import CheckFailed
from sd_scripts.options.recipes import RECIPES, NetworkTraining
from sd_scripts.options.schema import OptionSpec, specs
from sd_scripts.options.toml_files import read_settings, settings_toml, write_settings

ROOT = Path(__file__).resolve().parents[2]
RECIPE = RECIPES["train_network"]
NAMES = [name for name, spec in specs(NetworkTraining).items() if not spec.secret]  # secrets are never written


def other_value(spec: OptionSpec):
    """A legal value that is not the default."""
    if spec.is_flag:
        return not spec.default
    if spec.choices:
        return next(choice for choice in spec.choices if choice != spec.default)
    low = spec.minimum if spec.minimum is not None else (spec.exclusive_minimum or 0)
    number = {int: int(low) + 3, float: low + 0.25, str: 'büro "x" C:\\y\'z'}[spec.type]
    return [number, number] if spec.is_list else number


@pytest.mark.parametrize("name", NAMES)
def test_option_means_the_same_on_the_command_line_and_in_toml_and_reads_back_equal(name, tmp_path):
    value = other_value(specs(NetworkTraining)[name])
    texts = (
        [str(item) for item in value]
        if isinstance(value, list)
        else [str(value).lower() if isinstance(value, bool) else str(value)]
    )
    from_cli = parse(RECIPE, [f"--{name}", *texts]).options
    expected = build(NetworkTraining, {name: value})
    assert from_cli == expected
    assert getattr(expected, name) == value
    write_settings(tmp_path / "a.toml", expected)
    assert parse(RECIPE, ["--config_file", str(tmp_path / "a.toml")]).options == expected


def test_command_line_beats_file_even_with_the_default(tmp_path):
    (tmp_path / "a.toml").write_text('seed = 1\nloss_type = "l1"\n[x]\ncache_latents = false\n', encoding="utf-8")
    options = parse(RECIPE, ["--config_file", str(tmp_path / "a.toml"), "--loss_type", "l2", "--cache_latents"]).options
    assert (options.seed, options.loss_type, options.cache_latents) == (1, "l2", True)


def test_a_wrong_value_in_the_file_may_be_replaced_on_the_command_line(tmp_path):
    (tmp_path / "a.toml").write_text('loss_type = "l3"', encoding="utf-8")
    assert parse(RECIPE, ["--config_file", str(tmp_path / "a.toml"), "--loss_type", "l1"]).options.loss_type == "l1"


def test_zero_and_false_survive():
    options = parse(RECIPE, ["--text_encoder_lr", "0", "--max_grad_norm", "0", "--cache_latents=false"]).options
    assert (options.text_encoder_lr, options.max_grad_norm, options.cache_latents) == ([0.0], 0.0, False)
    assert "max_grad_norm = 0.0" in settings_toml(options)


def test_list_given_twice_is_merged():
    options = parse(RECIPE, ["--network_args", "a=1", "--network_args", "b=2", "c=3"]).options
    assert options.network_args == ["a=1", "b=2", "c=3"]


def test_file_name_may_lack_its_suffix_and_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "a.toml").write_text("seed = 5", encoding="utf-8-sig")
    assert read_settings(tmp_path / "a") == {"seed": 5}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("lr_warmpu_steps = 10", ["lr_warmpu_steps", "did you mean lr_warmup_steps", "a.toml"]),
        ("caption_extension = 5", ["caption_extension", "5", "a text", "a.toml"]),
        ("seed = \nx = 1", ["a.toml", "line 1", "column"]),
        ("[a.b]\nseed = 1", ["a.toml", "a.b"]),
        ("[[datasets]]\nresolution = 512", ["a.toml", "dataset_config"]),
    ],
)
def test_errors_name_file_key_and_remedy(content, words, tmp_path):
    (tmp_path / "a.toml").write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        parse(RECIPE, ["--config_file", str(tmp_path / "a.toml")])
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lr_warpmup_steps", "3"], ["lr_warpmup_steps", "did you mean lr_warmup_steps"]),
        (["--config_file", "nowhere.toml"], ["nowhere.toml", "no such file"]),
        (["stray"], ["stray"]),
        (["--seed"], ["seed"]),
    ],
)
def test_wrong_arguments_are_readable(arguments, words):
    with pytest.raises(UserError) as caught:
        parse(RECIPE, arguments)
    assert all(word in str(caught.value) for word in words)


def test_each_error_is_said_once():
    with pytest.raises(CheckFailed) as caught:
        parse(RECIPE, ["--loss_type", "hubber", "--seed", "-1"])
    assert sorted(problem.option for problem in caught.value.problems) == ["loss_type", "seed"]


@pytest.mark.parametrize("text", ["-5", "-0.5", "-.5", "-5e-1", "-1E+1"])
def test_negative_numbers_are_values(text):
    options = parse(RECIPES["sd3_train_network"], ["--logit_mean", text, "--optimizer_args", text, "a=1"]).options
    assert options.logit_mean == float(text)
    assert options.optimizer_args == [text, "a=1"]


def test_output_config_writes_what_was_given_and_never_overwrites(tmp_path):
    target = tmp_path / "new"
    arguments = ["--config_file", str(target), "--output_config", "--seed", "4", "--max_grad_norm", "0"]
    with pytest.raises(SystemExit) as left:
        parse(RECIPE, arguments)
    assert left.value.code == 0
    assert read_settings(tmp_path / "new.toml") == {"seed": 4, "max_grad_norm": 0.0}
    with pytest.raises(UserError, match="exists already"):
        parse(RECIPE, arguments)


def test_unknown_in_file_and_command_line_are_both_errors(tmp_path):
    (tmp_path / "a.toml").write_text("wrong_name = 1", encoding="utf-8")
    with pytest.raises(CheckFailed):
        parse(RECIPE, ["--config_file", str(tmp_path / "a.toml"), "--seed", "1"])


def run_python(*arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C"}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        cwd=ROOT,
        timeout=60,
    )


@pytest.mark.parametrize("start", [["sd_scripts/train_network.py"], ["-m", "sd_scripts.train_network"]])
def test_help_needs_no_torch_and_lists_every_option(start):
    done = run_python("-X", "importtime", *start, "--help")
    assert done.returncode == 0
    known = specs(NetworkTraining)
    assert all(f"--{name} " in done.stdout for name in NAMES if RECIPE.takes(known[name]))
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert not imported & {"torch", "numpy", "PIL", "diffusers", "transformers", "accelerate"}


def test_schema_is_cheap_to_import():
    code = (
        "import pydantic, time; t = time.process_time();"
        "from sd_scripts.options.cli import make_parser; from sd_scripts.options.recipes import RECIPES;"
        "make_parser(RECIPES['train_network']); print(time.process_time() - t)"
    )
    seconds = min(float(run_python("-c", code).stdout) for _ in range(3))
    assert seconds < 0.7  # 0.2 s on the machine it was written on; slow machines get room


def test_options_page_is_up_to_date():
    done = run_python("-m", "sd_scripts.options.page", "--check")
    assert done.returncode == 0, done.stderr
