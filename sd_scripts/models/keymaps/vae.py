"""Key map of the latent-diffusion autoencoder to diffusers' AutoencoderKL."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from sd_scripts.models.family import Layout, Part, Shapes
from sd_scripts.models.keymaps.core import KeyMap, count_indices, same_names

_TOP = ("quant_conv", "post_quant_conv")
_SAME = ("conv_in", "conv_out")
_ATTENTION = (("group_norm", "norm"), ("to_q", "q"), ("to_k", "k"), ("to_v", "v"), ("to_out.0", "proj_out"))
_OLD_ATTENTION = (("to_q", "query"), ("to_k", "key"), ("to_v", "value"), ("to_out.0", "proj_attn"))


@dataclass(frozen=True)
class VAEShape:
    """What the names depend on: levels, and resnets per level of the encoder (the decoder has one more)."""

    levels: int
    layers: int

    @classmethod
    def of_file(cls, names: Collection[str]) -> VAEShape:
        """From the names in a checkpoint (without prefix)."""
        return cls(count_indices(names, "encoder.down."), count_indices(names, "encoder.down.0.block."))

    @classmethod
    def of_library(cls, names: Collection[str]) -> VAEShape:
        """From the names in diffusers' state dict."""
        return cls(count_indices(names, "encoder.down_blocks."), count_indices(names, "encoder.down_blocks.0.resnets."))


def vae_key_map(shape: VAEShape) -> KeyMap:
    """The map for any number of levels and resnets."""
    pairs = [(name, name) for name in _TOP]
    for half in ("encoder", "decoder"):
        pairs += [(f"{half}.{name}", f"{half}.{name}") for name in _SAME]
        pairs.append((f"{half}.conv_norm_out", f"{half}.norm_out"))
        pairs += _mid(half)
    for level in range(shape.levels):
        pairs += _level(f"encoder.down_blocks.{level}", f"encoder.down.{level}", shape.layers)
        pairs.append((f"encoder.down_blocks.{level}.downsamplers.0.conv", f"encoder.down.{level}.downsample.conv"))
        up = shape.levels - 1 - level  # files number the decoder's levels from the finest on, diffusers as they run
        pairs += _level(f"decoder.up_blocks.{level}", f"decoder.up.{up}", shape.layers + 1)
        pairs.append((f"decoder.up_blocks.{level}.upsamplers.0.conv", f"decoder.up.{up}.upsample.conv"))
    linears = [name for name, _ in _ATTENTION if name != "group_norm"]
    attention = [f"{half}.mid_block.attentions.0.{name}.weight" for half in ("encoder", "decoder") for name in linears]
    return KeyMap(pairs, changes=dict.fromkeys(attention, "conv1x1"))


def library_vae_key_map(names: Collection[str]) -> KeyMap:
    """The map for diffusers' own files, old ones too."""
    return old_vae_attention() if has_old_attention(names) else same_names(names)


def vae_part(channels: int, option: str = "vae", prefixes: tuple[str, ...] = ("first_stage_model.",)) -> Part:
    """The autoencoder of a family with so many latent channels; files in the original names or in diffusers'."""

    def problem(shapes: Shapes) -> str | None:
        found = shapes["decoder.conv_in.weight"][1] if "decoder.conv_in.weight" in shapes else None
        return (
            None
            if found in (channels, None)
            else f"is a VAE with {found} latent channels; this model's have {channels}"
        )

    original = Layout(
        markers=("decoder.mid.block_1.conv1.weight",),
        read=lambda names: vae_key_map(VAEShape.of_file(names)),
        write=lambda names: vae_key_map(VAEShape.of_library(names)),
        prefixes=prefixes,
    )
    library = Layout(("decoder.mid_block.resnets.0.conv1.weight",), library_vae_key_map, same_names)
    return Part("vae", "VAE", "vae", (original, library), option, problem)


def old_vae_attention() -> KeyMap:
    """Attention names of diffusers folders older than 0.17 to today's; every other name stays."""
    pairs = [(name, name) for name in (*_TOP, "encoder", "decoder")]
    for half in ("encoder", "decoder"):
        attention = f"{half}.mid_block.attentions.0"
        pairs += [(f"{attention}.{new}", f"{attention}.{old}") for new, old in _OLD_ATTENTION]
    return KeyMap(pairs)


def has_old_attention(names: Iterable[str]) -> bool:
    """Whether a diffusers folder has the attention names from before 0.17."""
    return any(".mid_block.attentions.0.query." in name for name in names)


def _mid(half: str) -> Iterator[tuple[str, str]]:
    library, stored = f"{half}.mid_block", f"{half}.mid"
    yield from _resnet(f"{library}.resnets.0", f"{stored}.block_1")
    yield from _resnet(f"{library}.resnets.1", f"{stored}.block_2")
    for a, b in _ATTENTION:
        yield f"{library}.attentions.0.{a}", f"{stored}.attn_1.{b}"


def _level(library: str, stored: str, layers: int) -> Iterator[tuple[str, str]]:
    for layer in range(layers):
        yield from _resnet(f"{library}.resnets.{layer}", f"{stored}.block.{layer}")


def _resnet(library: str, stored: str) -> Iterator[tuple[str, str]]:
    yield library, stored
    yield f"{library}.conv_shortcut", f"{stored}.nin_shortcut"
