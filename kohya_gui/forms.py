"""The training forms: which tab trains what, and of which options its form is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sd_scripts.options.families import FAMILIES, MODEL_FAMILY
from sd_scripts.options.launch import Launch
from sd_scripts.options.network_arguments import NetworkArguments
from sd_scripts.options.recipes import (
    DreamBoothTraining,
    FullModelTraining,
    NetworkTraining,
    TextualInversionTraining,
    recipe_for,
)
from sd_scripts.options.schema import Options, OptionSpec, groups, specs

FAMILY = MODEL_FAMILY  # the form's own field: what kind of model it is, asked only where the file does not say it
FRESH = "from_defaults"  # likewise: nothing was loaded, so that defaults of a family come in once it is known
HIDDEN = frozenset({"run_dir"})  # the interface decides on it


@dataclass(frozen=True)
class TrainingForm:
    """A training tab.

    `models`: the trainer's options first, then those that only forms and presets hold.
    """

    name: str  # of the tab, its preset folder and its draft
    title: str
    method: str
    models: tuple[type[Options], ...]

    @property
    def training(self) -> type[Options]:
        """The trainer's options."""
        return self.models[0]

    @cached_property
    def specs(self) -> dict[str, OptionSpec]:
        """Every option of the form by name."""
        found: dict[str, OptionSpec] = {}
        for model in self.models:
            for name, spec in specs(model).items():
                if name not in HIDDEN:
                    found.setdefault(name, spec)
        return found

    @cached_property
    def sections(self) -> dict[str, list[str]]:
        """Names of options by the title of their section, in the order of the page."""
        listed = sorted((group for model in self.models for group in groups(model)), key=lambda group: group.order)
        by_title = {g.title: [name for name, spec in self.specs.items() if spec.group == g.title] for g in listed}
        return {title: names for title, names in by_title.items() if names}

    @cached_property
    def families(self) -> tuple[str, ...]:
        """The model families that can be trained this way, now or later."""
        return tuple(name for name in FAMILIES if recipe_for(self.method, name) is not None)

    def part(self, model: type[Options], values: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the values that are options of this model."""
        known = specs(model)
        return {name: value for name, value in values.items() if name in known}


FORMS = {
    form.name: form
    for form in (
        TrainingForm("lora", "LoRA", "adapter", (NetworkTraining, NetworkArguments, Launch)),
        TrainingForm("dreambooth", "DreamBooth", "dreambooth", (DreamBoothTraining, Launch)),
        TrainingForm("finetune", "Finetune", "full", (FullModelTraining, Launch)),
        TrainingForm("textual_inversion", "Textual Inversion", "textual_inversion", (TextualInversionTraining, Launch)),
    )
}
