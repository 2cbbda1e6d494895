"""The items of `network_args`, which are fields of their own in the form, on their way to the one list that files hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kohya_gui.forms import TrainingForm
from sd_scripts.options.build import try_build
from sd_scripts.options.network_arguments import NetworkArguments, fold
from sd_scripts.options.problems import Problem
from sd_scripts.options.schema import specs

LIST = "network_args"


def gather(form: TrainingForm, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Values of the form with the items back in the list, and what is wrong with those that do not fit."""
    if NetworkArguments not in form.models:
        return dict(values), []
    items = form.part(NetworkArguments, values)
    others = {name: value for name, value in values.items() if name not in items}
    if not items:
        return others, []
    options, problems = try_build(NetworkArguments, items)
    if options is None:
        return others, problems
    known = specs(NetworkArguments)
    changed = {name: getattr(options, name) for name in items if getattr(options, name) != known[name].default}
    gathered = fold(changed, list(others.get(LIST) or []))
    return others | ({LIST: gathered} if gathered else {}), problems


def at_their_fields(form: TrainingForm, problems: Sequence[Problem]) -> list[Problem]:
    """Problems of items moved from the list to the field of the item."""
    if NetworkArguments not in form.models:
        return list(problems)
    return [_moved(problem) for problem in problems]


def _moved(problem: Problem) -> Problem:
    name, equals, rest = problem.message.partition("=")
    if problem.option != LIST or not equals or name not in specs(NetworkArguments):
        return problem
    return replace(problem, option=name, message=rest.partition(": ")[2] or rest)
