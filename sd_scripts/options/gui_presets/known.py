"""The options that there are, by name: what a key of a file may stand for besides the forms' own keys."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sd_scripts.options.gui_presets import readers
from sd_scripts.options.gui_presets.readers import Unreadable
from sd_scripts.options.launch import Launch
from sd_scripts.options.network_arguments import NetworkArguments
from sd_scripts.options.recipes import RECIPES, all_models
from sd_scripts.options.schema import OptionSpec, specs


@lru_cache
def options_by_name() -> Mapping[str, OptionSpec]:
    """Every option of every trainer, of the launch and of `network_args`, also under its older names."""
    models = (NetworkArguments, *all_models())  # a trainer's option comes before an item of the same name
    found = {name: spec for model in models for name, spec in specs(model).items()}
    older = {old: spec for spec in found.values() for old in spec.formerly}
    return {**older, **found}


@lru_cache
def is_secret(name: str) -> bool:
    """Whether an option's value must not be shown."""
    spec = options_by_name().get(name)
    return spec is not None and spec.secret


@lru_cache
def options_of(method: str | None) -> frozenset[str]:
    """Names that a preset for this method may set; for an unclear one, those of all."""
    models = [recipe.options for recipe in RECIPES.values() if method in (None, recipe.method)]
    if method == "dreambooth":  # other families than SD 1.x and 2.x are trained by the trainer of the whole model
        models += [recipe.options for recipe in RECIPES.values() if recipe.method == "full"]
    names = {name for model in (*models, Launch) for name in specs(model)}
    return frozenset(names | set(specs(NetworkArguments)) if method in (None, "adapter", "leco") else names)


def read_option(spec: OptionSpec, value: Any) -> Any:
    """A loosely typed value as the option takes it; None for an unset one.

    Raises:
        Unreadable: it cannot be meant, such as a word for a number.
    """
    if spec.is_list:
        return readers.rates(value) if spec.type in (int, float) else readers.arguments(value)
    if spec.type is bool:
        return readers.flag(value)
    if spec.type is str:
        return readers.size(value) if isinstance(value, list) else readers.text(value)
    try:
        found = readers.whole(value) if spec.type is int else readers.number(value)
    except Unreadable:
        is_word = isinstance(value, str) and (value in spec.words or value.rstrip().endswith("%"))
        if is_word:
            return value
        raise
    return found
