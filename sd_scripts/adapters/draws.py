"""Random draws of the dropouts, as pure functions of (seed, step, rank, name of the module, position).

A generator that is read in turn would give other masks when gradient checkpointing runs a layer twice, when the parts
of a fused layer each ask for the mask they share, or after a resume. A hash of the position does not; it also compiles.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sd_scripts.seeds import seed_of

MASK32 = 0xFFFFFFFF


class DrawKey:
    """What the draws of the current step depend on. One for a network, shared by its modules.

    It is a tensor that is written in place, so a compiled forward is not compiled again for each step, and no buffer,
    which data-parallel training would overwrite with that of the first process.
    """

    def __init__(self, seed: int):
        self._seed = seed
        self._key = torch.zeros((), dtype=torch.int64)
        self._is_set = False

    def set(self, step: int, rank: int) -> None:
        """`step` counts batches (those of an accumulated step have one each); `rank` is that of the process."""
        self._key.fill_(seed_of(self._seed, step, rank, bits=32))
        self._is_set = True

    def uniform(self, salt: int, shape: Sequence[int], device: torch.device) -> Tensor:
        """Float32 draws in [0, 1) of the given shape: a function of step, rank, salt and shape, on every device."""
        if not self._is_set:
            raise RuntimeError("AdapterNetwork.begin_step was not called before a forward pass with dropout")
        position = torch.arange(torch.Size(shape).numel(), dtype=torch.int64, device=device)
        bits = _mix(_mix(position + salt) ^ self._key)
        return ((bits >> 8).to(torch.float32) * 2.0**-24).view(torch.Size(shape))


def _mix(x: Tensor) -> Tensor:
    """A 32-bit integer hash held in int64 (the "lowbias32" constants of C. Wellons' hash prospector)."""
    x = x & MASK32
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & MASK32
    x = ((x ^ (x >> 15)) * 0x846CA68B) & MASK32
    return x ^ (x >> 16)
