"""Copies between the device and main memory; on NVIDIA GPUs they run beside the computation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class Transfers(ABC):
    """How tensors travel."""

    @abstractmethod
    def keep(self, tensor: Tensor) -> Tensor:
        """The tensor in main memory, as a copy that `fetch` can be called on again and again."""

    @abstractmethod
    def fetch(self, kept: Sequence[Tensor]) -> tuple[list[Tensor], Any]:
        """Begin to copy to the device: the tensors there, and what `wait` needs to know of it."""

    @abstractmethod
    def wait(self, ticket: Any) -> None:
        """Let what is computed from now on begin after a copy has ended."""

    def write_back(self, tensor: Tensor, kept: Tensor) -> None:
        """Bring what is kept of a tensor up to date."""
        kept.copy_(tensor)

    def begin_keep(self, tensor: Tensor) -> Tensor:
        """As `keep`, but the copy may still be going on: only `fetch` may read it."""
        return self.keep(tensor)


class PlainTransfers(Transfers):
    """One after the other. On a CPU, where both places are one, nothing is copied."""

    def __init__(self, device: torch.device):
        self.device = device

    def keep(self, tensor: Tensor) -> Tensor:
        return tensor.data.cpu()

    def fetch(self, kept: Sequence[Tensor]) -> tuple[list[Tensor], Any]:
        return [tensor.to(self.device) for tensor in kept], None

    def wait(self, ticket: Any) -> None:
        """Nothing runs alongside."""


class CudaTransfers(Transfers):
    """On a stream of their own, from and to page-locked memory."""

    def __init__(self, device: torch.device):
        self.device = device
        self._stream = torch.cuda.Stream(device)

    def keep(self, tensor: Tensor) -> Tensor:
        return tensor.data.cpu().pin_memory()

    def fetch(self, kept: Sequence[Tensor]) -> tuple[list[Tensor], Any]:
        # What is freed on the device so far may be read by computations that are still to come; the copies, which are given
        # the same memory, wait for those. So no more memory is taken than the tensors that are there at a time.
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            return [tensor.to(self.device, non_blocking=True) for tensor in kept], self._stream.record_event()

    def wait(self, ticket: Any) -> None:
        torch.cuda.current_stream(self.device).wait_event(ticket)

    def begin_keep(self, tensor: Tensor) -> Tensor:
        kept = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            kept.copy_(tensor.detach(), non_blocking=True)
            tensor.record_stream(self._stream)  # its memory is not given away before the copy is made
        return kept  # copies back are made on the same stream, so they come later


def transfers_for(device: torch.device, alongside: bool = True) -> Transfers:
    """The fastest way to travel to and from a device."""
    return CudaTransfers(device) if alongside and device.type == "cuda" else PlainTransfers(device)
