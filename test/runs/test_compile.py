"""A compiled run is the same run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sd_scripts.entry import train
from sd_scripts.options.build import build
from sd_scripts.options.recipes import RECIPES
from sd_scripts.training.events import read_events
from sd_scripts.training.run_folder import RunFolder

RECIPE = RECIPES["train_network"]


def losses(settings: dict) -> list[float]:
    options = build(RECIPE.options, settings)
    assert train(RECIPE, options) == 0
    folder = max((Path(options.output_dir) / "runs").iterdir())
    return [event["loss"] for event in read_events(RunFolder(folder).events)[0] if event["type"] == "step"]


@pytest.fixture
def settings(tmp_path, tiny_sd1, pictures) -> dict:
    return {
        "pretrained_model_name_or_path": str(tiny_sd1),
        "train_data_dir": str(pictures),
        "resolution": "64",
        "min_bucket_reso": 64,
        "train_batch_size": 2,
        "max_train_steps": 3,
        "network_dim": 2,
        "network_dropout": 0.2,
        "learning_rate": 1e-2,
        "seed": 7,
        "log_with": "none",
    }


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "checkpointing"), [("eager", True), ("aot_eager", False)])
def test_a_compiled_run_has_the_losses_of_the_plain_one(settings, tmp_path, backend, checkpointing):
    settings = settings | {"gradient_checkpointing": checkpointing}
    plain = losses(settings | {"output_dir": str(tmp_path / "plain")})
    torch._dynamo.utils.counters.clear()
    compiled = losses(
        settings | {"output_dir": str(tmp_path / "compiled"), "torch_compile": True, "dynamo_backend": backend}
    )
    assert compiled == pytest.approx(plain, rel=1e-5)
    assert torch._dynamo.utils.counters["frames"]["ok"] > 0  # something was compiled
