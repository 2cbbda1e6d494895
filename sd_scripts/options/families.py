"""The model families (architectures) by name, and the traits that options ask for. What a family is, is said where its
files are described: `sd_scripts.models.families`."""

from __future__ import annotations

from collections.abc import Collection

from sd_scripts.models.families import all_families

FAMILIES = dict(all_families())
MODEL_FAMILY = "model_family"  # the key by which a preset says what it is for, where no model's file does; no option


def acts_for(wanted: Collection[str], architectures: Collection[str]) -> bool:
    """Whether something that asks for these traits acts for one of the architectures."""
    return any(FAMILIES[name].has(wanted) for name in architectures)


def labels(wanted: Collection[str]) -> str:
    """The families that something with these traits is for, in words."""
    return ", ".join(family.label for family in FAMILIES.values() if family.has(wanted))
