"""Method: all weights of the denoiser and, if asked for, of the text encoders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from sd_scripts.adapters.files import DTYPES
from sd_scripts.adapters.metadata import DataSummary, RunSummary
from sd_scripts.adapters.modelspec import modelspec
from sd_scripts.methods.base import Method, TrainedPart, Trainee
from sd_scripts.models.base import Architecture
from sd_scripts.options.output import SavePrecision
from sd_scripts.options.recipes import FullModelTraining


class FullMethod(Method):
    """Trains the model itself."""

    name: ClassVar[str] = "full"
    trains_base_weights: ClassVar[bool] = True

    def __init__(self, architecture: Architecture, options: FullModelTraining, seed: int):
        self._architecture = architecture
        self._options = options
        rates = {"unet": options.learning_rate}
        for number, _ in enumerate(architecture.text_encoders, start=1):
            rates[f"te{number}"] = options.text_encoder_rate
        networks = {"unet": architecture.denoiser}
        networks |= {f"te{number}": encoder for number, encoder in enumerate(architecture.text_encoders, start=1)}
        self._trained = {part: (network, rates[part]) for part, network in networks.items() if rates[part] > 0}
        for part, network in networks.items():
            network.requires_grad_(part in self._trained)
        self.trainee = Trainee(architecture, trains_text=any(part != "unet" for part in self._trained))

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [
            {"params": list(network.parameters()), "lr": rate, "name": part}
            for part, (network, rate) in self._trained.items()
        ]

    def parts(self) -> list[TrainedPart]:
        return [
            TrainedPart(part, _count_layers(network), sum(p.numel() for p in network.parameters()), rate)
            for part, (network, rate) in self._trained.items()
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


def _count_layers(network: nn.Module) -> int:
    return sum(1 for module in network.modules() if any(True for _ in module.parameters(recurse=False)))
