"""What the loop knows about a method, and the module that it wraps for several devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sd_scripts.adapters.metadata import DataSummary, RunSummary
from sd_scripts.models.base import Architecture, Text, Tokens
from sd_scripts.options.output import SavePrecision


@dataclass(frozen=True)
class TrainedPart:
    """One line of the report at the start: what is trained, how much of it, at which rate."""

    name: str
    modules: int
    parameters: int
    learning_rate: float


class Trainee(nn.Module):
    """Everything that takes part in a step, so that wrapping it (DDP, FSDP, autocast) wraps the whole forward pass."""

    def __init__(self, architecture: Architecture, *, trains_text: bool, adapter: nn.Module | None = None):
        super().__init__()
        self.denoiser = architecture.denoiser
        self.text_encoders = nn.ModuleList(architecture.text_encoders)
        self.adapter = adapter
        self._architecture = architecture
        self._trains_text = trains_text

    def drop_text_encoders(self) -> None:
        """Captions are encoded already: the text encoders take part in no step, and need no device."""
        self.text_encoders = nn.ModuleList()

    def forward(
        self,
        noisy: Tensor,
        timesteps: Tensor,
        tokens: Tokens | None,
        text: Text | None = None,
        sizes: Tensor | None = None,
    ) -> Tensor:
        """The denoiser's prediction (b, c, h, w) for noisy latents, timesteps (b,) and captions, encoded or not; for
        models that look at them with the pictures' sizes (b, 6)."""
        if text is None:
            assert tokens is not None
            with nullcontext() if self._trains_text else torch.no_grad():
                text = self._architecture.encode_text(tokens)
        return self._architecture.predict(noisy, timesteps, text, sizes)


class Method(ABC):
    """What is trained."""

    name: ClassVar[str]
    trains_base_weights: ClassVar[bool]  # then they are loaded in full precision
    trainee: Trainee

    @abstractmethod
    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for the optimizer, each with `params`, `lr` and a `name` for logs; only what is trained."""

    @abstractmethod
    def parts(self) -> list[TrainedPart]:
        """What is trained, for the report."""

    @abstractmethod
    def set_training(self) -> None:
        """Put every module in the mode in which it is trained."""

    @abstractmethod
    def begin_batch(self, number: int, rank: int) -> None:
        """Called before each forward pass with the batch's number in the run: draws of dropout depend on it alone."""

    @abstractmethod
    def save(self, path: Path, precision: SavePrecision | None, metadata: Mapping[str, str]) -> None:
        """Write the finished file, atomically; `precision` None keeps each tensor's number format."""

    def parts_without_gradient(self) -> list[str]:
        """Trained parts that the last backward pass did not reach. Waits for the device; asked once, after the first one."""
        return []

    @abstractmethod
    def metadata(self, run: RunSummary, data: DataSummary) -> dict[str, str]:
        """What the finished file says of itself."""

    @property
    def records_base_files(self) -> bool:
        """Whether the metadata names the base model and VAE by their hashes."""
        return False

    def after_step(self) -> dict[str, Tensor]:
        """Called after each optimizer step. Scalars to log, on their device."""
        return {}

    def trained_parameters(self) -> dict[str, nn.Parameter]:
        """What is trained by its name in the trainee, in the order of the groups."""
        names = {id(parameter): name for name, parameter in self.trainee.named_parameters()}
        return {names[id(p)]: p for group in self.parameter_groups() for p in group["params"]}
