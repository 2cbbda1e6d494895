"""Which weights adapters train and what LoRA files call them, from tensor names and shapes alone. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sd_scripts.models.keymaps.core import Shape

# A module is a target if every word of its dotted name is listed; the numbers give the order within LoRA files.
_UNET_WORDS = {
    **{"down_blocks": 0, "up_blocks": 1, "mid_block": 2},
    **{"attentions": 0, "resnets": 1, "downsamplers": 2, "upsamplers": 2},
    **{"proj_in": 0, "transformer_blocks": 1, "proj_out": 2},
    **{"attn1": 0, "ff": 1, "attn2": 2},
    **{"to_q": 0, "to_k": 1, "to_v": 2, "to_out": 3, "net": 0, "proj": 0},
    **{"conv1": 0, "time_emb_proj": 1, "conv2": 2, "conv_shortcut": 3, "conv": 0},
}
_CLIP_WORDS = {
    **{"encoder": 0, "layers": 0, "self_attn": 0, "mlp": 1},
    **{"k_proj": 0, "v_proj": 1, "q_proj": 2, "out_proj": 3, "fc1": 0, "fc2": 1},
}


@dataclass(frozen=True)
class TargetName:
    """A weight that adapters may train: its name in LoRA files and where it is."""

    name: str
    part: str
    module: str  # dotted name in the library's network
    shape: Shape  # of the weight
    needs_conv_dim: bool = False

    @property
    def is_conv3x3(self) -> bool:
        """Whether its adapter takes conv_dim as rank."""
        return len(self.shape) == 4 and self.shape[2:] != (1, 1)

    def lora_parameters(self, rank: int) -> int:
        """Numbers in a LoRA pair of this rank; a convolution's kernel is in the down half."""
        return rank * (math.prod(self.shape[1:]) + self.shape[0])


def sd_targets(shapes: Mapping[str, Mapping[str, Shape]]) -> Iterator[TargetName]:
    """Targets of SD 1.x and 2.x in the order of LoRA files: text encoder first, 3x3 convolutions included.

    Args:
        shapes: part ("te1", "unet") to library tensor name to shape.
    """
    for module, shape in _targets(shapes.get("te1", {}), _CLIP_WORDS):
        yield TargetName("lora_te_text_model_" + module.replace(".", "_"), "te1", module, shape)
    for module, shape in _targets(shapes.get("unet", {}), _UNET_WORDS):
        yield TargetName("lora_unet_" + module.replace(".", "_"), "unet", module, shape, ".attentions." not in module)


def _targets(shapes: Mapping[str, Shape], words: Mapping[str, int]) -> list[tuple[str, Shape]]:
    """Weights whose whole dotted name is in the word list, in its order."""
    found = []
    for name, shape in shapes.items():
        module = name.removesuffix(".weight")
        place = [int(word) if word.isdigit() else words.get(word, -1) for word in module.split(".")]
        if module != name and min(place) >= 0:
            found.append((place, module, shape))
    return [(module, shape) for _, module, shape in sorted(found, key=lambda item: item[0])]


def adapter_counts(
    shapes: Mapping[str, Mapping[str, Shape]], rank: int, conv_rank: int | None = None
) -> dict[str, tuple[int, int]]:
    """Part to (modules, parameters) of a LoRA with these ranks."""
    counts: dict[str, tuple[int, int]] = {}
    for target in sd_targets(shapes):
        if target.needs_conv_dim and conv_rank is None:
            continue
        size = target.lora_parameters(conv_rank if target.is_conv3x3 and conv_rank else rank)
        modules, parameters = counts.get(target.part, (0, 0))
        counts[target.part] = modules + 1, parameters + size
    return counts
