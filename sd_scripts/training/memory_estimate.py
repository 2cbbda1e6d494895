"""How much memory of the device a run needs, told from the options, the model's header and the pictures. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from sd_scripts.models.blocks import blocks_to_keep_away
from sd_scripts.options.families import acts_for
from sd_scripts.options.implied import (
    caches_all_text,
    caches_latents,
    checkpoints_gradients,
    keeps_base_in_8_bits,
    wanted_blocks,
)
from sd_scripts.options.methods import Network

if TYPE_CHECKING:
    from sd_scripts.data.plan import DataPlan
    from sd_scripts.models.detect import CheckpointInfo
    from sd_scripts.options.recipes import TrainingOptions

BYTES = {"no": 4, "fp16": 2, "bf16": 2}  # of a number, by mixed precision
# Bytes of optimizer state for each trained parameter; others are taken for AdamW.
STATE_BYTES = {
    "adamw8bit": 2,
    "pagedadamw8bit": 2,
    "lion": 4,
    "lion8bit": 1,
    "adafactor": 0.1,
    "prodigy": 16,
    "sgdnesterov": 4,
}
# Bytes of activations at the peak of a step for each pixel of the pictures of a batch, by whether they are checkpointed;
# first with mixed precision, then without. Counted by bench/activations.py with a LoRA at every layer; they grow evenly
# with size and batch, and SD 1.x and 2.x differ by less than 1 %.
SD_ACTIVATIONS = {False: (4900, 7450), True: (1150, 2000)}
ACTIVATIONS: Mapping[str, Mapping[bool, tuple[int, int]]] = {
    "sd1": SD_ACTIVATIONS,
    "sd2": SD_ACTIVATIONS,
    "sdxl": {False: (8400, 13400), True: (950, 1580)},
}


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes on the device in a training step."""

    weights: int  # of the model, trained or not
    training: int  # trained weights besides the model, gradients, optimizer state, average
    activations: int | None  # None where they were not measured for this kind of model

    def __str__(self) -> str:
        """In words, for the plan."""
        weights = f"{self.weights / 2**30:.2f} GiB for the model, {self.training / 2**30:.2f} for what is trained"
        if self.activations is None:
            return f"about {weights}; activations come on top"
        activations = f"{self.activations / 2**30:.2f} for activations"
        return f"about {self.total / 2**30:.2f} GiB: {weights}, {activations}"

    @property
    def total(self) -> int:
        return self.weights + self.training + (self.activations or 0)


def memory_need(
    options: TrainingOptions, model: CheckpointInfo, trained: Mapping[str, int], data: DataPlan | None
) -> MemoryNeed:
    """What a step needs.

    Args:
        trained: number of trained parameters by part of the model.
    """
    return MemoryNeed(
        _weights(options, model, trained), _training(options, trained), _activations(options, model, data)
    )


def _weights(options: TrainingOptions, model: CheckpointInfo, trained: Mapping[str, int]) -> int:
    is_adapter = isinstance(options, Network)
    halved = options.full_fp16 or options.full_bf16
    usual = BYTES[options.mixed_precision] if is_adapter or halved else 4
    total = 0.0
    for part, count in model.parameters().items():
        size = float(usual)
        if part == "vae":
            size = 0.0 if caches_latents(options) else 4.0 if options.no_half_vae else size
        elif part != "unet" and caches_all_text(options):
            size = 0.0
        elif is_adapter and keeps_base_in_8_bits(options, model.architecture):
            size = 1.0 if part == "unet" or not options.fp8_base_unet else size
        if part == "unet":
            size *= 1 - share_away(options, model)
        total += count * size
    return int(total)


def _training(options: TrainingOptions, trained: Mapping[str, int]) -> int:
    count = sum(trained.values())
    own = 2 if options.full_fp16 or options.full_bf16 else 4
    weights = own if isinstance(options, Network) else 0  # a model's own are counted with it
    gradients = 0 if options.fused_backward_pass else own
    name = (options.optimizer_type or ("AdamW8bit" if options.use_8bit_adam else "AdamW")).lower()
    average = 4 if options.ema_decay else 0
    return int(count * (weights + gradients + STATE_BYTES.get(name, 8) + average))


def _activations(options: TrainingOptions, model: CheckpointInfo, data: DataPlan | None) -> int | None:
    table = ACTIVATIONS.get(model.architecture)
    if table is None or data is None or not data.groups:
        return None
    mixed, plain = table[checkpoints_gradients(options)]
    pixels = max(prod(group.bucket) * group.batch_size for group in data.groups)
    return pixels * (plain if options.mixed_precision == "no" else mixed)


def share_away(options: TrainingOptions, model: CheckpointInfo) -> float:
    """Share of the denoiser's weights that is kept off the device by swapping blocks; blocks of a kind count as equal."""
    wanted = wanted_blocks(options, model.architecture)
    if not wanted:
        return 0.0
    kinds = _block_sizes(model)
    away = blocks_to_keep_away(kinds, wanted)
    gone = sum(n * sum(blocks) / len(blocks) for n, blocks in zip(away, kinds, strict=True))
    return gone / model.parameters()["unet"]


def _block_sizes(model: CheckpointInfo) -> list[list[int]]:
    """Numbers in each block of the denoiser, by kind: `transformer_blocks.3.…` is the fourth of its kind.

    A U-Net's levels, down, middle and up, are one row. Short lists beside a long one (refiners) are not swapped.
    """
    is_unet = acts_for(("unet",), (model.architecture,))
    sizes: dict[str, Counter[str]] = {}
    for name, shape in model.shapes["unet"].items():
        kind, number, *_ = *name.split("."), ""
        if number.isdigit() or (is_unet and kind == "mid_block"):
            block = f"{kind}.{number}" if number.isdigit() else kind
            sizes.setdefault("" if is_unet else kind, Counter())[block] += prod(shape)
    longest = max(map(len, sizes.values()), default=0)
    return [list(blocks.values()) for blocks in sizes.values() if len(blocks) >= longest / 2]
