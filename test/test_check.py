"""`python -m sd_scripts.check` answers for any file: with a plan, or with problems, never with a traceback."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sd_scripts import check
from sd_scripts.options.recipes import RECIPES
from sd_scripts.options.schema import specs

NAMES = sorted({name for recipe in RECIPES.values() for name in specs(recipe.options)})
GUI_KEYS = ["LoRA_type", "optimizer", "xformers", "epoch", "lr_warmup", "max_resolution", "sdxl", "conv_dim", "unit"]
PLAIN = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=30),
    st.sampled_from(["", "0", "1e-4", "None", "50%", "networks.lora", "cosine", "/", "..", "a=b", "{", "\x00"]),
)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
KEYS = st.sampled_from(NAMES + GUI_KEYS) | st.text(min_size=1, max_size=12)
OFTEN = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def answer(path: Path, capsys, *more: str) -> dict:
    """What the command prints, and that its exit code says whether there are errors."""
    code = check.main(["--config_file", str(path), "--json", *more])
    found = json.loads(capsys.readouterr().out)
    assert code == any(problem["level"] == "error" for problem in found["problems"])
    return found


@OFTEN
@given(content=st.dictionaries(KEYS, VALUES | st.none(), max_size=6))
def test_any_json_gets_an_answer(content, tmp_path, capsys):
    path = tmp_path / "any.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert answer(path, capsys)["problems"]


@OFTEN
@given(content=st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_toml_gets_an_answer(content, tmp_path, capsys):
    path = tmp_path / "any.toml"
    try:
        path.write_bytes(tomli_w.dumps(content).encode("utf-8", "surrogatepass"))
    except OverflowError:
        return  # a number that no TOML writer takes
    assert answer(path, capsys)["problems"]


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("empty.toml", b"", "no model is given"),
        ("bytes.toml", bytes(range(256)), "UTF-8"),
        ("bytes.json", bytes(range(256)), "bytes.json"),
        ("half.json", b'{"epoch": 3,\n "optimizer": ', "line 2"),
        ("half.toml", b'epoch = 3\noptimizer = "', "line 2"),
        ("deep.toml", b"a = " + b"[" * 5000 + b"]" * 5000, "deep"),
        ("deep.json", b"[" * 100000 + b"]" * 100000, "deep"),
        ("digits.toml", b"seed = " + b"9" * 9000, "digits"),
        ("list.json", b"[1, 2]", "list"),
        ("data.toml", b"[[datasets]]\nresolution = 512\n", "dataset_config"),
        ("folder.toml", None, "folder.toml"),
        ("missing.json", ..., "no such file"),
    ],
)
def test_what_is_no_settings_file_is_named(name, content, word, tmp_path, capsys):
    path = tmp_path / name
    if content is None:
        path.mkdir()
    elif content is not ...:
        path.write_bytes(content)
    assert any(word in problem["message"] for problem in answer(path, capsys)["problems"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with a name")
@pytest.mark.parametrize("name", ["pipe", "pipe.json", "pipe.toml"])
def test_a_pipe_is_not_waited_for(name, tmp_path, capsys):
    os.mkfifo(tmp_path / name)
    assert "no ordinary file" in answer(tmp_path / name, capsys)["problems"][0]["message"]


@pytest.mark.parametrize("name", ["much.json", "much.toml"])
def test_a_huge_file_is_not_read(name, tmp_path, capsys):
    with (tmp_path / name).open("wb") as file:
        file.truncate(2**40)  # a hole, not bytes
    assert "too much" in answer(tmp_path / name, capsys)["problems"][0]["message"]


@pytest.mark.parametrize(
    ("content", "trainer"),
    [
        ({"network_dim": 8, "LoRA_type": "Standard", "optimizer": "AdamW"}, "train_network"),
        ({"LoRA_type": "Standard", "sdxl": True, "optimizer": "AdamW", "unet_lr": 1e-4}, "sdxl_train_network"),
        ({"LoRA_type": "Flux1", "flux1_checkbox": True, "optimizer": "AdamW"}, "flux_train_network"),
        ({"network_module": "networks.lora", "learning_rate": 1e-4}, "train_network"),
        ({"token_string": "x", "init_word": "cat", "learning_rate": 1e-4}, "train_textual_inversion"),
        ({"prompts_file": "p.toml", "max_denoising_steps": 40, "network_dim": 4}, "train_leco"),
        ({"in_json": "meta.json", "learning_rate": 1e-6, "train_text_encoder": True}, "fine_tune"),
    ],
)
def test_the_trainer_is_told_from_what_is_set(content, trainer, tmp_path, capsys):
    path = tmp_path / "preset.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert answer(path, capsys)["trainer"] == trainer


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--trainer", "train_netwrok"], 'did you mean "train_network"'),
        (["--trainer"], "expected one argument"),
        (["--config_file"], "expected one argument"),
        (["--trainer", "fine_tune", "--seed"], "expected one argument"),
    ],
)
def test_a_wrong_command_line_is_one_readable_line(arguments, word, capsys):
    assert check.main(arguments) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert word in said[0]


def test_the_models_family_chooses_the_trainer(tiny_sd1, tmp_path, capsys):
    path = tmp_path / "s.toml"
    path.write_bytes(tomli_w.dumps({"pretrained_model_name_or_path": str(tiny_sd1), "network_dim": 4}).encode())
    assert answer(path, capsys)["trainer"] == "train_network"
    assert answer(path, capsys, "--trainer", "sdxl_train_network")["trainer"] == "sdxl_train_network"


def test_a_preset_of_the_known_gui_starts_as_it_is(tiny_sd1, pictures, tmp_path, capsys):
    """Launch settings and the GUI's own ways of saying things are no problem for the trainer."""
    path = tmp_path / "preset.json"
    preset = {
        "LoRA_type": "Kohya LoCon",
        "network_dim": 8,
        "network_alpha": "4",
        "conv_dim": 4,
        "conv_alpha": 2,
        "learning_rate": "1e-4",
        "max_resolution": "64,64",
        "min_bucket_reso": 64,
        "epoch": 2,
        "lr_warmup": 10,
        "lr_scheduler": "cosine",
        "num_processes": 1,
        "num_cpu_threads_per_process": 2,
        "pretrained_model_name_or_path": str(tiny_sd1),
        "train_data_dir": str(pictures),
        "output_dir": str(tmp_path / "out"),
        "optimizer": "AdamW",
        "stop_text_encoder_training": 0,
        "xformers": "sdpa",
    }
    path.write_text(json.dumps(preset), encoding="utf-8")
    found = answer(path, capsys)
    assert [problem for problem in found["problems"] if problem["level"] != "note"] == []
    assert found["steps"]["epochs"] == 2
    assert found["trained"][0]["modules"] > 0
