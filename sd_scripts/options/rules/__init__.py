"""Rules between options. Each is a small function that yields problems; trainer, GUI and `check` run the same ones.

A rule reads only options and the families that the model may be of. What needs the model file or the pictures is found
where those are read (`sd_scripts.plan`). That an option does nothing without another, or for a family, is said by its
declaration and found by `sd_scripts.options.effect`: no rule repeats it.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import get_type_hints

from sd_scripts.options.problems import Problem
from sd_scripts.options.recipes import CommonOptions
from sd_scripts.options.rules import captions, data, loss, model, network, optimizer, output, precision
from sd_scripts.options.rules.base import Families, Rule
from sd_scripts.options.rules.output import why_not_writable
from sd_scripts.options.schema import Options

__all__ = ["RULES", "check_options", "why_not_writable"]

RULES: tuple[Rule, ...] = (
    *model.RULES, *data.RULES, *captions.RULES, *network.RULES, *optimizer.RULES, *precision.RULES, *loss.RULES,
    *output.RULES,
)  # fmt: skip


def check_options(options: CommonOptions, architectures: Families) -> list[Problem]:
    """All problems that the options have between themselves, in the order of the rules.

    Args:
        architectures: the families that the model may be of: one once it is known.
    """
    return [problem for rule in RULES for problem in _asked(rule, options, architectures)]


def _asked(rule: Rule, options: CommonOptions, families: Families) -> list[Problem]:
    """What a rule finds, where the trainer has the options that it reads."""
    group, reads_families = _signature(rule)
    if not isinstance(options, group):
        return []
    return list(rule(options, families) if reads_families else rule(options))


@lru_cache
def _signature(rule: Rule) -> tuple[type[Options], bool]:
    """The group of options that a rule reads, by its annotation, and whether it asks for the families."""
    return get_type_hints(rule)["options"], "families" in inspect.signature(rule).parameters
