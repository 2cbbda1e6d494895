"""Recipes: which groups of options a trainer has. One line a trainer; everything about it that is not code is here.

There is one options class a method, for all model families: which options act for the family at hand is said by each
option (`only_for`). So a form or a settings file need not change when the model does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from sd_scripts.options.dataset import Caching, Captions, DatasetSource, Images
from sd_scripts.options.distributed import Distributed
from sd_scripts.options.families import acts_for
from sd_scripts.options.launch import Launch
from sd_scripts.options.memory import Memory, Precision
from sd_scripts.options.methods import ControlNet, FullTraining, Leco, LLLite, Network, TextualInversion
from sd_scripts.options.model_files import ModelFiles
from sd_scripts.options.objective import Flow, Loss, Noise
from sd_scripts.options.output import Hub, Logging, Metadata, Samples, Saving
from sd_scripts.options.schema import Options, OptionSpec, option, specs
from sd_scripts.options.text_encoders import TextEncoders
from sd_scripts.options.training import Length, Optimizer, Scheduler
from sd_scripts.options.validation import Validation


class CommonOptions(
    ModelFiles, TextEncoders, Length, Optimizer, Scheduler, Precision, Memory, Distributed,
    Saving, Samples, Loss, Noise, Flow, Logging, Hub, Metadata,
):  # fmt: skip
    """What every trainer has."""


class TrainingOptions(DatasetSource, Images, Captions, Caching, Validation, CommonOptions):
    """What every trainer that learns from pictures has."""


class NetworkTraining(Network, TrainingOptions):
    """LoRA and its kin."""


class FullModelTraining(FullTraining, TrainingOptions):
    """All weights of the model."""

    save_model_as: Literal["safetensors", "ckpt", "diffusers", "diffusers_safetensors"] = option(
        "safetensors", level="expert", help="File format; the last two write a diffusers folder."
    )

    @property
    def text_encoder_rate(self) -> float:
        """Rate of the text encoder; 0 when it is not trained."""
        if not self.train_text_encoder:
            return 0.0
        return self.learning_rate if self.learning_rate_te is None else self.learning_rate_te


class DreamBoothTraining(FullModelTraining):
    """All weights of the model, from folders of class and regularisation pictures; the text encoder learns along."""

    train_text_encoder: bool = option(True, label="Train text encoder", help="Train the text encoder too.")


class TextualInversionTraining(TextualInversion, TrainingOptions):
    """The embedding of a new word."""

    save_model_as: Literal["pt", "safetensors", "ckpt"] = option(
        "pt", level="expert", help="File format. pt and safetensors are what other programs read."
    )


class ControlNetTraining(ControlNet, TrainingOptions):
    """A network that guides the model by a second picture."""


class LLLiteTraining(LLLite, TrainingOptions):
    """A small ControlNet."""


class LecoTraining(Leco, Network, CommonOptions):
    """A LoRA learnt from pairs of prompts, without pictures."""


@dataclass(frozen=True)
class Recipe:
    """A trainer: the script users start, what it trains, on which model families, with which options."""

    script: str
    method: str
    architectures: tuple[str, ...]
    options: type[CommonOptions]
    summary: str
    available: bool = True  # False while a part of it is missing; its options, check and help work all the same

    def takes(self, spec: OptionSpec) -> bool:
        """Whether an option can have an effect here."""
        return spec.name in specs(self.options) and acts_for(spec.only_for, self.architectures)


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        recipe.script: recipe
        for recipe in (
            Recipe("train_network", "adapter", ("sd1", "sd2"), NetworkTraining,
                   "Train a LoRA for SD 1.x or 2.x."),
            Recipe("sdxl_train_network", "adapter", ("sdxl",), NetworkTraining,
                   "Train a LoRA for SDXL.", available=False),
            Recipe("sd3_train_network", "adapter", ("sd3",), NetworkTraining,
                   "Train a LoRA for SD 3 or 3.5.", available=False),
            Recipe("flux_train_network", "adapter", ("flux", "chroma"), NetworkTraining,
                   "Train a LoRA for FLUX.1 or Chroma.", available=False),
            Recipe("lumina_train_network", "adapter", ("lumina",), NetworkTraining,
                   "Train a LoRA for Lumina Image 2.0.", available=False),
            Recipe("anima_train_network", "adapter", ("anima",), NetworkTraining,
                   "Train a LoRA for Anima.", available=False),
            Recipe("hunyuan_image_train_network", "adapter", ("hunyuan_image",), NetworkTraining,
                   "Train a LoRA for HunyuanImage-2.1.", available=False),
            Recipe("fine_tune", "full", ("sd1", "sd2"), FullModelTraining,
                   "Train all weights of an SD 1.x or 2.x model."),
            Recipe("sdxl_train", "full", ("sdxl",), FullModelTraining,
                   "Train all weights of an SDXL model.", available=False),
            Recipe("sd3_train", "full", ("sd3",), FullModelTraining,
                   "Train all weights of an SD 3 or 3.5 model.", available=False),
            Recipe("flux_train", "full", ("flux", "chroma"), FullModelTraining,
                   "Train all weights of a FLUX.1 or Chroma model.", available=False),
            Recipe("lumina_train", "full", ("lumina",), FullModelTraining,
                   "Train all weights of a Lumina Image 2.0 model.", available=False),
            Recipe("anima_train", "full", ("anima",), FullModelTraining,
                   "Train all weights of an Anima model.", available=False),
            Recipe("hunyuan_image_train", "full", ("hunyuan_image",), FullModelTraining,
                   "Train all weights of a HunyuanImage-2.1 model.", available=False),
            Recipe("train_db", "dreambooth", ("sd1", "sd2"), DreamBoothTraining,
                   "Train all weights of an SD 1.x or 2.x model on a subject (DreamBooth)."),
            Recipe("train_textual_inversion", "textual_inversion", ("sd1", "sd2"), TextualInversionTraining,
                   "Teach an SD 1.x or 2.x model a new word.", available=False),
            Recipe("sdxl_train_textual_inversion", "textual_inversion", ("sdxl",), TextualInversionTraining,
                   "Teach an SDXL model a new word.", available=False),
            Recipe("train_control_net", "controlnet", ("sd1", "sd2"), ControlNetTraining,
                   "Train a ControlNet for SD 1.x or 2.x.", available=False),
            Recipe("sdxl_train_control_net", "controlnet", ("sdxl",), ControlNetTraining,
                   "Train a ControlNet for SDXL.", available=False),
            Recipe("flux_train_control_net", "controlnet", ("flux",), ControlNetTraining,
                   "Train a ControlNet for FLUX.1.", available=False),
            Recipe("sdxl_train_control_net_lllite", "lllite", ("sdxl",), LLLiteTraining,
                   "Train a ControlNet-LLLite for SDXL.", available=False),
            Recipe("anima_train_control_net_lllite", "lllite", ("anima",), LLLiteTraining,
                   "Train a ControlNet-LLLite for Anima.", available=False),
            Recipe("train_leco", "leco", ("sd1", "sd2"), LecoTraining,
                   "Erase or change a concept of an SD 1.x or 2.x model by prompts.", available=False),
            Recipe("sdxl_train_leco", "leco", ("sdxl",), LecoTraining,
                   "Erase or change a concept of an SDXL model by prompts.", available=False),
        )
    }
)  # fmt: skip
METHOD_SCRIPTS = {"dreambooth": "full"}  # where a method has no trainer of its own for a family, this one's serves


def recipe_for(method: str, architecture: str) -> Recipe | None:
    """The trainer of a method for a model family; None where there is none."""
    for name in filter(None, (method, METHOD_SCRIPTS.get(method))):
        for recipe in RECIPES.values():
            if recipe.method == name and architecture in recipe.architectures:
                return recipe
    return None


def all_models() -> tuple[type[Options], ...]:
    """Every options class there is: one a method, and the launch's."""
    return (*dict.fromkeys(recipe.options for recipe in RECIPES.values()), Launch)


@lru_cache
def trainers_of(name: str) -> tuple[str, ...]:
    """The scripts of the trainers for which an option has an effect; empty for an unknown name."""
    return tuple(
        recipe.script
        for recipe in RECIPES.values()
        if (spec := specs(recipe.options).get(name)) is not None and recipe.takes(spec)
    )


def is_launch(name: str) -> bool:
    """Whether the launch has an option of this name."""
    return name in specs(Launch)
