"""The model families (architectures) by name, and the traits that options ask for.

An option that acts for some families only names a trait or a family in `only_for`; a new family is one more row here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """A model family.

    `traits`: "noise" (predicts noise or velocity) or "flow" (flow matching); "unet" or "dit" (transformer blocks); "clip"
    (prompts in chunks of 75 CLIP tokens); "t5" (a T5 text encoder).
    """

    name: str
    label: str
    traits: frozenset[str]

    def has(self, wanted: Collection[str]) -> bool:
        """Whether one of these traits or names is the family's; nothing wanted: always."""
        return not wanted or self.name in wanted or not self.traits.isdisjoint(wanted)


FAMILIES = {
    name: Family(name, label, frozenset(traits.split()))
    for name, label, traits in (
        ("sd1", "Stable Diffusion 1.x", "noise unet clip"),
        ("sd2", "Stable Diffusion 2.x", "noise unet clip"),
        ("sdxl", "SDXL", "noise unet clip"),
        ("sd3", "Stable Diffusion 3", "flow dit t5"),
        ("flux", "FLUX.1", "flow dit t5"),
        ("chroma", "Chroma", "flow dit t5"),
        ("lumina", "Lumina Image 2.0", "flow dit"),
        ("anima", "Anima", "flow dit"),
        ("hunyuan_image", "HunyuanImage-2.1", "flow dit"),
    )
}


def acts_for(wanted: Collection[str], architectures: Collection[str]) -> bool:
    """Whether something that asks for these traits acts for one of the architectures."""
    return any(FAMILIES[name].has(wanted) for name in architectures)


def labels(wanted: Collection[str]) -> str:
    """The families that something with these traits is for, in words."""
    return ", ".join(family.label for family in FAMILIES.values() if family.has(wanted))
