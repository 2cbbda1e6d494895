"""Key maps of the CLIP text encoders: Hugging Face's names and OpenCLIP's to CLIPTextModel."""

from __future__ import annotations

from collections.abc import Collection

from sd_scripts.models.family import Layout
from sd_scripts.models.keymaps.core import KeyMap, count_indices

LEVEL = "text_model."  # above everything in Hugging Face's files
_TOP = ("embeddings", "encoder", "final_layer_norm")
_LAYER = (
    ("layer_norm1", "ln_1"),
    ("layer_norm2", "ln_2"),
    ("mlp.fc1", "mlp.c_fc"),
    ("mlp.fc2", "mlp.c_proj"),
    ("self_attn.out_proj", "attn.out_proj"),
)
_QKV = ("q_proj", "k_proj", "v_proj")  # row order of the fused in_proj


def clip_key_map(level: str = "text_model.") -> KeyMap:
    """Hugging Face's own names. Files have the level `text_model.`, which transformers 5 took out of its modules."""
    return KeyMap((name, level + name) for name in _TOP)


def clip_layout(*prefixes: str) -> Layout:
    """Hugging Face's names, with the level `text_model.` or, as some files have them, without."""
    return Layout(
        markers=("text_model.embeddings.token_embedding.weight", "embeddings.token_embedding.weight"),
        read=lambda names: clip_key_map(clip_level(names)),
        write=lambda names: clip_key_map(),
        prefixes=prefixes,
    )


def clip_level(names: Collection[str]) -> str:
    """The level that a file's names have; some files lack it."""
    return "text_model." if any(name.startswith("text_model.") for name in names) else ""


def open_clip_key_map(layers: int, with_projection: bool = False) -> KeyMap:
    """OpenCLIP's names for the first `layers` blocks, its attention projections fused in one tensor.

    Args:
        with_projection: for CLIPTextModelWithProjection, whose names still have the level `text_model.`.
    """
    level = LEVEL if with_projection else ""
    pairs = [
        (f"{level}embeddings.token_embedding", "token_embedding"),
        (f"{level}embeddings.position_embedding.weight", "positional_embedding"),
        (f"{level}final_layer_norm", "ln_final"),
    ]
    if with_projection:
        pairs.append(("text_projection.weight", "text_projection"))
    fused = {}
    for i in range(layers):
        library, stored = f"{level}encoder.layers.{i}", f"transformer.resblocks.{i}"
        pairs += [(f"{library}.{a}", f"{stored}.{b}") for a, b in _LAYER]
        for kind in ("weight", "bias"):
            fused[f"{stored}.attn.in_proj_{kind}"] = tuple(f"{library}.self_attn.{name}.{kind}" for name in _QKV)
    # OpenCLIP multiplies by its projection from the right, a Linear by its weight from the left
    return KeyMap(pairs, fused, {"text_projection.weight": "transposed"})


def open_clip_used_layers(names: Collection[str]) -> int:
    """How many blocks of the file SD 2.x runs: not the last one of the whole OpenCLIP model.

    A whole model has a text projection; ViT-H has 24 blocks, and files with 23 hold only those that are used.
    """
    blocks = count_indices(names, "transformer.resblocks.")
    if blocks in (23, 24):
        return 23
    return blocks - 1 if "text_projection" in names else blocks
