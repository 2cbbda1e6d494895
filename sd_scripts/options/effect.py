"""Options that are given and do nothing: for this model family, with these other options, or because their code is still
to come. Read from the declarations (`only_for`, `only_with`, `available`); no option is named here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sd_scripts.options.families import FAMILIES, acts_for, labels
from sd_scripts.options.problems import Problem, error, warning
from sd_scripts.options.schema import SET, Options, OptionSpec, specs


def check_effect(options: Options, architectures: Collection[str]) -> Iterator[Problem]:
    """A problem for each option that differs from its default in vain.

    Args:
        architectures: the families that the model may be of: one once it is known.
    """
    known = specs(type(options))
    values = {name: _value_or_usual(getattr(options, name), spec, architectures) for name, spec in known.items()}
    for name, spec in known.items():
        if name not in options.model_fields_set or getattr(options, name) == spec.default:
            continue
        if not acts_for(spec.only_for, architectures):
            yield warning(name, f"has no effect for {_families(architectures)}", f"it is for {labels(spec.only_for)}")
        elif unmet := unmet_condition(spec, values):
            yield warning(name, f"has no effect {unmet}", "remove it, or set that too")
        elif not spec.available:
            yield error(name, "is not yet available", "leave it out")


def _value_or_usual(value: Any, spec: OptionSpec, architectures: Collection[str]) -> Any:
    """An option's value; if unset, what stands in for it where that is the same for all the families."""
    usual = {spec.default_for(architecture) for architecture in architectures} if value is None else ()
    return next(iter(usual)) if len(usual) == 1 else value


def unmet_condition(spec: OptionSpec, values: Mapping[str, Any]) -> str | None:
    """The first thing that keeps an option from acting, in words ("without noise_offset"); None if nothing does."""
    for other, wanted in spec.only_with.items():
        if other not in values or holds(wanted, values[other]):
            continue
        if wanted is SET or wanted is True:
            return f"without {other}"
        if wanted is False:
            return f"with {other}"
        allowed = wanted if isinstance(wanted, tuple) else (wanted,)
        return f"unless {other} is {' or '.join(str(value) for value in allowed)}"
    return None


def holds(wanted: Any, value: Any) -> bool:
    """Whether an option's value is what another one asks of it in `only_with`. Texts are compared without case."""
    if wanted is SET:
        return value not in (None, "", False, 0)
    allowed = wanted if isinstance(wanted, tuple) else (wanted,)
    return any(_folded(value) == _folded(one) for one in allowed)


def _folded(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value


def _families(architectures: Collection[str]) -> str:
    return ", ".join(FAMILIES[name].label for name in architectures)
