"""A run that is killed without warning goes on from its last state as if nothing had happened."""

from __future__ import annotations

import subprocess
import sys
import time

import torch
from safetensors.torch import load_file

from test.conftest import ROOT, run_trainer, trainer_environment

STEPS, EVERY = 60, 4


def test_killed_and_resumed_equals_unbroken(tiny_sd1, pictures, tmp_path):
    def arguments(output: str, **more) -> list[str]:
        settings = {
            "pretrained_model_name_or_path": tiny_sd1, "train_data_dir": pictures, "output_dir": tmp_path / output,
            "output_name": "x", "resolution": 64, "min_bucket_reso": 64, "max_train_steps": STEPS, "network_dim": 2,
            "learning_rate": 1e-2, "seed": 5, "log_with": "none", "save_state": "true",
        } | more  # fmt: skip
        return [text for name, value in settings.items() for text in (f"--{name}", str(value))]

    assert run_trainer(*arguments("whole")).returncode == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "sd_scripts.train_network", *arguments("killed", save_every_n_steps=EVERY)],
        cwd=ROOT, env=trainer_environment(), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 200
    while not list((tmp_path / "killed").glob("x-step*-state")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    assert process.wait() != 0  # it was still running
    state = max((tmp_path / "killed").glob("x-step*-state"))
    assert run_trainer(*arguments("killed", resume=state)).returncode == 0
    whole, again = (load_file(tmp_path / output / "x.safetensors") for output in ("whole", "killed"))
    assert whole.keys() == again.keys()
    assert all(torch.equal(whole[key], again[key]) for key in whole)
