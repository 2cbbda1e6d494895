"""The launch command and the run folder's first files."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from kohya_gui import launch
from kohya_gui.paths import PROJECT_ROOT
from sd_scripts.options.launch import Launch
from sd_scripts.options.toml_files import read_settings
from test.gui.conftest import RECIPE, options, submit, wait_for

ODD = ["$(touch pwned)", "a b [c] (d)", "桌面 🎨", 'it\'s "quoted" #1 %PATH% `x` ; touch pwned', "--config_file"]


def test_the_command_is_accelerate_with_the_trainers_script(tmp_path):
    config, run = tmp_path / "config.toml", tmp_path
    command = launch.training_command(RECIPE, options(mixed_precision="bf16"), Launch(), config, run)
    assert command[:4] == [sys.executable, "-m", "accelerate.commands.launch", "--quiet"]
    assert "--mixed_precision=bf16" in command
    script = PROJECT_ROOT / "sd_scripts" / "train_network.py"
    assert command[-5:] == [str(script), "--config_file", str(config), "--run_dir", str(run)]


@pytest.mark.parametrize("odd", ODD)
def test_odd_paths_reach_the_settings_file_unchanged(tmp_path, odd):
    run = launch.prepare(tmp_path / odd, RECIPE, options(train_data_dir=f"/data/{odd}", output_dir=odd), Launch())
    settings = read_settings(run.config)
    assert settings["train_data_dir"] == f"/data/{odd}"
    assert settings["output_dir"] == odd
    argv = json.loads((run.path / "queued.json").read_text(encoding="utf-8"))["argv"]
    assert argv[-1] == str(run.path)
    assert run.read_status().state == "queued"


@pytest.mark.parametrize("odd", ODD[:4])
def test_no_shell_sees_a_value(tmp_path, odd, stub, monkeypatch):
    from kohya_gui.runs import RunManager

    monkeypatch.chdir(tmp_path)
    manager = RunManager(tmp_path / odd / "runs")
    run = submit(manager, output_name="x", train_data_dir=odd)
    wait_for(manager, run.name, lambda r: r.status.state == "done")
    assert not list(tmp_path.rglob("pwned"))
    assert not (PROJECT_ROOT / "pwned").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX quoting")
def test_the_shown_command_pastes_back_to_the_same_arguments():
    command = ["python", "/a b/$(touch pwned).toml", "桌面"]
    assert shlex.split(launch.command_text(command)) == command


def test_the_trainer_finds_the_project_and_speaks_utf8(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    env = launch.trainer_environment()
    assert env["PYTHONPATH"].startswith(str(PROJECT_ROOT)) and env["PYTHONPATH"].endswith("/elsewhere")
    assert env["PYTHONUTF8"] == "1" and env["PYTHONUNBUFFERED"] == "1"


def test_the_settings_are_those_of_the_form(tmp_path):
    run = launch.prepare(tmp_path, RECIPE, options(network_dim=16, learning_rate=0.5, run_dir="elsewhere"), Launch())
    assert read_settings(run.config) == {"network_dim": 16, "learning_rate": 0.5, "output_name": "cat"}
    assert "python" in run.versions.read_text(encoding="utf-8")
    assert "accelerate.commands.launch" in run.command.read_text(encoding="utf-8")
    assert Path(run.path).parent == tmp_path
