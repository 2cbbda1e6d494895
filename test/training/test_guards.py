"""Numbers that are none: what is said about them, and how many steps may be left out."""

from __future__ import annotations

import math

import pytest
import torch
from PIL import Image

from sd_scripts.options.build import build
from sd_scripts.options.recipes import FullModelTraining, NetworkTraining
from sd_scripts.training.guards import NanGuard, NotFinite, all_finite, is_black, listed, out_of_memory, what_is_wrong
from sd_scripts.training.report import StepNumbers

NAMES = ("a.png", "b.png")


def numbers(loss: float = 1.0, norm: float | None = 1.0, latents: bool | None = None) -> StepNumbers:
    return StepNumbers(
        7, 1, torch.tensor(loss), None if norm is None else torch.tensor(norm),
        None if latents is None else torch.tensor(latents), NAMES,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (numbers(math.nan), ["step 7", "loss is nan", "a.png, b.png", "learning rate"]),
        (numbers(1.0, math.inf), ["gradient is inf", "a.png"]),
        (numbers(math.nan, latents=False), ["VAE", "a.png", "no_half_vae"]),
    ],
)
def test_what_is_said(wrong, words):
    assert all(word in what_is_wrong(wrong) for word in words)


def test_steps_are_left_out_up_to_a_number():
    guard = NanGuard(2)
    assert guard.accepts(numbers()) and guard.accepts(numbers(norm=None))
    assert not guard.accepts(numbers(math.nan)) and not guard.accepts(numbers(1.0, math.inf))
    assert guard.accepts(numbers())
    with pytest.raises(NotFinite, match="2 such steps were skipped"):
        guard.accepts(numbers(math.inf))


def test_names_are_listed_shortly():
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcdef")) == "a, b, c, d and 2 more"


def test_finite_and_black():
    assert all_finite([torch.ones(2), torch.zeros(1)]) and all_finite([])
    assert not all_finite([torch.ones(2), torch.tensor([math.inf])])
    assert is_black(Image.new("RGB", (4, 4))) and is_black(Image.new("L", (4, 4)))
    assert not is_black(Image.new("RGB", (4, 4), (0, 0, 1)))


def test_out_of_memory_names_what_is_left():
    bare = out_of_memory(build(FullModelTraining, {"train_batch_size": 4}))
    assert all(
        word in bare for word in ("gradient_checkpointing", "bf16", "8-bit", "train_batch_size", "fused_backward")
    )
    used = {
        "gradient_checkpointing": True,
        "mixed_precision": "bf16",
        "optimizer_type": "AdamW8bit",
        "cache_latents": True,
    }
    assert not any(word in out_of_memory(build(NetworkTraining, used)) for word in ("bf16", "8-bit", "cache_latents"))
    assert "\n" not in bare
