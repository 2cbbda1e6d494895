"""Picture sizes as options give them, and what a model family asks of them."""

from __future__ import annotations

import re
from collections.abc import Collection

from sd_scripts.options.families import FAMILIES
from sd_scripts.options.problems import Problem, error

DIVISORS = {name: family.divisor for name, family in FAMILIES.items()}
"""Sides of training pictures must be multiples of so many px."""


def divisor_of(families: Collection[str]) -> int:
    """The divisor that suits every one of these families: each is a multiple of the smaller ones."""
    return max(DIVISORS[family] for family in families)


def parse_resolution(text: str) -> tuple[int, int] | None:
    """(width, height) of "512", "512,768" or "512x768"; None for anything else."""
    match = re.fullmatch(r"\s*(\d+)\s*(?:[,x]\s*(\d+)\s*)?", text)
    if match is None or not int(match[1]) or (match[2] and not int(match[2])):
        return None
    return int(match[1]), int(match[2] or match[1])


def check_resolution(text: str, divisor: int) -> list[Problem]:
    """A text that is no size, or sides that the model cannot train at."""
    resolution = parse_resolution(text)
    if resolution is None:
        return [error("resolution", f"{text!r} is no size", "write 512, or width,height as in 512,768")]
    problems = []
    for side in dict.fromkeys(resolution):
        if side % divisor:
            below, above = side // divisor * divisor, -(-side // divisor) * divisor
            nearest = f"nearest are {below} and {above}" if below else f"nearest is {above}"
            problems.append(error("resolution", f"{side} is not a multiple of {divisor}", nearest))
    return problems


def check_bucket_steps(step: int, divisor: int) -> list[Problem]:
    """Bucket sides that the model cannot train at."""
    if step % divisor == 0:
        return []
    text = f"{step} is not a multiple of {divisor}, which this model needs"
    return [error("bucket_reso_steps", text, f"nearest is {max(1, round(step / divisor)) * divisor}")]
