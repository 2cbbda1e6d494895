"""Damaged or foreign states end in one readable line; a termination signal writes the weights first."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sd_scripts.errors import UserError
from sd_scripts.training.run_folder import RunFolder
from test.conftest import ROOT, trainer_environment
from test.runs.test_train_network import run, settings  # noqa: F401 - settings is a fixture


@pytest.fixture
def state(settings, tmp_path) -> Path:  # noqa: F811
    output, _ = run(settings, max_train_epochs=None, max_train_steps=2, save_state=True)
    return output / "tiny-state"


def change_steps(state: Path, value) -> None:
    content = json.loads((state / "train_state.json").read_text(encoding="utf-8"))
    (state / "train_state.json").write_text(json.dumps(content | {"current_step": value}), encoding="utf-8")


DAMAGE = {
    "empty weights": lambda state: (state / "model.safetensors").write_bytes(b""),
    "cut optimizer": lambda state: (state / "optimizer.bin").write_bytes((state / "optimizer.bin").read_bytes()[:500]),
    "empty schedule": lambda state: (state / "scheduler.bin").write_bytes(b""),
    "no number": lambda state: change_steps(state, "three"),
    "finished": lambda state: change_steps(state, 99),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_state(settings, state, tmp_path, damage):  # noqa: F811
    DAMAGE[damage](state)
    with pytest.raises(UserError, match="tiny-state") as caught:
        run(settings, output_dir=str(tmp_path / "again"), resume=str(state))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("choice", "are_new"), [("settings", True), ("state", False)])
def test_whose_rates_act_after_a_resume_is_a_choice(settings, state, tmp_path, choice, are_new):  # noqa: F811
    changed = {"learning_rate": 1e-5, "resume_learning_rate": choice}
    _, events = run(settings, output_dir=str(tmp_path / "again"), resume=str(state), **changed)
    rates = {rate for event in events if event["type"] == "step" for rate in event["lr"].values()}
    assert rates and all((rate == pytest.approx(1e-5)) is are_new for rate in rates)


def test_run_folder_of_another_run_is_refused(settings, tmp_path):  # noqa: F811
    run(settings, run_dir=str(tmp_path / "run"))
    with pytest.raises(UserError, match="another run"):
        run(settings, run_dir=str(tmp_path / "run"))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no termination signal")
def test_termination_writes_the_weights(settings, tmp_path):  # noqa: F811
    folder = RunFolder(tmp_path / "run").make()
    given = settings | {"max_train_epochs": 500, "run_dir": folder.path}
    arguments = [text for name, value in given.items() for text in (f"--{name}", str(value))]
    process = subprocess.Popen(
        [sys.executable, "-m", "sd_scripts.train_network", *arguments],
        cwd=ROOT,
        env=trainer_environment(),
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (folder.read_status() and folder.read_status().step):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    assert folder.read_status().state == "stopped"
    assert (Path(settings["output_dir"]) / "tiny.safetensors").exists()
    shutil.rmtree(folder.path)
