"""Which weights of U-Nets and CLIP text encoders adapters train and what LoRA files call them. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sd_scripts.models.family import DENOISER, ModelFamily, PartShapes, Shapes, TargetName
from sd_scripts.models.keymaps.core import Shape
from sd_scripts.models.keymaps.unet import UNetShape, unet_key_map

# A module is a target if every word of its dotted name is listed; the numbers give the order within LoRA files.
UNET_WORDS = {
    **{"down_blocks": 0, "up_blocks": 1, "mid_block": 2},
    **{"attentions": 0, "resnets": 1, "downsamplers": 2, "upsamplers": 2},
    **{"proj_in": 0, "transformer_blocks": 1, "proj_out": 2},
    **{"attn1": 0, "ff": 1, "attn2": 2},
    **{"to_q": 0, "to_k": 1, "to_v": 2, "to_out": 3, "net": 0, "proj": 0},
    **{"conv1": 0, "time_emb_proj": 1, "conv2": 2, "conv_shortcut": 3, "conv": 0},
}
# The same in the names of the original layout, for the order within SDXL's LoRA files.
_ORIGINAL_ORDER = {
    **{"input_blocks": 0, "middle_block": 1, "output_blocks": 2},
    **{"in_layers": 0, "emb_layers": 1, "out_layers": 2, "skip_connection": 3},
    **{word: place for word, place in UNET_WORDS.items() if not word.startswith(("conv", "time_emb"))},
}
CLIP_WORDS = {
    **{"encoder": 0, "layers": 0, "self_attn": 0, "mlp": 1},
    **{"k_proj": 0, "v_proj": 1, "q_proj": 2, "out_proj": 3, "fc1": 0, "fc2": 1},
}


def sd_targets(shapes: PartShapes) -> Iterator[TargetName]:
    """Targets of SD 1.x and 2.x in the order of LoRA files: text encoder first, 3x3 convolutions included.

    Args:
        shapes: part ("te1", "unet") to library tensor name to shape.
    """
    yield from clip_targets(shapes, "te1", "lora_te_")
    for module, shape in listed_modules(shapes.get("unet", {}), UNET_WORDS):
        name = "lora_unet_" + module.replace(".", "_")
        yield TargetName(name, "unet", (module,), shape, ".attentions." not in module, sd_block(module))


def sdxl_targets(shapes: PartShapes) -> Iterator[TargetName]:
    """Targets of SDXL in the order of LoRA files, which call the U-Net's layers as the original checkpoint does."""
    yield from clip_targets(shapes, "te1", "lora_te1_")
    yield from clip_targets(shapes, "te2", "lora_te2_")
    unet = shapes.get(DENOISER, {})
    names = unet_key_map(UNetShape.of_library(unet))
    found = [(names.file_name(module), module, shape) for module, shape in listed_modules(unet, UNET_WORDS)]
    for original, module, shape in sorted(found, key=lambda item: _original_place(item[0])):
        name = "lora_unet_" + original.replace(".", "_")
        yield TargetName(name, DENOISER, (module,), shape, ".attentions." not in module, sdxl_block(original))


def _original_place(name: str) -> list[int]:
    return [int(word) if word.isdigit() else _ORIGINAL_ORDER.get(word, 0) for word in name.split(".")]


def sdxl_weight_blocks(shapes: Shapes) -> dict[str, int]:
    """The block (0-22) of each weight of an SDXL U-Net."""
    names = unet_key_map(UNetShape.of_library(shapes))
    return {name: sdxl_block(names.file_name(name) or name) for name in shapes}


def sdxl_block(name: str) -> int:
    """The block (0-22) of an SDXL U-Net's module or weight, by its original name: embeddings, nine input blocks, three
    middle ones, nine output blocks, the last layer."""
    words = name.split(".")
    first = {"input_blocks": 1, "middle_block": 10, "output_blocks": 13}
    if words[0] in first:
        return first[words[0]] + int(words[1])
    return 22 if words[0] == "out" else 0


def clip_targets(shapes: PartShapes, part: str, prefix: str) -> Iterator[TargetName]:
    """Targets of a CLIP text encoder; LoRA files have the level `text_model` that transformers took out."""
    for module, shape in listed_modules(_without_level(shapes.get(part, {})), CLIP_WORDS):
        level = "" if f"{module}.weight" in shapes[part] else "text_model."
        yield TargetName(f"{prefix}text_model_" + module.replace(".", "_"), part, (level + module,), shape)


def sd_block(module: str) -> int | None:
    """The block (0-24) of an SD U-Net's module that ranks and rates by block count it to; None outside of all.

    0 is the first convolution, which adapters leave alone; then three a level (two layers of resnet and attention, the
    downsampler); 12 is the middle; then three layers a level, the upsampler with the last.
    """
    words = module.split(".")
    if words[0] == "mid_block":
        return 12
    if words[0] not in ("down_blocks", "up_blocks"):
        return None
    level, kind, layer = int(words[1]), words[2], int(words[3])
    if words[0] == "down_blocks":
        return 1 + 3 * level + (2 if kind == "downsamplers" else layer)
    return 13 + 3 * level + (2 if kind == "upsamplers" else layer)


def listed_modules(shapes: Shapes, words: Mapping[str, int]) -> list[tuple[str, Shape]]:
    """Weights whose whole dotted name is in the word list, in its order."""
    found = []
    for name, shape in shapes.items():
        module = name.removesuffix(".weight")
        place = [int(word) if word.isdigit() else words.get(word, -1) for word in module.split(".")]
        if module != name and min(place) >= 0:
            found.append((place, module, shape))
    return [(module, shape) for _, module, shape in sorted(found, key=lambda item: item[0])]


def _without_level(shapes: Shapes) -> Shapes:
    return {name.removeprefix("text_model."): shape for name, shape in shapes.items()}


def adapter_counts(
    family: ModelFamily, shapes: PartShapes, rank_of: Callable[[TargetName], int | None]
) -> dict[str, tuple[int, int]]:
    """Part to (modules, parameters) of a LoRA with these ranks; None: the target is left out."""
    counts: dict[str, tuple[int, int]] = {}
    for target in family.targets(shapes):
        modules, parameters = counts.setdefault(target.part, (0, 0))
        if (rank := rank_of(target)) is not None:
            counts[target.part] = modules + 1, parameters + target.lora_parameters(rank)
    return counts


def same_ranks(rank: int, conv_rank: int | None = None) -> Callable[[TargetName], int | None]:
    """One rank for all layers and one for 3x3 convolutions; without that resnets and samplers are left out."""

    def rank_of(target: TargetName) -> int | None:
        if target.needs_conv_dim and conv_rank is None:
            return None
        return conv_rank if target.is_conv3x3 else rank

    return rank_of
