"""Key map of the latent-diffusion U-Net (SD 1.x, 2.x, SDXL): input/middle/output blocks to diffusers' down/mid/up blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sd_scripts.models.family import Layout, Part
from sd_scripts.models.keymaps.core import KeyMap, count_indices, same_names

_TOP = (
    ("time_embedding.linear_1", "time_embed.0"),
    ("time_embedding.linear_2", "time_embed.2"),
    ("conv_in", "input_blocks.0.0"),
    ("conv_norm_out", "out.0"),
    ("conv_out", "out.2"),
    ("add_embedding.linear_1", "label_emb.0.0"),  # of SDXL
    ("add_embedding.linear_2", "label_emb.0.2"),
)
_RESNET = (
    ("norm1", "in_layers.0"),
    ("conv1", "in_layers.2"),
    ("time_emb_proj", "emb_layers.1"),
    ("norm2", "out_layers.0"),
    ("conv2", "out_layers.3"),
    ("conv_shortcut", "skip_connection"),
)


@dataclass(frozen=True)
class UNetShape:
    """What the names depend on: resnets per level, and which levels have attention (from the finest on)."""

    layers: int
    attention: tuple[bool, ...]

    @classmethod
    def of_file(cls, names: Collection[str]) -> UNetShape:
        """From the names in a checkpoint (without prefix)."""
        blocks = count_indices(names, "input_blocks.")
        ends = [n for n in range(blocks) if f"input_blocks.{n}.0.op.weight" in names] + [blocks]
        starts = [1] + [end + 1 for end in ends[:-1]]
        with_attention = {
            name.split(".")[1] for name in names if name.startswith("input_blocks.") and ".1.proj_in" in name
        }
        return cls(ends[0] - 1, tuple(str(start) in with_attention for start in starts))

    @classmethod
    def of_library(cls, names: Collection[str]) -> UNetShape:
        """From the names in diffusers' state dict."""
        levels = count_indices(names, "down_blocks.")
        has_attention = [count_indices(names, f"down_blocks.{i}.attentions.") > 0 for i in range(levels)]
        return cls(count_indices(names, "down_blocks.0.resnets."), tuple(has_attention))


def unet_key_map(shape: UNetShape) -> KeyMap:
    """The map for any number of levels and resnets."""
    return KeyMap([*_TOP, *_down(shape), *_mid(), *_up(shape)])


def unet_part() -> Part:
    """The U-Net; files in the original names or in diffusers'."""
    original = Layout(
        markers=("input_blocks.0.0.weight",),
        read=lambda names: unet_key_map(UNetShape.of_file(names)),
        write=lambda names: unet_key_map(UNetShape.of_library(names)),
        prefixes=("model.diffusion_model.",),
    )
    return Part("unet", "U-Net", "unet", (original, Layout(("conv_in.weight",), same_names, same_names)))


def _down(shape: UNetShape) -> Iterator[tuple[str, str]]:
    n = 1  # input block 0 is the first convolution
    levels = len(shape.attention)
    for level in range(levels):
        for layer in range(shape.layers):
            yield from _resnet(f"down_blocks.{level}.resnets.{layer}", f"input_blocks.{n}.0")
            yield f"down_blocks.{level}.attentions.{layer}", f"input_blocks.{n}.1"
            n += 1
        if level < levels - 1:
            yield f"down_blocks.{level}.downsamplers.0.conv", f"input_blocks.{n}.0.op"
            n += 1


def _mid() -> Iterator[tuple[str, str]]:
    yield from _resnet("mid_block.resnets.0", "middle_block.0")
    yield "mid_block.attentions.0", "middle_block.1"
    yield from _resnet("mid_block.resnets.1", "middle_block.2")


def _up(shape: UNetShape) -> Iterator[tuple[str, str]]:
    n = 0
    levels = len(shape.attention)
    for block, has_attention in enumerate(reversed(shape.attention)):
        for layer in range(shape.layers + 1):
            yield from _resnet(f"up_blocks.{block}.resnets.{layer}", f"output_blocks.{n}.0")
            if has_attention:
                yield f"up_blocks.{block}.attentions.{layer}", f"output_blocks.{n}.1"
            n += 1
        if block < levels - 1:  # the upsampler sits behind the last layer's resnet and attention
            yield f"up_blocks.{block}.upsamplers.0.conv", f"output_blocks.{n - 1}.{2 if has_attention else 1}.conv"


def _resnet(library: str, stored: str) -> Iterator[tuple[str, str]]:
    return ((f"{library}.{a}", f"{stored}.{b}") for a, b in _RESNET)
