"""What rules have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sd_scripts.options.families import FAMILIES
from sd_scripts.options.problems import Problem, error
from sd_scripts.options.schema import Options

Families = tuple[str, ...]
"""The families that the model may be of: one once it is known."""

Rule = Callable[..., Iterator[Problem]]
"""A function of `options` (annotated with the group that it reads), and of `families` where they matter."""

FUSED = ("fused_backward_pass", "fused_optimizer_groups", "blockwise_fused_optimizers")
"""Ways to step inside the backward pass."""


def all_are(families: Families, *wanted: str) -> bool:
    """Whether the model is certainly of one of these families or traits."""
    return all(FAMILIES[family].has(wanted) for family in families)


def some_are(families: Families, *wanted: str) -> bool:
    """Whether the model may be of one of these families or traits."""
    return any(FAMILIES[family].has(wanted) for family in families)


def is_given(options: Options, name: str) -> bool:
    """Whether an option was set to something else than its default."""
    return name in options.model_fields_set and getattr(options, name) != type(options).model_fields[name].default


def named_file(name: str, path: str) -> Iterator[Problem]:
    """A file that an option names has to be there."""
    if not Path(path).is_file():
        yield error(name, f"{path}: no such file", "check the path")


def items(texts: list[str] | None) -> dict[str, Any]:
    """Arguments given as name=value, by name; those that cannot be read are found by their own check."""
    found = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if equals:
            found[name.strip()] = value.strip()
    return found
