"""Method: a network of adapters (LoRA and its kin) beside the frozen model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from sd_scripts.adapters.files import save_network
from sd_scripts.adapters.metadata import DataSummary, RunSummary, network_metadata
from sd_scripts.adapters.network import AdapterNetwork
from sd_scripts.methods.base import Method, TrainedPart, Trainee
from sd_scripts.models.base import Architecture
from sd_scripts.options.output import SavePrecision
from sd_scripts.options.recipes import NetworkTraining


class AdapterMethod(Method):
    """Trains an `AdapterNetwork`; the model's own weights stay as they are."""

    name: ClassVar[str] = "adapter"
    trains_base_weights: ClassVar[bool] = False

    def __init__(self, architecture: Architecture, options: NetworkTraining, seed: int):
        architecture.denoiser.requires_grad_(False)
        for encoder in architecture.text_encoders:
            encoder.requires_grad_(False)
        self.network = AdapterNetwork.build(architecture, options, seed)
        self._options = options
        self.trainee = Trainee(
            architecture, trains_text=any(part.name != "unet" for part in self.parts()), adapter=self.network
        )

    def parameter_groups(self) -> list[dict[str, Any]]:
        return self.network.param_groups()

    def parts(self) -> list[TrainedPart]:
        return [
            TrainedPart(part.rate.part, part.modules, part.parameters, part.rate.lr)
            for part in self.network.summary()
            if part.rate.lr is not None and part.modules
        ]

    def set_training(self) -> None:
        """Frozen networks too: diffusers and transformers checkpoint activations in training mode only."""
        self.trainee.train()

    def begin_batch(self, number: int, rank: int) -> None:
        self.network.begin_step(number, rank)

    def parts_without_gradient(self) -> list[str]:
        return self.network.parts_without_gradient()

    def after_step(self) -> dict[str, torch.Tensor]:
        if not self._options.scale_weight_norms:
            return {}
        report = self.network.apply_max_norm(self._options.scale_weight_norms)
        return {
            "max_norm/keys_scaled": report.scaled,
            "max_norm/average_key_norm": report.average,
            "max_norm/max_key_norm": report.largest,
        }

    @property
    def records_base_files(self) -> bool:
        return not self._options.no_metadata

    def metadata(self, run: RunSummary, data: DataSummary) -> dict[str, str]:
        rank, alpha = self.network.recorded_size(self._options)
        return network_metadata(self._options, replace(run, network_dim=rank, network_alpha=alpha), data)

    def save(self, path: Path, precision: SavePrecision | None, metadata: Mapping[str, str]) -> None:
        save_network(path, self.network.state_dict(), metadata, precision)
