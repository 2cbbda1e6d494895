"""Every random choice of the data pipeline as a pure function of where it is used.

A stream depends on (seed, epoch, sample, use, purpose) alone, so batches are the same for any number of workers and
processes and after a resume; one stream a purpose, so that switching flips on does not reshuffle the captions.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from sd_scripts.seeds import seed_of

Purpose = Literal["caption", "flip", "crop", "colour"]


@dataclass(frozen=True)
class Use:
    """One use of a sample in an epoch. `repeat` counts the uses of the same sample within the epoch from 0."""

    seed: int
    epoch: int
    sample: int
    repeat: int

    def draws(self, purpose: Purpose) -> random.Random:
        """A generator for one purpose; the same each time it is asked for."""
        return random.Random(self._number(purpose))

    def is_heads(self, purpose: Purpose) -> bool:
        """A coin thrown for one purpose; the same each time. A generator would take as long as the rest of a cached sample."""
        return self._number(purpose) % 2 == 1

    def _number(self, purpose: Purpose) -> int:
        return seed_of(self.seed, self.epoch, self.sample, self.repeat, purpose)
