"""Method: all weights of the denoiser and, if asked for, of the text encoders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from sd_scripts.adapters.files import DTYPES
from sd_scripts.adapters.metadata import DataSummary, RunSummary
from sd_scripts.adapters.modelspec import modelspec
from sd_scripts.methods.base import Method, TrainedPart, Trainee
from sd_scripts.models.base import Architecture
from sd_scripts.models.family import DENOISER, VAE
from sd_scripts.options.implied import block_rates, full_rates
from sd_scripts.options.output import SavePrecision
from sd_scripts.options.recipes import FullModelTraining


class FullMethod(Method):
    """Trains the model itself."""

    name: ClassVar[str] = "full"
    trains_base_weights: ClassVar[bool] = True

    def __init__(self, architecture: Architecture, options: FullModelTraining, seed: int):
        self._architecture = architecture
        self._options = options
        self._groups = tuple(group for group in _groups(architecture, options) if group.weights and group.rate > 0)
        for part, network in architecture.networks.items():
            if part != VAE:
                network.requires_grad_(False)
        for group in self._groups:
            for weight in group.weights.values():
                weight.requires_grad_(True)
        self.trainee = Trainee(architecture, trains_text=any(group.part != DENOISER for group in self._groups))

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [
            {"params": list(group.weights.values()), "lr": group.rate, "name": group.name} for group in self._groups
        ]

    def parts(self) -> list[TrainedPart]:
        return [
            TrainedPart(group.name, group.layers, sum(w.numel() for w in group.weights.values()), group.rate)
            for group in self._groups
        ]

    def set_training(self) -> None:
        self.trainee.train()

    def begin_batch(self, number: int, rank: int) -> None:
        """Nothing to prepare: the model has no draws of its own."""

    def metadata(self, run: RunSummary, data: DataSummary) -> dict[str, str]:
        resolution = data.datasets[0].resolution if data.datasets else None
        return modelspec(
            self._options,
            run.identity,
            "checkpoint",
            made_at=run.finished_at,
            resolution=resolution,
            version=run.commit,
        )

    def save(self, path: Path, precision: SavePrecision | None, metadata: Mapping[str, str]) -> None:
        self._architecture.save(path, DTYPES[precision] if precision else None, metadata)


@dataclass(frozen=True)
class _Group:
    """Weights that are trained at one rate."""

    name: str
    part: str
    rate: float
    weights: Mapping[str, nn.Parameter]  # by their names in the part's network

    @property
    def layers(self) -> int:
        return len({name.rpartition(".")[0] for name in self.weights})


def _groups(architecture: Architecture, options: FullModelTraining) -> Iterator[_Group]:
    """A group for each part, of the denoiser one for each block where they have rates of their own."""
    idle = {id(weight) for module in architecture.idle_modules() for weight in module.parameters()}
    by_block = block_rates(options, architecture.family)
    for part, rate in full_rates(options, architecture.family).items():
        network = architecture.networks[part]
        weights = {name: weight for name, weight in network.named_parameters() if id(weight) not in idle}
        if part != DENOISER or by_block is None:
            yield _Group(part, part, rate, weights)
            continue
        blocks = architecture.family.weight_blocks({name: tuple(weight.shape) for name, weight in weights.items()})
        for number, block_rate in enumerate(by_block):
            own = {name: weight for name, weight in weights.items() if blocks[name] == number}
            yield _Group(f"{part} block {number}", part, block_rate, own)
