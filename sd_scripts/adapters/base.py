"""`AdapterModule`: what every kind of adapter is: the trainable change of one layer, attached by a forward hook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from sd_scripts.adapters.draws import DrawKey
from sd_scripts.adapters.settings import Dropouts
from sd_scripts.models.base import AdapterTarget
from sd_scripts.seeds import seed_of


@dataclass(frozen=True)
class Size:
    """Rank and alpha of one module. `alpha` 0 or None stands for the rank, as in files without an alpha: scale 1."""

    rank: int
    alpha: float | None

    @property
    def scale(self) -> float:
        return self.alpha / self.rank if self.alpha else 1.0


class AdapterModule(nn.Module, ABC):
    """The change of one target. Its own `state_dict` has the tensors of the file, in the order of the file.

    The target's modules keep their weights, names and `state_dict`; a hook on each adds to what it returns. A target of
    several modules (the parts of a fused layer) has one set of weights whose output rows are split among them.
    """

    suffixes: ClassVar[tuple[str, ...]]  # tensor names in a file, without the module's name; "alpha" included

    def __init__(self, target: AdapterTarget, size: Size, dropouts: Dropouts, draws: DrawKey):
        super().__init__()
        self.target = target
        self.size = size
        self.multiplier = 1.0
        self.dropouts = dropouts
        self._draws = draws
        self._salts = {purpose: seed_of(target.name, purpose, bits=32) for purpose in ("neuron", "rank", "module")}
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    @classmethod
    @abstractmethod
    def build(
        cls,
        target: AdapterTarget,
        size: Size,
        dropouts: Dropouts,
        extra: Mapping[str, object],
        draws: DrawKey,
        seed: int,
    ) -> AdapterModule:
        """A fresh module that changes nothing yet. `extra` holds the arguments only this kind has."""

    @classmethod
    @abstractmethod
    def size_of(cls, tensors: Mapping[str, Tensor]) -> Size:
        """Rank and alpha of a module's tensors, named by suffix, as they come from a file."""

    @classmethod
    @abstractmethod
    def weight_change(cls, tensors: Mapping[str, Tensor], shape: torch.Size) -> Tensor:
        """The change of the (fused) weight of that shape at strength 1, float32, from a file's tensors."""

    @abstractmethod
    def adjust(self, part: int, x: Tensor, output: Tensor) -> Tensor:
        """The output of the target's module number `part`, as the adapter changes it."""

    @abstractmethod
    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the weights of a file, which then act as strongly as they did. ValueError where shapes differ."""

    @abstractmethod
    def norm(self) -> Tensor:
        """Norm of the weight's change at strength 1 (a scalar, float32)."""

    @abstractmethod
    def shrink(self, ratio: Tensor) -> None:
        """Multiply the weight's change by `ratio` (a scalar)."""

    def fast_parameters(self) -> list[nn.Parameter]:
        """Parameters that LoRA+ trains at a higher rate; none by default."""
        return []

    def attach(self) -> None:
        """Start to act on the target; a second call changes nothing."""
        if not self._handles:
            self._handles = [
                module.register_forward_hook(partial(self._hook, part))
                for part, module in enumerate(self.target.modules)
            ]

    def detach(self) -> None:
        """Leave the target as if the adapter had never been there."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _hook(self, part: int, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return output if self.multiplier == 0 else self.adjust(part, args[0], output)

    def _draw(self, purpose: str, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """Uniform draws in [0, 1) for this module in this step: the same for every part and every repeated forward."""
        return self._draws.uniform(self._salts[purpose], shape, device)


def out_rows(module: nn.Module) -> int:
    """Rows of the module's weight: its output width."""
    return module.out_channels if isinstance(module, nn.Conv2d) else module.out_features


def fused_shape(modules: tuple[nn.Module, ...]) -> torch.Size:
    """Shape of the weight of the one layer that the modules are parts of: (rows of all, in) or (rows, in, kh, kw)."""
    return torch.Size((sum(map(out_rows, modules)), *modules[0].weight.shape[1:]))
