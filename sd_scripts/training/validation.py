"""The loss on held-out pictures, with noise and timesteps that never change: two measurements differ by the model alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sd_scripts.options.validation import Validation
from sd_scripts.training.batch_loss import loss_of
from sd_scripts.training.timesteps import timestep_bounds

if TYPE_CHECKING:
    from sd_scripts.data.batch import Batch
    from sd_scripts.data.loader import Loader
    from sd_scripts.training.run import Run

TIMESTEPS = 4  # for each picture


@dataclass(frozen=True)
class Measurement:
    """Mean losses over the held-out pictures: of all, and at each timestep."""

    loss: float
    by_timestep: dict[int, float]


class Validator:
    """Decides when to measure, and measures. It changes nothing in the run.

    Args:
        loader: of the held-out pictures, the same in every process.
        seed: of the noise.
    """

    def __init__(self, run: Run, options: Validation, loader: Loader, seed: int):
        self._run = run
        self._loader = loader
        self._seed = seed
        self._every_epochs = 1 if options.validate_every_n_epochs is None else options.validate_every_n_epochs
        self._every_steps = options.validate_every_n_steps
        self._most_batches = options.max_validation_steps
        self._measured_at: int | None = None
        low, high = timestep_bounds(run.options.min_timestep, run.options.max_timestep, run.architecture.schedule.steps)
        self.timesteps = spread_timesteps(low, high)

    def after_step(self, step: int) -> None:
        if self._every_steps and step % self._every_steps == 0:
            self.measure()

    def after_epoch(self, epoch: int) -> None:
        """`epoch` epochs are complete."""
        if self._every_epochs and epoch % self._every_epochs == 0:
            self.measure()

    def at_end(self) -> None:
        """The last weights are measured too, wherever the run ends."""
        if not self._run.is_stopped:
            self.measure()

    def measure(self) -> None:
        """Measure now and report it, unless this step was measured already. All processes have to call it."""
        run = self._run
        if self._measured_at == run.step:
            return
        self._measured_at = run.step
        run.report.phase("validating")
        run.method.trainee.eval()
        try:
            with torch.no_grad(), run.final_weights():
                measured = self._mean_losses()
        finally:
            run.method.set_training()
        run.report.validation(run.step, run.epoch, measured.loss, measured.by_timestep)
        run.report.phase("training")

    def close(self) -> None:
        self._loader.close()

    def _mean_losses(self) -> Measurement:
        processes = self._run.processes
        sums = torch.zeros(len(self.timesteps) + 1, device=self._run.accelerator.device)
        batches = self._loader.epoch(0, skip_batches=processes.rank, stop=self._most_batches, stride=processes.count)
        for batch in batches:
            losses = torch.stack([self._loss(batch, timestep) for timestep in self.timesteps])
            sums += torch.cat([losses, torch.ones_like(losses[:1])]) * len(batch)
        *totals, count = processes.total(sums.double().cpu()).tolist()
        means = [total / count if count else math.nan for total in totals]
        return Measurement(sum(means) / len(means), dict(zip(self.timesteps, means, strict=True)))

    def _loss(self, batch: Batch, timestep: int) -> Tensor:
        # Not through the wrapper for several devices: its parts meet there, and they need not have as many batches.
        fixed = torch.full((len(batch),), timestep)
        return loss_of(self._run, self._run.method.trainee, batch, (self._seed, "validation"), fixed).float()


def spread_timesteps(low: int, high: int, count: int = TIMESTEPS) -> tuple[int, ...]:
    """So many timesteps evenly within low … high - 1, without its ends; fewer where there is not room for all."""
    return tuple(dict.fromkeys(low + (high - low) * part // (count + 1) for part in range(1, count + 1)))
