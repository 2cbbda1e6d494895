"""Recipes: which groups of options a trainer has. One line a trainer; everything about it that is not code is here."""

from __future__ import annotations

from dataclasses import dataclass

from sd_scripts.options.dataset import Caching, Captions, DatasetSource, Images
from sd_scripts.options.methods import FullTraining, Network
from sd_scripts.options.model_files import ModelFiles
from sd_scripts.options.output import Logging, Metadata, Samples, Saving
from sd_scripts.options.schema import Options
from sd_scripts.options.training import Length, Loss, Noise, Optimizer, Precision, Scheduler


class TrainingOptions(
    ModelFiles, DatasetSource, Images, Captions, Length, Optimizer, Scheduler, Precision,
    Caching, Saving, Samples, Loss, Noise, Logging, Metadata,
):  # fmt: skip
    """What every trainer has."""


class NetworkTraining(Network, TrainingOptions):
    """LoRA and its kin."""


class FullModelTraining(FullTraining, TrainingOptions):
    """All weights of the model."""

    @property
    def text_encoder_rate(self) -> float:
        """Rate of the text encoder; 0 when it is not trained."""
        if not self.train_text_encoder:
            return 0.0
        return self.learning_rate if self.learning_rate_te is None else self.learning_rate_te


@dataclass(frozen=True)
class Recipe:
    """A trainer: the script users start, what it trains, on which architectures, with which options."""

    script: str
    method: str
    architectures: tuple[str, ...]
    options: type[Options]
    summary: str


RECIPES = {
    recipe.script: recipe
    for recipe in (
        Recipe("train_network", "adapter", ("sd1", "sd2"), NetworkTraining, "Train a LoRA for SD 1.x or 2.x."),
        Recipe("fine_tune", "full", ("sd1", "sd2"), FullModelTraining, "Train all weights of an SD 1.x or 2.x model."),
    )
}
