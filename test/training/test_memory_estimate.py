"""What the plan says of memory follows the options."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sd_scripts.models.detect import inspect
from sd_scripts.options.build import build
from sd_scripts.options.recipes import FullModelTraining, NetworkTraining
from sd_scripts.training.memory_estimate import memory_need, share_away
from test.tiny import tiny_model

LORA = {"unet": 30_000, "te1": 10_000}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return inspect(tiny_model("sd1", tmp_path_factory.mktemp("models") / "four.safetensors", levels=4))


def need(model, recipe=NetworkTraining, trained=LORA, data=None, **values):
    return memory_need(build(recipe, values), model, trained, data)


@pytest.mark.parametrize(
    ("values", "unet", "te", "vae"),
    [
        ({"cache_latents": False}, 4, 4, 4),
        ({}, 4, 4, 0),
        ({"mixed_precision": "bf16"}, 2, 2, 0),
        ({"mixed_precision": "bf16", "cache_latents": False, "no_half_vae": True}, 2, 2, 4),
        ({"mixed_precision": "bf16", "fp8_base": True}, 1, 1, 0),
        ({"mixed_precision": "bf16", "fp8_base_unet": True}, 1, 2, 0),
        ({"mixed_precision": "bf16", "cache_text_encoder_outputs": True}, 2, 0, 0),
    ],
)
def test_frozen_weights_take_what_their_format_takes(model, values, unet, te, vae):
    counts = model.parameters()
    assert need(model, **values).weights == unet * counts["unet"] + te * counts["te1"] + vae * counts["vae"]


@pytest.mark.parametrize(
    ("values", "bytes_each"),
    [
        ({}, 4 + 4 + 8),
        ({"ema_decay": 0.9}, 4 + 4 + 8 + 4),
        ({"mixed_precision": "bf16", "full_bf16": True, "optimizer_type": "AdamW8bit"}, 2 + 2 + 2),
        ({"optimizer_type": "Prodigy"}, 4 + 4 + 16),
    ],
)
def test_an_adapter_takes_weights_gradients_and_optimizer_state(model, values, bytes_each):
    assert need(model, **values).training == 40_000 * bytes_each


def test_a_whole_model_is_counted_once_and_in_the_format_it_trains_in(model):
    counts = model.parameters()
    whole = {"unet": counts["unet"]}
    found = need(model, FullModelTraining, whole, mixed_precision="bf16")
    assert found.weights == 4 * (counts["unet"] + counts["te1"])
    assert found.training == (4 + 8) * counts["unet"]
    fused = need(
        model, FullModelTraining, whole, mixed_precision="bf16", full_bf16=True, fused_backward_pass=True,
        optimizer_type="Adafactor",
    )  # fmt: skip
    assert fused.weights == 2 * (counts["unet"] + counts["te1"])
    assert fused.training == pytest.approx(0.1 * counts["unet"], rel=1e-3)


def test_swapped_blocks_are_away(model):
    options = build(NetworkTraining, {"blocks_to_swap": 7})
    blocks = sum(n for name, n in sizes(model).items() if name.split("_")[0] in ("down", "mid", "up"))
    assert share_away(options, model) == pytest.approx(7 / 9 * blocks / model.parameters()["unet"])
    assert share_away(build(NetworkTraining, {"split_mode": True}), model) == 0  # is for FLUX


def sizes(model) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, shape in model.shapes["unet"].items():
        size = 1
        for side in shape:
            size *= side
        found[name.split(".")[0]] = found.get(name.split(".")[0], 0) + size
    return found


@pytest.mark.parametrize(
    ("values", "bytes_a_pixel"),
    [
        ({"mixed_precision": "fp16"}, 4900),
        ({}, 7450),
        ({"mixed_precision": "bf16", "gradient_checkpointing": True}, 1150),
        ({"mixed_precision": "bf16", "cpu_offload_checkpointing": True}, 1150),
    ],
)
def test_activations_are_those_of_the_largest_batch(model, values, bytes_a_pixel):
    def group(width: int, height: int, batch_size: int) -> SimpleNamespace:
        return SimpleNamespace(bucket=(width, height), batch_size=batch_size)

    data = SimpleNamespace(groups=(group(512, 512, 2), group(640, 384, 4), group(64, 64, 1)))
    found = need(model, data=data, **values)
    assert found.activations == 640 * 384 * 4 * bytes_a_pixel
    assert found.total == found.weights + found.training + found.activations
    assert f"{found.activations / 2**30:.2f} for activations" in str(found)


def test_without_pictures_activations_are_left_open(model):
    assert need(model).activations is None
    assert "activations come on top" in str(need(model))
