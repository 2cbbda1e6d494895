"""What the processes of a run tell each other besides gradients.

The first process writes files and draws samples while the others wait. Collectives of the devices have a time limit of some
minutes, after which a run is given up; so this waiting goes through a group of its own, on the CPU and with patience. A process
that ends takes the others with it, whatever they are waiting for.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch import distributed as dist

if TYPE_CHECKING:
    from accelerate import Accelerator

PATIENCE = timedelta(days=30)


class Processes:
    """The processes of a run, of which this one has number `rank`. All of them have to make one, at the same place."""

    def __init__(self, accelerator: Accelerator):
        self.rank = accelerator.process_index
        self.count = accelerator.num_processes
        self._group = dist.new_group(backend="gloo", timeout=PATIENCE) if self.count > 1 else None

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        """Come back when all have called it."""
        if self._group is not None:
            dist.barrier(self._group)

    def first_says(self, answer: bool) -> bool:
        """The first process's answer, in all of them; those of the others do not count."""
        if self._group is None:
            return answer
        told = torch.tensor([answer])
        dist.broadcast(told, src=0, group=self._group)
        return bool(told)

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes of values on the CPU."""
        if self._group is not None:
            dist.all_reduce(values, group=self._group)
        return values
