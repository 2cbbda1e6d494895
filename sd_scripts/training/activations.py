"""Gradient checkpoints in main memory: what a checkpointed block starts from waits there for the backward pass.

The blocks' own activations are computed anew in any case; what this saves is the one tensor a block that is kept for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from sd_scripts.training.transfers import Transfers

SMALLEST = 2**20  # bytes; what is smaller (captions, timesteps) stays on the device

Checkpoint = Callable[..., Any]  # (module or function, *inputs) -> outputs


def keep_checkpoints_in_main_memory(network: nn.Module, transfers: Transfers, smallest: int = SMALLEST) -> int:
    """Change how a network checkpoints its blocks; how many modules do so. Checkpointing has to be on already.

    Args:
        smallest: bytes of the smallest tensor that is worth a journey.
    """
    found = 0
    for module in network.modules():  # diffusers and transformers keep the function under the same name
        checkpoint = getattr(module, "_gradient_checkpointing_func", None)
        if checkpoint is not None and getattr(module, "gradient_checkpointing", True):
            module._gradient_checkpointing_func = partial(_checkpointed, checkpoint, transfers, smallest)
            found += 1
    return found


def _checkpointed(checkpoint: Checkpoint, transfers: Transfers, smallest: int, *inputs: Any) -> Any:
    # These hooks see a checkpoint's inputs; what happens inside is seen by those of torch's own checkpoint.
    with InMainMemory(transfers, smallest):
        return checkpoint(*inputs)


class InMainMemory(saved_tensors_hooks):
    """Within it, what is saved for the backward pass goes to main memory, and comes back when it is asked for."""

    def __init__(self, transfers: Transfers, smallest: int = SMALLEST):
        def pack(tensor: Tensor) -> Tensor | _Away:
            return tensor if tensor.nbytes < smallest else _Away(transfers.begin_keep(tensor))

        def unpack(packed: Tensor | _Away) -> Tensor:
            if not isinstance(packed, _Away):
                return packed
            (tensor,), ticket = transfers.fetch([packed.kept])
            transfers.wait(ticket)
            return tensor

        super().__init__(pack, unpack)


class _Away:
    """A tensor in main memory, or on its way there."""

    def __init__(self, kept: Tensor):
        self.kept = kept
