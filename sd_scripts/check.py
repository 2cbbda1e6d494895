"""Print the plan of a run without starting it.

python -m sd_scripts.check --config_file settings.toml [--trainer train_network] [--json] [--option value …]

Without `--trainer` it is chosen by the options that are given and by the model's file.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sd_scripts.entry import main as run_trainer
from sd_scripts.entry import say_failure, speak_utf8
from sd_scripts.errors import UserError
from sd_scripts.options.arguments import did_you_mean
from sd_scripts.options.cli import PlainParser
from sd_scripts.options.config_file import trainer_values
from sd_scripts.options.families import FAMILIES
from sd_scripts.options.preset_files import load_file
from sd_scripts.options.recipes import RECIPES, Recipe, recipe_for
from sd_scripts.options.schema import specs


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 without errors in the plan, 1 with; everything but `--trainer` goes to the trainer's own command line."""
    rest = list(sys.argv[1:] if arguments is None else arguments)
    try:
        trainer, rest = _named_trainer(rest)
        return run_trainer(trainer or _fitting_trainer(rest), [*rest, "--check"])
    except UserError as failure:
        speak_utf8()
        return say_failure(failure, as_json="--json" in rest)


def _named_trainer(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """What follows `--trainer`, and the other arguments."""
    parser = PlainParser(prog="check", add_help=False, allow_abbrev=False)
    parser.add_argument("--trainer", default=None)
    own, rest = parser.parse_known_args(arguments)
    name = own.trainer and own.trainer.removesuffix(".py")
    if name is not None and name not in RECIPES:
        raise UserError(
            f"trainer: there is no {name}{did_you_mean(name, RECIPES)}; the trainers are {', '.join(RECIPES)}"
        )
    return name, rest


def _fitting_trainer(arguments: Sequence[str]) -> str:
    """The trainer for the settings file and the model that the arguments name."""
    parser = PlainParser(prog="check", add_help=False, allow_abbrev=False)
    parser.add_argument("--config_file", default=None)
    parser.add_argument("--pretrained_model_name_or_path", default=None)
    own, _ = parser.parse_known_args(arguments)
    loaded = load_file(Path(own.config_file)) if own.config_file else None
    values = trainer_values(loaded) if loaded else {}
    model = own.pretrained_model_name_or_path or values.get("pretrained_model_name_or_path")
    recipe = choose_trainer(values, model, loaded.method if loaded else None, loaded.architecture if loaded else None)
    return recipe.script


def choose_trainer(
    values: Mapping[str, Any], model: object, method: str | None = None, architecture: str | None = None
) -> Recipe:
    """The trainer of a method for a model's family; of several methods the one that takes most of the options."""
    family = _architecture(model) or architecture or "sd1"
    methods = [method] if method else list(dict.fromkeys(recipe.method for recipe in RECIPES.values()))
    candidates = [recipe for name in methods if (recipe := recipe_for(name, family))]
    if not candidates:  # no such trainer for this family: the method's first one says so in its plan
        candidates = [recipe for recipe in RECIPES.values() if recipe.method in methods][:1]
    return min(candidates, key=lambda recipe: sum(1 for name in values if name not in specs(recipe.options)))


def _architecture(model: object) -> str | None:
    """The model's family; None where it cannot be told, which the plan then finds out and says."""
    from sd_scripts.models.detect import inspect

    try:
        found = inspect(Path(str(model))).architecture if model else None
    except (UserError, OSError, ValueError):  # the plan names what is wrong with the path
        return None
    return found if found in FAMILIES else None


if __name__ == "__main__":
    sys.exit(main())
