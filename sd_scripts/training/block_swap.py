"""Blocks of a network that live in main memory and come to the device when their turn is near, forwards and backwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sd_scripts.models.blocks import spread
from sd_scripts.training.transfers import Transfers

PLACES = 2  # swapped blocks that are on the device at a time: one that computes, one on its way


class SwappedBlock:
    """A block whose tensors are on the device or in main memory; its parameters stay the same objects."""

    def __init__(self, block: nn.Module, transfers: Transfers):
        self.block = block
        self._transfers = transfers
        self._tensors: list[Tensor] = [*block.parameters(), *block.buffers()]
        self._kept = [transfers.keep(tensor) for tensor in self._tensors]
        for tensor, kept in zip(self._tensors, self._kept, strict=True):
            tensor.data = kept
        self.is_present = False
        self.has_learnt = False  # since it came: a backward pass, and perhaps a step, went through it
        self._ticket: Any = None

    def fetch(self) -> None:
        """Begin to bring the block to the device."""
        if self.is_present:
            return
        moved, self._ticket = self._transfers.fetch(self._kept)
        for tensor, there in zip(self._tensors, moved, strict=True):
            gradient, tensor.grad = tensor.grad, None
            tensor.data = there
            tensor.grad = None if gradient is None else gradient.to(there.device)
        self.is_present = True

    def wait(self) -> None:
        """What is computed from now on finds the block on the device."""
        self._transfers.wait(self._ticket)

    def send_away(self) -> None:
        """Leave the device; trained weights are copied back first, and gradients go along."""
        if not self.is_present:
            return
        for tensor, kept in zip(self._tensors, self._kept, strict=True):
            gradient, tensor.grad = tensor.grad, None
            if tensor.requires_grad and self.has_learnt:
                self._transfers.write_back(tensor.data, kept)
            tensor.data = kept
            tensor.grad = None if gradient is None else gradient.to(kept.device)
        self.is_present = self.has_learnt = False


class BlockSwap:
    """Keeps `away` of the blocks off the device at any time, without a change in any result.

    Two more than that are swapped, and two of the swapped ones are on the device: the one that computes, and the next or the
    one before. At the end of a forward pass these are the last two, with which the backward pass begins, and the other way
    round.

    Args:
        blocks: in the order in which they run; at most once in a forward pass.
        away: how many are kept off the device, at most all but two.
    """

    def __init__(self, blocks: Sequence[nn.Module], away: int, transfers: Transfers):
        if not 0 < away <= len(blocks) - PLACES:
            raise ValueError(f"{away} of {len(blocks)} blocks cannot be swapped: two have to stay")
        chosen = spread(len(blocks), away + PLACES)
        self.swapped = [SwappedBlock(blocks[index], transfers) for index in chosen]
        for block in self.swapped[:PLACES]:
            block.fetch()
        for number, swapped in enumerate(self.swapped):
            swapped.block.register_forward_pre_hook(partial(self._before_forward, number), prepend=True)
            swapped.block.register_forward_hook(partial(self._after_forward, number))

    def tensors(self) -> Iterator[Tensor]:
        """Everything that travels."""
        for swapped in self.swapped:
            yield from swapped.block.parameters()
            yield from swapped.block.buffers()

    @torch._dynamo.disable
    def _before_forward(self, number: int, _block: nn.Module, _inputs: object) -> None:
        self._need(number, -1 if _is_in_backward() else 1)

    @torch._dynamo.disable
    def _after_forward(self, number: int, _block: nn.Module, _inputs: object, outputs: object) -> None:
        if torch.is_grad_enabled() and not _is_in_backward():  # in a backward pass a checkpoint computes anew
            for output in _tensors_in(outputs):
                if output.requires_grad:
                    output.register_hook(partial(self._before_backward, number))

    def _before_backward(self, number: int, _gradient: Tensor) -> None:
        self._need(number, -1)
        self.swapped[number].has_learnt = True

    def _need(self, number: int, direction: int) -> None:
        """A block is about to compute; the one after it in this direction begins to come."""
        after = number + direction
        if not torch.is_grad_enabled() and not _is_in_backward():
            after %= len(self.swapped)  # no backward pass follows: the next is the first of another forward pass
        wanted = [index for index in (number, after) if 0 <= index < len(self.swapped)]
        for index, swapped in enumerate(self.swapped):
            if index not in wanted and self._present() + self._missing(wanted) > PLACES:
                swapped.send_away()
        for index in wanted:
            self.swapped[index].fetch()
        self.swapped[number].wait()

    def _present(self) -> int:
        return sum(swapped.is_present for swapped in self.swapped)

    def _missing(self, wanted: Sequence[int]) -> int:
        return sum(not self.swapped[index].is_present for index in wanted)


def _is_in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def _tensors_in(outputs: object) -> Iterator[Tensor]:
    match outputs:
        case Tensor():
            yield outputs
        case tuple() | list():
            for output in outputs:
                yield from _tensors_in(output)
        case dict():
            for output in outputs.values():
                yield from _tensors_in(output)
