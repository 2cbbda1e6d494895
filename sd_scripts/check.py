"""Print the plan of a run without starting it.

python -m sd_scripts.check --config_file settings.toml [--trainer train_network] [--json] [--option value …]

Without `--trainer` it is chosen by the options that are given and by the model's file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sd_scripts.entry import main as run_trainer
from sd_scripts.entry import say_failure
from sd_scripts.errors import UserError
from sd_scripts.options.config_file import trainer_values
from sd_scripts.options.families import FAMILIES
from sd_scripts.options.preset_files import load_file
from sd_scripts.options.recipes import RECIPES, Recipe, recipe_for
from sd_scripts.options.schema import specs


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 without errors in the plan, 1 with; everything but `--trainer` goes to the trainer's own command line."""
    parser = argparse.ArgumentParser(prog="check", add_help=False, allow_abbrev=False)
    parser.add_argument("--trainer", choices=list(RECIPES), default=None)
    parser.add_argument("--config_file", default=None)
    parser.add_argument("--pretrained_model_name_or_path", default=None)
    own, _ = parser.parse_known_args(arguments)
    rest = list(sys.argv[1:] if arguments is None else arguments)
    if own.trainer:
        at = rest.index("--trainer") if "--trainer" in rest else rest.index(f"--trainer={own.trainer}")
        del rest[at : at + (2 if rest[at] == "--trainer" else 1)]
        return run_trainer(own.trainer, [*rest, "--check"])
    try:
        loaded = load_file(Path(own.config_file)) if own.config_file else None
    except UserError as failure:
        return say_failure(failure, as_json="--json" in rest)
    values = trainer_values(loaded) if loaded else {}
    model = own.pretrained_model_name_or_path or values.get("pretrained_model_name_or_path")
    recipe = choose_trainer(values, model, loaded.method if loaded else None, loaded.architecture if loaded else None)
    return run_trainer(recipe.script, [*rest, "--check"])


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
