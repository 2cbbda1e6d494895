"""What the loop gets: one batch of pictures or latents with captions and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sd_scripts.models.base import Text, Tokens


@dataclass(frozen=True)
class Batch:
    """One batch of one bucket; either `pixels` or `latents` is set."""

    pixels: Tensor | None  # (b, 3, h, w) uint8
    latents: Tensor | None  # (b, c, h/8, w/8), scaled and shifted as the denoiser wants them
    tokens: Tokens | None
    captions: tuple[str, ...]
    loss_weights: Tensor  # (b,) float32
    masks: Tensor | None  # (b, 1, h, w) float32 in 0…1, at the size of the pixels
    indices: tuple[int, ...]  # tells every use in an epoch apart; modulo the number of samples it is the sample
    controls: Tensor | None = None  # (b, 3, h, w) uint8, what a ControlNet is guided by
    sizes: Tensor | None = None  # (b, 6) px: `views.sizes_of`, for models that are told how a picture was cut
    text: Text | None = None  # the captions encoded, where they are cached; then there are no tokens

    def __len__(self) -> int:
        return len(self.captions)

    def to(self, device: torch.device | str) -> Batch:
        """The batch on a device; copies from pinned memory do not wait."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> Batch:
        """The batch in memory that the device can copy from by itself; called by the loader."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Batch:
        return replace(
            self,
            pixels=None if self.pixels is None else change(self.pixels),
            latents=None if self.latents is None else change(self.latents),
            tokens=None if self.tokens is None else self.tokens.mapped(change),
            loss_weights=change(self.loss_weights),
            masks=None if self.masks is None else change(self.masks),
            controls=None if self.controls is None else change(self.controls),
            sizes=None if self.sizes is None else change(self.sizes),
            text=None if self.text is None else self.text.mapped(change),
        )
