"""A running average of the trained weights, often better than the weights themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter


class Ema:
    """Exponential moving average of parameters, kept in float32 beside them.

    Polyak and Juditsky (1992). Call `update` after every optimizer step; `swapped` puts the average into the model for
    saving and sampling.

    Args:
        parameters: the trained parameters, in an order that a resumed run repeats.
        decay: share of the old average kept by an update, 0 … <1.
        has_warmup: start with a smaller decay, min(decay, (1 + n) / (10 + n)) at update n (counted from 0), so that
            the first, untrained weights are soon forgotten.
    """

    def __init__(self, parameters: Iterable[Parameter], decay: float, *, has_warmup: bool = True):
        if not 0 <= decay < 1:
            raise ValueError(f"decay {decay} is not in 0 … <1")
        self.parameters = list(parameters)
        self.decay = decay
        self.has_warmup = has_warmup
        self.updates = 0
        self.average = [_float_copy(p) for p in self.parameters]

    def decay_at(self, update: int) -> float:
        """Decay used by an update, counted from 0."""
        return min(self.decay, (1 + update) / (10 + update)) if self.has_warmup else self.decay

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the weights as they are now. No synchronisation with the device."""
        now = [p.detach().float() for p in self.parameters]
        self.average = [a.to(p.device) for a, p in zip(self.average, now, strict=True)]  # the model may have moved
        torch._foreach_lerp_(self.average, now, 1 - self.decay_at(self.updates))
        self.updates += 1

    def restart(self) -> None:
        """Begin anew from the weights as they are now."""
        self.average = [_float_copy(p) for p in self.parameters]
        self.updates = 0

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """The parameters hold the average inside the block; afterwards, bit for bit, what they held before."""
        kept = [p.detach().clone() for p in self.parameters]
        _copy_into(self.parameters, self.average)
        try:
            yield
        finally:
            _copy_into(self.parameters, kept)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and numbers to save; the tensors are the live ones."""
        return {"updates": self.updates, "average": list(self.average)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved average. Raises ValueError if it is of other parameters."""
        saved = state["average"]
        if [a.shape for a in saved] != [a.shape for a in self.average]:
            raise ValueError("the saved average belongs to another set of trained parameters")
        _copy_into(self.average, saved)
        self.updates = int(state["updates"])


def _float_copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float32, copy=True)


@torch.no_grad()
def _copy_into(targets: Iterable[Tensor], sources: Iterable[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
