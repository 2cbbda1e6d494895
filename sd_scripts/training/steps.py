"""How long a run is: the only place that turns pictures, epochs and batches into steps. No torch: the plan uses it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sd_scripts.options.output import Saving
from sd_scripts.options.training import Length


@dataclass(frozen=True)
class Steps:
    """Optimizer steps. The last step of an epoch may collect fewer batches than `accumulation`; none is lost."""

    batches_per_epoch: int  # of one process
    accumulation: int
    per_epoch: int
    total: int
    epochs: int

    def epoch_of(self, step: int) -> int:
        """The epoch (from 0) in which the step with this number (from 0) is made."""
        return step // self.per_epoch

    def batches_before(self, step: int) -> int:
        """Batches of its epoch that come before the step with this number (from 0)."""
        return (step % self.per_epoch) * self.accumulation


def count_steps(options: Length, batches_per_epoch: int, resumed_at: int = 0) -> Steps:
    """Steps of a run; epochs, when given, decide over `max_train_steps`.

    Args:
        batches_per_epoch: batches that one process gets in an epoch, at least 1.
        resumed_at: steps of the state that the run goes on from.
    """
    accumulation = options.gradient_accumulation_steps
    per_epoch = math.ceil(batches_per_epoch / accumulation)
    total = options.max_train_epochs * per_epoch if options.max_train_epochs else options.max_train_steps
    if getattr(options, "resume_length", "total") == "additional":
        total += first_step_of(options, per_epoch, resumed_at)
    return Steps(batches_per_epoch, accumulation, per_epoch, total, math.ceil(total / per_epoch))


def first_step_of(options: object, per_epoch: int, resumed_at: int) -> int:
    """Steps that count as made when the run begins."""
    step, epoch = getattr(options, "initial_step", None), getattr(options, "initial_epoch", None)
    if step is not None:
        return step
    return resumed_at if epoch is None else (epoch - 1) * per_epoch


def save_interval_epochs(options: Saving, epochs: int) -> int | None:
    """Epochs between files: `save_n_epoch_ratio` decides over `save_every_n_epochs`; None is never."""
    if options.save_n_epoch_ratio:
        return max(1, epochs // options.save_n_epoch_ratio)
    return options.save_every_n_epochs
