"""Tiny random models in the real layouts of their architectures, made in well under a second.

from test.tiny import tiny_model
path = tiny_model("sd1", folder / "model.safetensors")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

TEXT_WIDTH = 16
WIDTHS = (32, 64, 96, 96)  # of the levels; as in the real models the last two are equal


def tiny_networks(architecture: str, seed: int = 0, levels: int = 2, layers: int = 1, text_layers: int = 2) -> Any:
    """An in-memory model of about a million weights besides the 49,408-word vocabulary, float32.

    Args:
        architecture: "sd1", "sd2" or "sdxl".
        seed: of the weights; the global random state stays as it was.
        levels: resolutions of the U-Net (the VAE always has four: eight pixels a latent).
        layers: resnets per level.
        text_layers: layers of the text encoder.
    """
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    from sd_scripts.models.sd import SDSettings, StableDiffusion1, StableDiffusion2
    from sd_scripts.models.sdxl import SDXL

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        unet = UNet2DConditionModel(**_unet(architecture, levels, layers))
        vae = AutoencoderKL(**_vae(architecture, layers))
        encoders = [CLIPTextModel(CLIPTextConfig(**_text("sd2" if architecture == "sd2" else "sd1", text_layers)))]
        if architecture == "sdxl":
            encoders.append(CLIPTextModelWithProjection(CLIPTextConfig(**_text("sd2", text_layers))))
    cls = {"sd1": StableDiffusion1, "sd2": StableDiffusion2, "sdxl": SDXL}[architecture]
    for network in (unet, vae, *encoders):
        network.eval().requires_grad_(False)
    return cls(unet, vae, *encoders, SDSettings())


def tiny_model(architecture: str, path: Path, dtype: torch.dtype | None = None, **sizes: int) -> Path:
    """Write a tiny model to a `.safetensors` or `.ckpt` file or a diffusers folder; `sizes` as in `tiny_networks`."""
    tiny_networks(architecture, **sizes).save(path, dtype, {})
    return path


def _unet(architecture: str, levels: int, layers: int) -> dict[str, Any]:
    attention = [level < max(1, levels - 1) for level in range(levels)]
    if architecture == "sdxl":
        return _sdxl_unet(levels, layers)
    return {
        "block_out_channels": WIDTHS[:levels],
        "layers_per_block": layers,
        "down_block_types": tuple("CrossAttnDownBlock2D" if a else "DownBlock2D" for a in attention),
        "up_block_types": tuple("CrossAttnUpBlock2D" if a else "UpBlock2D" for a in reversed(attention)),
        "cross_attention_dim": TEXT_WIDTH,
        "attention_head_dim": 8 if architecture == "sd1" else tuple(max(1, width // 64) for width in WIDTHS[:levels]),
        "use_linear_projection": architecture == "sd2",
        "upcast_attention": architecture == "sd2",
    }


def _sdxl_unet(levels: int, layers: int) -> dict[str, Any]:
    attention = [level > 0 for level in range(levels)]  # the finest level has none, each further one more layers
    return {
        "block_out_channels": WIDTHS[:levels],
        "layers_per_block": layers,
        "down_block_types": tuple("CrossAttnDownBlock2D" if a else "DownBlock2D" for a in attention),
        "up_block_types": tuple("CrossAttnUpBlock2D" if a else "UpBlock2D" for a in reversed(attention)),
        "transformer_layers_per_block": tuple(max(1, level) for level in range(levels)),
        "cross_attention_dim": 2 * TEXT_WIDTH,
        "attention_head_dim": tuple(max(1, width // 64) for width in WIDTHS[:levels]),
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": TEXT_WIDTH + 6 * 256,
    }


def _vae(architecture: str, layers: int) -> dict[str, Any]:
    levels = 4  # the program counts on eight pixels a latent
    return {
        "block_out_channels": WIDTHS,
        "layers_per_block": layers,
        "down_block_types": ("DownEncoderBlock2D",) * levels,
        "up_block_types": ("UpDecoderBlock2D",) * levels,
        "latent_channels": 4,
        "scaling_factor": 0.13025 if architecture == "sdxl" else 0.18215,
    }


def _text(architecture: str, layers: int) -> dict[str, Any]:
    return {
        "vocab_size": 49408,
        "hidden_size": TEXT_WIDTH,
        "intermediate_size": 2 * TEXT_WIDTH,
        "num_hidden_layers": layers,
        "num_attention_heads": 1,
        "hidden_act": "quick_gelu" if architecture == "sd1" else "gelu",
        "projection_dim": TEXT_WIDTH,
        "bos_token_id": 49406,
        "eos_token_id": 49407,
    }
