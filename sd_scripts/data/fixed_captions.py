"""Captions that are the same at every use, so that their encoding can be cached."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sd_scripts.data.captions import Progress, caption_for_use

if TYPE_CHECKING:
    from sd_scripts.data.plan import DataPlan, Sample
    from sd_scripts.options.dataset import Captions

_DROPS_NONE = {"caption_dropout_rate": 0.0, "caption_dropout_every_n_epochs": 0}


def fixed_captions(plan: DataPlan) -> list[str]:
    """Every caption that is trained, each once, the empty one first if captions are dropped."""
    found: dict[str, None] = {}
    if any(_drops(subset.options) for subset in plan.subsets):
        found[""] = None
    for caption, _ in captions_by_sample(plan):
        found.setdefault(caption)
    return list(found)


def captions_by_sample(plan: DataPlan) -> Iterator[tuple[str, Sample]]:
    """The caption of each sample where it is not dropped."""
    options = [subset.options.model_copy(update=_DROPS_NONE) for subset in plan.subsets]
    start = Progress(epoch=1, step=0, total_steps=0)
    for sample in plan.samples:
        yield caption_for_use(sample.lines, options[sample.subset], start, random.Random(0)), sample


def _drops(options: Captions) -> bool:
    return options.caption_dropout_rate > 0 or options.caption_dropout_every_n_epochs > 0
