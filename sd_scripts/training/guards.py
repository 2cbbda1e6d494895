"""When numbers go wrong: losses and latents that are not finite, with the pictures they came from and what helps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sd_scripts.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

    from sd_scripts.options.recipes import CommonOptions
    from sd_scripts.training.report import StepNumbers

NAMES_IN_MESSAGES = 4


class NotFinite(UserError):
    """The loss or the latents of a step are no numbers any more. The text leaves out what became of the weights."""


class NanGuard:
    """Skips steps whose loss or gradients are not finite, up to a number of them.

    It has to wait for the device in each step, so it exists only where it is asked for.
    """

    def __init__(self, most: int):
        self._most = most
        self.skipped = 0

    def accepts(self, numbers: StepNumbers) -> bool:
        """Whether the weights may take this step. The answer is the same in all processes: both numbers are of all.

        Raises:
            NotFinite: there have been too many that may not.
        """
        norm = numbers.gradient_norm
        finite = torch.isfinite(numbers.loss) if norm is None else torch.isfinite(numbers.loss + norm.to(numbers.loss))
        if finite:
            return True
        self.skipped += 1
        if self.skipped > self._most:
            raise NotFinite(f"{what_is_wrong(numbers)}; {self._most} such steps were skipped before (max_nan_steps)")
        return False


def what_is_wrong(numbers: StepNumbers) -> str:
    """One line about a step whose numbers are not finite, with pictures and remedy. Waits for the device."""
    names = listed(numbers.pictures)
    where = f" ({names})" if names else ""
    if numbers.latents_are_finite is not None and not numbers.latents_are_finite:
        return f"step {numbers.step}: the VAE made latents that are not finite{where}; set no_half_vae, or give another vae"
    loss = float(numbers.loss)
    wrong = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient is {float(numbers.gradient_norm)}"
    return f"step {numbers.step}: {wrong}{where}; lower the learning rate, use bf16 instead of fp16, or look at these pictures"


def listed(names: Sequence[str], most: int = NAMES_IN_MESSAGES) -> str:
    """Some of the names, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether no value is infinite or no number. Waits for the device once."""
    checks = [torch.isfinite(tensor).all() for tensor in tensors]
    return not checks or bool(torch.stack([check.to(checks[0].device) for check in checks]).all())


def is_black(picture: Image.Image) -> bool:
    """Whether a picture has no light at all: what values that are no numbers look like."""
    bounds = picture.getextrema()
    return all(high == 0 for _, high in (bounds if isinstance(bounds[0], tuple) else (bounds,)))


def out_of_memory(options: CommonOptions) -> str:
    """One line with the settings that save memory and are not used yet, those that cost least first."""
    eight_bit = "8bit" in (options.optimizer_type or "").lower() or options.use_8bit_adam
    helps = (
        ("mixed_precision = bf16", options.mixed_precision == "no"),
        (
            "cache_latents",
            not (getattr(options, "cache_latents", True) or getattr(options, "cache_latents_to_disk", True)),
        ),
        ("gradient_checkpointing", not options.gradient_checkpointing),
        (
            "a smaller train_batch_size with gradient_accumulation_steps",
            getattr(options, "train_batch_size", 1) > 1,
        ),
        ("an 8-bit optimizer (AdamW8bit)", not eight_bit),
        ("fused_backward_pass", hasattr(options, "train_text_encoder") and not options.fused_backward_pass),
        ("fp8_base", hasattr(options, "network_module") and not (options.fp8_base or options.fp8_base_unet)),
        ("blocks_to_swap", not getattr(options, "blocks_to_swap", None)),
        ("cpu_offload_checkpointing", not getattr(options, "cpu_offload_checkpointing", True)),
        ("vae_batch_size = 1", getattr(options, "vae_batch_size", 1) > 1),
        ("a lower resolution", True),
    )
    return f"out of memory: what helps, cheapest first: {', '.join(name for name, is_left in helps if is_left)}"
