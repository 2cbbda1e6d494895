"""Whole runs of the full trainer: what is trained changes, what is not stays, and the file is a whole model again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from sd_scripts.entry import train
from sd_scripts.models.detect import inspect
from sd_scripts.options.build import build
from sd_scripts.options.recipes import RECIPES

RECIPE = RECIPES["fine_tune"]
UNET, TEXT, VAE = "model.diffusion_model.", "cond_stage_model.", "first_stage_model."


@pytest.fixture
def settings(tmp_path, tiny_sd1, pictures) -> dict:
    return {
        "pretrained_model_name_or_path": str(tiny_sd1),
        "train_data_dir": str(pictures),
        "output_dir": str(tmp_path / "out"),
        "output_name": "whole",
        "resolution": "64",
        "min_bucket_reso": 64,
        "train_batch_size": 4,
        "max_train_steps": 3,
        "learning_rate": 1e-3,
        "seed": 3,
        "log_with": "none",
    }


def run(settings: dict, recipe=RECIPE, **changes) -> Path:
    options = build(recipe.options, settings | changes)
    assert train(recipe, options) == 0
    return Path(options.output_dir) / "whole.safetensors"


def changed_parts(before: Path, after: Path) -> set[str]:
    first, second = load_file(before), load_file(after)
    assert first.keys() == second.keys()
    return {
        part
        for part in (UNET, TEXT, VAE)
        if any(not torch.equal(first[key], second[key]) for key in first if key.startswith(part))
    }


@pytest.mark.parametrize(
    ("changes", "trained"),
    [
        ({}, {UNET}),
        ({"train_text_encoder": True}, {UNET, TEXT}),
        ({"train_text_encoder": True, "learning_rate_te": 0}, {UNET}),
    ],
)
def test_what_is_trained_changes_and_the_rest_stays(settings, tiny_sd1, changes, trained):
    path = run(settings, **changes)
    assert changed_parts(tiny_sd1, path) == trained
    assert inspect(path).architecture == "sd1"
    with safe_open(path, "pt") as file:
        assert file.metadata()["modelspec.architecture"] == "stable-diffusion-v1"


def test_precision_of_the_file_and_of_the_average(settings, tmp_path):
    half = load_file(run(settings, save_precision="fp16"))
    assert {tensor.dtype for tensor in half.values()} == {torch.float16}
    plain = load_file(run(settings, output_dir=str(tmp_path / "plain")))
    average = load_file(run(settings, output_dir=str(tmp_path / "average"), ema_decay=0.5))
    key = f"{UNET}input_blocks.0.0.weight"
    assert not torch.equal(plain[key], average[key])


def test_resumed_equals_unbroken(settings, tmp_path):
    whole = load_file(run(settings, save_state=True))
    run(settings, output_dir=str(tmp_path / "first"), save_every_n_steps=2, save_state=True)
    state = tmp_path / "first" / "whole-step00000002-state"
    again = load_file(run(settings, output_dir=str(tmp_path / "second"), resume=str(state)))
    assert all(torch.equal(whole[key], again[key]) for key in whole)


def test_dreambooth_trains_the_text_encoder_along(settings, tiny_sd1):
    recipe = RECIPES["train_db"]
    assert changed_parts(tiny_sd1, run(settings, recipe)) == {UNET, TEXT}
    assert changed_parts(tiny_sd1, run(settings, recipe, train_text_encoder=False)) == {UNET}
