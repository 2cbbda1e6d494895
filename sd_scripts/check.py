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
from sd_scripts.options.recipes import RECIPES, Recipe, recipe_for
from sd_scripts.options.schema import specs
from sd_scripts.options.toml_files import read_settings


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
        values = read_settings(Path(own.config_file)) if own.config_file else {}
    except UserError as failure:
        return say_failure(failure, as_json="--json" in rest)
    model = own.pretrained_model_name_or_path or values.get("pretrained_model_name_or_path")
    return run_trainer(choose_trainer(values, model).script, [*rest, "--check"])


def choose_trainer(values: Mapping[str, Any], model: object) -> Recipe:
    """The trainer that takes most of the options, for the family of the model; of equals the first in the table."""
    architecture = _architecture(model)
    methods = dict.fromkeys(recipe.method for recipe in RECIPES.values())
    candidates = [recipe for method in methods if (recipe := recipe_for(method, architecture))]
    return min(candidates, key=lambda recipe: sum(1 for name in values if name not in specs(recipe.options)))


def _architecture(model: object) -> str:
    """The model's family; SD 1.x where it cannot be told, which the plan then finds out and says."""
    from sd_scripts.models.detect import inspect

    try:
        found = inspect(Path(str(model))).architecture if model else "sd1"
    except (UserError, OSError, ValueError):  # the plan names what is wrong with the path
        return "sd1"
    return found if recipe_for("adapter", found) else "sd1"


if __name__ == "__main__":
    sys.exit(main())
