"""From a form's values to checked options and the plan of the run, by the trainer's own functions, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sd_scripts.options.build import try_build
from sd_scripts.options.problems import Problem
from sd_scripts.options.recipes import Recipe, TrainingOptions
from sd_scripts.plan import Plan, make_plan


@dataclass(frozen=True)
class Checked:
    """What a look at a form found. `options` is None when a value does not fit its option; there is no plan then."""

    options: TrainingOptions | None
    plan: Plan | None
    problems: tuple[Problem, ...]

    @property
    def can_start(self) -> bool:
        return self.options is not None and not any(problem.level == "error" for problem in self.problems)

    @property
    def overwrites(self) -> Path | None:
        """The finished file, when one of its name exists already."""
        if self.options is None or not self.options.output_dir:
            return None
        name = f"{self.options.output_name or 'last'}.{self.options.save_model_as}"
        path = Path(self.options.output_dir) / name
        return path if path.exists() else None


def check(recipe: Recipe, given: Mapping[str, Any]) -> Checked:
    """Build the options and, where that works, the plan."""
    options, problems = try_build(recipe.options, given)
    if options is None:
        return Checked(None, None, tuple(problems))
    plan = make_plan(recipe, options)
    return Checked(options, plan, plan.problems)
