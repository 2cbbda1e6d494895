"""Attention, VAE pieces, fp16 weights, and where a model is read to: what options choose."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from sd_scripts.errors import ConfigError
from sd_scripts.models.attention import set_attention, takes_backends
from sd_scripts.models.detect import inspect
from sd_scripts.models.registry import load_architecture
from sd_scripts.models.vae_tiles import use_tiles
from sd_scripts.options.build import build
from sd_scripts.options.recipes import NetworkTraining
from sd_scripts.training.devices import allow_fp16_gradients, attention_mode, choose_attention
from sd_scripts.training.residence import loading_device, release_unused, settle
from test.conftest import ROOT
from test.tiny import tiny_networks

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def options(**values) -> NetworkTraining:
    return build(NetworkTraining, values)


@pytest.fixture(scope="module")
def transformer() -> nn.Module:
    from diffusers import FluxTransformer2DModel

    return FluxTransformer2DModel(
        in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=8, pooled_projection_dim=8, axes_dims_rope=(4, 6, 6),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ("sdpa", None)),
        ({"attn_mode": "flash"}, ("attn_mode", "flash")),
        ({"attn_mode": "torch", "xformers": True}, ("attn_mode", "torch")),
    ],
)
def test_one_option_decides_on_attention(values, expected):
    assert attention_mode(options(**values), CPU) == expected


def test_a_transformer_takes_the_package_that_is_there_and_says_which_is_not(transformer):
    assert takes_backends(transformer)
    for mode in ("torch", "sdpa"):
        set_attention(transformer, mode)
    architecture = SimpleNamespace(denoiser=transformer, device=CPU)
    with pytest.raises(ConfigError, match=r"attn_mode.*flash.*not usable.*flash-attn"):
        choose_attention(options(attn_mode="flash"), architecture)


def test_a_network_without_choice_refuses_all_but_pytorch():
    model = tiny_networks("sd1")
    choose_attention(options(attn_mode="sdpa"), model)
    with pytest.raises(ConfigError, match=r"attn_mode.*PyTorch's own"):
        choose_attention(options(attn_mode="xformers"), model)


def test_a_vae_in_pieces_makes_nearly_the_same_latents_and_pictures():
    """The norms see a piece instead of the picture: the larger the pieces, the nearer. With the demo's trained VAE."""
    path = ROOT / "models" / "demo" / "demo.safetensors"
    model = load_architecture(options(pretrained_model_name_or_path=str(path)), inspect(path), CPU, torch.float32)
    picture = Image.open(next((ROOT / "dataset" / "demo").rglob("*_01.png"))).convert("RGB").resize((256, 192))
    pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None].float() / 127.5 - 1
    with torch.no_grad():
        whole = model.encode_image(pixels)
        decoded = model.decode_latents(whole)
        for side, latents_off, levels_off in ((24, 0.1, 1), (16, 0.3, 3)):
            use_tiles(model.vae, side, model.latent.downscale)
            assert 0 < (model.encode_image(pixels) - whole).std() / whole.std() < latents_off
            assert 0 < (model.decode_latents(whole) - decoded).abs().mean() * 127.5 < levels_off
        small = pixels[..., :128, :128]
        at_once = model.encode_image(small)
        model.vae.disable_tiling()
        assert torch.equal(at_once, model.encode_image(small))  # no larger than a piece


def test_gradients_in_fp16_are_unscaled():
    weight = nn.Parameter(torch.ones(3, dtype=torch.float16))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale((weight * torch.tensor([1.0, 2.0, 3.0])).sum()).backward()
    with pytest.raises(ValueError, match="FP16"):
        scaler.unscale_(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    allow_fp16_gradients(scaler)
    scaler.scale(torch.zeros(()))  # sets it up
    scaler.unscale_(optimizer)
    assert weight.grad.tolist() == [1, 2, 3]
    scaler.step(optimizer)
    assert weight.tolist() == [0, -1, -2]


@pytest.mark.parametrize(
    ("values", "family", "expected"),
    [
        ({}, "sd1", GPU),
        ({"blocks_to_swap": 3}, "sd1", CPU),
        ({"blocks_to_swap": 3, "lowram": True}, "sd1", GPU),
        ({"fp8_base": True}, "flux", CPU),
        ({"fp8_base": True}, "anima", GPU),  # has no effect there
        ({"split_mode": True}, "flux", CPU),
        ({"split_mode": True}, "sd1", GPU),
    ],
)
def test_a_model_is_read_to_main_memory_if_the_device_is_not_to_hold_it_whole(values, family, expected):
    assert loading_device(options(**values), family, GPU) == expected


@pytest.mark.parametrize(
    ("values", "draws", "writes_base", "expected"),
    [
        ({"cache_latents": False}, False, False, "cpu"),
        ({}, False, False, "meta"),
        ({}, True, False, "cpu"),
        ({}, False, True, "cpu"),
    ],
)
def test_the_vae_is_let_go_when_nothing_needs_it(values, draws, writes_base, expected):
    model = tiny_networks("sd1")
    method = SimpleNamespace(trains_base_weights=writes_base)
    release_unused(options(**values), model, method, draws_samples=draws, writes_model=True)
    assert next(model.vae.parameters()).device.type == expected


@pytest.mark.parametrize("values", [{"blocks_to_swap": 1}, {"fp8_base": True}])
def test_weights_that_deepspeed_lays_out_are_left_to_it(values):
    model = tiny_networks("sd1")
    with pytest.raises(ConfigError, match="DeepSpeed and FSDP"):
        settle(options(**values), model, SimpleNamespace(), is_sharded=True)


def test_networks_at_hand_come_and_go():
    model = tiny_networks("sd1")
    model.vae.to("meta")
    model.device = torch.device("meta")  # the only other device there is everywhere
    encoder = model.text_encoders[0]
    with model.at_hand(model.vae):
        assert next(model.vae.parameters()).device.type == "meta"
    assert next(model.vae.parameters()).device.type == "meta"  # it was there before
    with pytest.raises(NotImplementedError), model.at_hand(encoder):
        assert next(encoder.parameters()).device.type == "meta"  # and from there nothing can come back
