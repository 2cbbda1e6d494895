"""Legal values for every option, different from its default."""

from __future__ import annotations

from typing import Any

from sd_scripts.options.schema import OptionSpec


def another_value(spec: OptionSpec) -> Any:
    """A legal value that is not the default of any model family."""
    usual = [spec.default, *spec.defaults.values()]
    if spec.is_flag:
        return not spec.default
    if spec.choices:
        fitting = [choice for choice in reversed(spec.choices) if choice not in usual]
        return fitting[0] if fitting else next(c for c in reversed(spec.choices) if c != spec.default)
    if spec.is_list:
        return {str: ["a=1", "b c=$(x) 桌面"], float: [0.5, 1e-5], int: [3, 4]}[spec.type]
    if spec.type is str:
        return f"/a b/[{spec.name}] 桌面 #1.toml"
    low = spec.minimum if spec.minimum is not None else spec.exclusive_minimum
    high = spec.maximum if spec.maximum is not None else spec.exclusive_maximum
    candidates = [7, 3, 0.25, 0.125] if spec.type is float else [7, 3, 600]
    return next(c for c in candidates if (low is None or c > low) and (high is None or c < high) and c not in usual)
