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
from sd_scripts.options.families import FAMILIES, acts_for
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


def _recipe(script: str, method: str, options: type[CommonOptions], summary: str, *, available: bool = True) -> Recipe:
    """A trainer of the families that name its script."""
    families = tuple(family.name for family in FAMILIES.values() if script in family.scripts)
    return Recipe(script, method, families, options, summary, available)


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        recipe.script: recipe
        for recipe in (
            _recipe("train_network", "adapter", NetworkTraining,
                   "Train a LoRA for SD 1.x or 2.x."),
            _recipe("sdxl_train_network", "adapter", NetworkTraining,
                   "Train a LoRA for SDXL."),
            _recipe("sd3_train_network", "adapter", NetworkTraining,
                   "Train a LoRA for SD 3 or 3.5.", available=False),
            _recipe("flux_train_network", "adapter", NetworkTraining,
                   "Train a LoRA for FLUX.1 or Chroma.", available=False),
            _recipe("lumina_train_network", "adapter", NetworkTraining,
                   "Train a LoRA for Lumina Image 2.0.", available=False),
            _recipe("anima_train_network", "adapter", NetworkTraining,
                   "Train a LoRA for Anima.", available=False),
            _recipe("hunyuan_image_train_network", "adapter", NetworkTraining,
                   "Train a LoRA for HunyuanImage-2.1.", available=False),
            _recipe("fine_tune", "full", FullModelTraining,
                   "Train all weights of an SD 1.x or 2.x model."),
            _recipe("sdxl_train", "full", FullModelTraining,
                   "Train all weights of an SDXL model."),
            _recipe("sd3_train", "full", FullModelTraining,
                   "Train all weights of an SD 3 or 3.5 model.", available=False),
            _recipe("flux_train", "full", FullModelTraining,
                   "Train all weights of a FLUX.1 or Chroma model.", available=False),
            _recipe("lumina_train", "full", FullModelTraining,
                   "Train all weights of a Lumina Image 2.0 model.", available=False),
            _recipe("anima_train", "full", FullModelTraining,
                   "Train all weights of an Anima model.", available=False),
            _recipe("hunyuan_image_train", "full", FullModelTraining,
                   "Train all weights of a HunyuanImage-2.1 model.", available=False),
            _recipe("train_db", "dreambooth", DreamBoothTraining,
                   "Train all weights of an SD 1.x or 2.x model on a subject (DreamBooth)."),
            _recipe("train_textual_inversion", "textual_inversion", TextualInversionTraining,
                   "Teach an SD 1.x or 2.x model a new word.", available=False),
            _recipe("sdxl_train_textual_inversion", "textual_inversion", TextualInversionTraining,
                   "Teach an SDXL model a new word.", available=False),
            _recipe("train_control_net", "controlnet", ControlNetTraining,
                   "Train a ControlNet for SD 1.x or 2.x.", available=False),
            _recipe("sdxl_train_control_net", "controlnet", ControlNetTraining,
                   "Train a ControlNet for SDXL.", available=False),
            _recipe("flux_train_control_net", "controlnet", ControlNetTraining,
                   "Train a ControlNet for FLUX.1.", available=False),
            _recipe("sdxl_train_control_net_lllite", "lllite", LLLiteTraining,
                   "Train a ControlNet-LLLite for SDXL.", available=False),
            _recipe("anima_train_control_net_lllite", "lllite", LLLiteTraining,
                   "Train a ControlNet-LLLite for Anima.", available=False),
            _recipe("train_leco", "leco", LecoTraining,
                   "Erase or change a concept of an SD 1.x or 2.x model by prompts.", available=False),
            _recipe("sdxl_train_leco", "leco", LecoTraining,
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
