"""A run whose loader processes are killed trains on the same batches to the same weights, and says what happened."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sd_scripts.entry import train
from sd_scripts.options.build import build
from sd_scripts.options.recipes import RECIPES
from sd_scripts.training.events import read_events
from sd_scripts.training.run_folder import RunFolder

RECIPE = RECIPES["train_network"]


@pytest.fixture
def settings(tmp_path, tiny_sd1, pictures) -> dict:
    return {
        "pretrained_model_name_or_path": str(tiny_sd1), "train_data_dir": str(pictures), "output_name": "tiny",
        "output_dir": str(tmp_path / "out"), "resolution": "64", "min_bucket_reso": 64, "train_batch_size": 2,
        "max_train_epochs": 4, "network_dim": 2, "learning_rate": 1e-2, "seed": 7, "log_with": "none",
        "cache_latents": False, "flip_aug": True,
    }  # fmt: skip


def run(settings: dict, **changes) -> tuple[dict[str, torch.Tensor], list[dict]]:
    options = build(RECIPE.options, settings | changes)
    assert train(RECIPE, options) == 0
    output = Path(options.output_dir)
    events = read_events(RunFolder(max((output / "runs").iterdir())).events)[0]
    return load_file(output / "tiny.safetensors"), events


def test_killed_loader_processes_change_nothing(settings, tmp_path):
    wanted, undisturbed = run(settings, output_dir=str(tmp_path / "undisturbed"), max_data_loader_n_workers=0)
    is_over = threading.Event()
    kills = []

    def kill() -> None:
        while not is_over.wait(0.2) and len(kills) < 3:
            for process in multiprocessing.active_children()[:1]:
                os.kill(process.pid, signal.SIGKILL)
                kills.append(process.pid)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        found, events = run(settings, max_data_loader_n_workers=1)
    finally:
        is_over.set()
        killer.join()
    assert kills
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)
    losses = [[event["loss"] for event in told if event["type"] == "step"] for told in (undisturbed, events)]
    assert losses[0] == losses[1]
    messages = [event["message"] for event in events if event["type"] == "warning"]
    assert any("a loader process was killed (SIGKILL" in message for message in messages)
    assert events[-1]["state"] == "done"
