"""Whole runs with every way to save memory: the same result as without it, in training and in samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from sd_scripts.entry import train
from sd_scripts.options.build import build
from sd_scripts.options.recipes import RECIPES
from sd_scripts.training.events import read_events
from sd_scripts.training.run_folder import RunFolder
from test.tiny import tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """Four levels, so that there are nine blocks as in the real model."""
    return tiny_model("sd1", tmp_path_factory.mktemp("models") / "four.safetensors", levels=4)


@pytest.fixture
def settings(tmp_path, model, pictures) -> dict:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a thing --w 64 --h 64 --s 3 --d 5\n", encoding="utf-8")
    return {
        "pretrained_model_name_or_path": str(model),
        "train_data_dir": str(pictures),
        "output_name": "tiny",
        "resolution": "64",
        "min_bucket_reso": 64,
        "train_batch_size": 2,
        "max_train_steps": 3,
        "learning_rate": 1e-2,
        "seed": 7,
        "log_with": "none",
        "sample_prompts": str(prompts),
        "sample_every_n_steps": 3,
    }


class Result:
    """What came of a run."""

    def __init__(self, settings: dict, output: Path, script: str = "train_network"):
        options = build(RECIPES[script].options, settings | {"output_dir": str(output)})
        assert train(RECIPES[script], options) == 0
        folder = max((output / "runs").iterdir())
        events = read_events(RunFolder(folder).events)[0]
        self.losses = [event["loss"] for event in events if event["type"] == "step"]
        self.weights = load_file(output / "tiny.safetensors")
        (picture,) = (output / "sample").glob("*.png")
        self.picture = np.asarray(Image.open(picture), dtype=np.float32)


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """Relative distance of all weights together."""
    assert a.keys() == b.keys()
    ours, theirs = (torch.cat([w[k].flatten().double() for k in a if not k.endswith("alpha")]) for w in (a, b))
    return float((ours - theirs).norm() / theirs.norm())


NETWORK = {"network_dim": 2}
BF16 = {"mixed_precision": "bf16"}
CACHED = {"cache_latents": True}


@pytest.mark.parametrize(
    "changes",
    [
        {"gradient_checkpointing": True},
        {"cpu_offload_checkpointing": True},
        {"unsloth_offload_checkpointing": True},
        {"blocks_to_swap": 1},
        {"blocks_to_swap": 7},
        {"blocks_to_swap": 4, "gradient_checkpointing": True},
        CACHED | {"highvram": True},
        CACHED | {"lowram": True, "blocks_to_swap": 3},
        {"sdpa": True, "mem_eff_attn": True},
        {"cuda_allow_tf32": True, "cuda_cudnn_benchmark": True},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_what_only_moves_things_changes_no_bit(settings, tmp_path, changes):
    base = settings | NETWORK | {name: value for name, value in changes.items() if name in CACHED}
    plain = Result(base, tmp_path / "plain")
    saving = Result(base | changes, tmp_path / "saving")
    assert saving.losses == plain.losses
    assert distance(saving.weights, plain.weights) == 0
    assert np.array_equal(saving.picture, plain.picture)
