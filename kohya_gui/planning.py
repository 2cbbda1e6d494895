"""From a form's state to checked options and the plan of the run, by the trainer's own functions, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kohya_gui.accelerate import launch_problems, process_count
from kohya_gui.form_values import FieldValue, from_state
from kohya_gui.forms import FAMILY, TrainingForm
from kohya_gui.network_items import at_their_fields, gather
from sd_scripts.errors import UserError
from sd_scripts.models.detect import inspect
from sd_scripts.options.build import try_build
from sd_scripts.options.families import FAMILIES
from sd_scripts.options.launch import Launch
from sd_scripts.options.problems import Problem, error
from sd_scripts.options.recipes import Recipe, TrainingOptions, recipe_for
from sd_scripts.options.schema import specs
from sd_scripts.plan import Plan, make_plan

MODEL = "pretrained_model_name_or_path"


@dataclass(frozen=True)
class Checked:
    """What a look at a form found. `options` or `launch` is None when a value does not fit; there is no plan then.

    `family`: what the model's file says it is; None where it says nothing.
    """

    recipe: Recipe
    options: TrainingOptions | None
    launch: Launch | None
    family: str | None
    plan: Plan | None
    problems: tuple[Problem, ...]

    @property
    def can_start(self) -> bool:
        return self.plan is not None and not any(problem.level == "error" for problem in self.problems)

    @property
    def overwrites(self) -> Path | None:
        """The finished file, when one of its name exists already."""
        if self.options is None or not self.options.output_dir:
            return None
        name = f"{self.options.output_name or 'last'}.{self.options.save_model_as}"
        path = Path(self.options.output_dir) / name
        return path if path.exists() else None

    def report(self) -> dict[str, Any]:
        """What the form shows of it: the problems at their fields, and what the model is."""
        return family_report(self.family) | {
            "problems": [
                {"option": problem.option, "level": problem.level, "text": sentence(problem)}
                for problem in self.problems
                if problem.option
            ]
        }


def family_report(family: str | None) -> dict[str, Any]:
    """Which family the form is for; asks for it where nobody knows."""
    label = FAMILIES[family].label if family else None
    return {"family": family, "label": label, "asks": family is None}


def sentence(problem: Problem) -> str:
    return f"{problem.message}; {problem.remedy}." if problem.remedy else f"{problem.message}."


def check(form: TrainingForm, state: Mapping[str, FieldValue]) -> Checked:
    """Build the options and, where that works, the plan. Never raises for what a form can hold."""
    values, problems = from_state(form, state)
    family = family_of(values.get(MODEL))
    recipe = recipe_of(form, family or state.get(FAMILY))
    values, found = gather(form, values)
    problems += found
    options, found = try_build(recipe.options, training_values(form, recipe, values))
    problems += found
    launch, found = try_build(Launch, form.part(Launch, values))
    problems += found
    if options is None or launch is None or any(problem.level == "error" for problem in problems):
        return Checked(recipe, options, launch, family, None, _worst_first(problems))
    problems += launch_problems(launch)
    try:
        plan = make_plan(recipe, options, process_count(launch) or 1)
    except (OSError, ValueError) as failure:  # a path that the system cannot even look for: too long, odd characters
        problems.append(error(None, f"the settings cannot be looked at: {failure}", "check the paths"))
        return Checked(recipe, options, launch, family, None, _worst_first(problems))
    found = at_their_fields(form, plan.problems)
    return Checked(recipe, options, launch, family, plan, _worst_first([*problems, *found]))


def training_values(form: TrainingForm, recipe: Recipe, values: Mapping[str, Any]) -> dict[str, Any]:
    """The trainer's options among a form's values.

    Where another method's trainer does the work and takes something else for granted, the form's default is said.
    """
    form_specs, recipe_specs = specs(form.training), specs(recipe.options)
    implied = {
        name: spec.default
        for name, spec in form_specs.items()
        if name in recipe_specs and spec.default != recipe_specs[name].default
    }
    return implied | form.part(form.training, values)


def family_of(model: Any) -> str | None:
    """The family that a model's file says it is of; None where there is no model or it is none of ours."""
    if not model:
        return None
    try:
        found = inspect(Path(str(model))).architecture
    except (UserError, OSError, ValueError):  # the plan says why
        return None
    return found if found in FAMILIES else None


def recipe_of(form: TrainingForm, family: FieldValue | None) -> Recipe:
    """The trainer for a family; where there is none, the form's first one, whose plan says what it takes."""
    recipe = recipe_for(form.method, str(family)) or recipe_for(form.method, form.families[0])
    assert recipe is not None
    return recipe


def _worst_first(problems: list[Problem]) -> tuple[Problem, ...]:
    order = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(dict.fromkeys(problems), key=lambda problem: order[problem.level]))
