"""Library configurations of SD networks, read off the shapes of their weights. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sd_scripts.errors import UserError
from sd_scripts.models.keymaps.core import Shape, count_indices
from sd_scripts.models.keymaps.unet import UNetShape
from sd_scripts.models.keymaps.vae import VAEShape

SIZE_WIDTH = 256  # SDXL: numbers that encode each of the six sizes
NORM_GROUPS = 32  # of the group norms of every real model; nothing in the weights tells
CLIP_HEAD_WIDTH = 64
SD1_HEADS = 8  # SD 1.x: as many heads everywhere; SD 2.x: heads of one width
SD2_HEAD_WIDTH = 64

Shapes = Mapping[str, Shape]


def unet_config(shapes: Shapes, architecture: str) -> dict[str, Any]:
    """Arguments of UNet2DConditionModel, from diffusers' tensor names and shapes."""
    layout = UNetShape.of_library(shapes)
    levels = range(len(layout.attention))
    channels = [_need(shapes, f"down_blocks.{i}.resnets.0.conv1.weight")[0] for i in levels]
    groups = norm_groups("U-Net", channels)
    attention = "mid_block.attentions.0"  # every SD U-Net has one there
    down = tuple("CrossAttnDownBlock2D" if a else "DownBlock2D" for a in layout.attention)
    up = tuple("CrossAttnUpBlock2D" if a else "UpBlock2D" for a in reversed(layout.attention))
    return {
        "in_channels": _need(shapes, "conv_in.weight")[1],
        "out_channels": _need(shapes, "conv_out.weight")[0],
        "block_out_channels": tuple(channels),
        "layers_per_block": layout.layers,
        "down_block_types": down,
        "up_block_types": up,
        "cross_attention_dim": _need(shapes, f"{attention}.transformer_blocks.0.attn2.to_k.weight")[1],
        "attention_head_dim": SD1_HEADS
        if architecture == "sd1"
        else tuple(max(1, c // SD2_HEAD_WIDTH) for c in channels),
        "use_linear_projection": len(_need(shapes, f"{attention}.proj_in.weight")) == 2,
        "upcast_attention": architecture == "sd2",  # attention scores of SD 2.x overflow in float16
        "norm_num_groups": groups,
        "sample_size": {"sd1": 64, "sd2": 96, "sdxl": 128}[architecture],
        **(_sdxl_unet(shapes, len(levels)) if architecture == "sdxl" else {}),
    }


def _sdxl_unet(shapes: Shapes, levels: int) -> dict[str, Any]:
    """What only SDXL's U-Net has: several transformer layers in an attention, and the picture's sizes."""
    layers = [count_indices(shapes, f"down_blocks.{i}.attentions.0.transformer_blocks.") for i in range(levels)]
    return {
        "transformer_layers_per_block": tuple(max(1, count) for count in layers),
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": SIZE_WIDTH,
        "projection_class_embeddings_input_dim": _need(shapes, "add_embedding.linear_1.weight")[1],
    }


def vae_config(shapes: Shapes, scale: float, sample_size: int = 512) -> dict[str, Any]:
    """Arguments of AutoencoderKL, from diffusers' tensor names and shapes."""
    layout = VAEShape.of_library(shapes)
    channels = [_need(shapes, f"encoder.down_blocks.{i}.resnets.0.conv1.weight")[0] for i in range(layout.levels)]
    groups = norm_groups("VAE", channels)
    return {
        "in_channels": _need(shapes, "encoder.conv_in.weight")[1],
        "out_channels": _need(shapes, "decoder.conv_out.weight")[0],
        "latent_channels": _need(shapes, "decoder.conv_in.weight")[1],
        "block_out_channels": tuple(channels),
        "layers_per_block": layout.layers,
        "down_block_types": ("DownEncoderBlock2D",) * layout.levels,
        "up_block_types": ("UpDecoderBlock2D",) * layout.levels,
        "use_quant_conv": "quant_conv.weight" in shapes,
        "use_post_quant_conv": "post_quant_conv.weight" in shapes,
        "mid_block_add_attention": any(".mid_block.attentions." in name for name in shapes),
        "norm_num_groups": groups,
        "scaling_factor": scale,
        "sample_size": sample_size,
    }


def clip_config(shapes: Shapes, activation: str) -> dict[str, Any]:
    """Arguments of CLIPTextConfig, from transformers' tensor names and shapes.

    Args:
        activation: "quick_gelu" of CLIP, "gelu" of OpenCLIP; nothing in the weights tells.
    """
    projection = shapes.get("text_projection.weight")
    shapes = {name.removeprefix("text_model."): shape for name, shape in shapes.items()}
    vocabulary, width = _need(shapes, "embeddings.token_embedding.weight")
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "projection_dim": projection[0] if projection else width,
        "intermediate_size": _need(shapes, "encoder.layers.0.mlp.fc1.weight")[0],
        "num_hidden_layers": count_indices(shapes, "encoder.layers."),
        "num_attention_heads": max(1, width // CLIP_HEAD_WIDTH),
        "max_position_embeddings": _need(shapes, "embeddings.position_embedding.weight")[0],
        "hidden_act": activation,
        "bos_token_id": 49406,
        "eos_token_id": 49407,
        "pad_token_id": 1,
    }


def norm_groups(network: str, channels: list[int]) -> int:
    """Groups of every group norm: 32; in a narrow network that it does not divide, four channels of the first level a group."""
    groups = NORM_GROUPS if all(c % NORM_GROUPS == 0 for c in channels) else channels[0] // 4
    if not groups or any(c % groups for c in channels):
        raise UserError(
            f"{network} with channels {channels}: group norms need channels that are multiples of {NORM_GROUPS}"
        )
    return groups


def _need(shapes: Shapes, name: str) -> Shape:
    if name not in shapes:
        raise UserError(f"the model lacks the tensor {name!r}: the file is incomplete, get it again")
    return shapes[name]
