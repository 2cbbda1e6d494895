"""Run folders with a stand-in for the trainer, so that states and processes are tested without torch."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kohya_gui import launch
from kohya_gui.runs import Run, RunManager
from sd_scripts.options.build import build
from sd_scripts.options.launch import Launch
from sd_scripts.options.recipes import RECIPES

STUB = Path(__file__).with_name("stub_trainer.py")
RECIPE = RECIPES["train_network"]


@pytest.fixture
def stub(monkeypatch) -> Callable[[str], None]:
    """Makes `launch` start the stub instead of the trainer; call it with what the stub shall do."""

    def command(recipe, options, launched, config_file, run_dir):
        return [sys.executable, str(STUB), "--config_file", str(config_file), "--run_dir", str(run_dir)]

    monkeypatch.setattr(launch, "training_command", command)

    def acts(act: str) -> None:
        monkeypatch.setenv("STUB_ACT", act)

    acts("finish")
    return acts


@pytest.fixture
def manager(tmp_path) -> RunManager:
    manager = RunManager(tmp_path / "runs [a] (b) 桌面")
    yield manager
    for run in manager.runs():
        while not manager.find(run.name).is_over:
            manager.stop(run.name)


def options(**values):
    return build(RECIPE.options, {"output_name": "cat"} | values)


def submit(manager: RunManager, **values) -> Run:
    return manager.submit(RECIPE, options(**values), Launch())


def wait_for(manager: RunManager, name: str, wanted: Callable[[Run], bool], seconds: float = 20.0) -> Run:
    """Look at the runs as the supervising thread does, until one is as wanted."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        manager.advance()
        run = manager.find(name)
        if run is not None and wanted(run):
            return run
        time.sleep(0.05)
    raise AssertionError(f"{name} is {manager.find(name)}")
