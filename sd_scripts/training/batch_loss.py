"""The loss of one batch: latents, noise, timesteps, prediction, weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sd_scripts.seeds import generator
from sd_scripts.training.noise import draw_noise
from sd_scripts.training.objective import training_loss
from sd_scripts.training.timesteps import timestep_bounds, uniform_timesteps

if TYPE_CHECKING:
    from sd_scripts.data.batch import Batch
    from sd_scripts.training.run import Run


def batch_loss(run: Run, epoch: int, batch: Batch) -> Tensor:
    """Scalar loss of a batch. Its draws depend on the seed, the epoch and each sample's own number, not on its neighbours."""
    options, schedule = run.options, run.architecture.schedule
    batch = batch.to(run.accelerator.device)
    draws = [generator(run.seed, "noise", epoch, index) for index in batch.indices]
    latents = batch_latents(run, batch, draws)
    noise = draw_noise(latents, options, draws)
    low, high = timestep_bounds(options.min_timestep, options.max_timestep)
    timesteps = uniform_timesteps(len(latents), low, high, draws).to(latents.device)
    noisy = schedule.add_noise(latents, noise.added, timesteps)
    target = schedule.target(latents, noise.target, timesteps)
    prediction = run.trainee(noisy, timesteps, batch.tokens)
    return training_loss(prediction, target, timesteps, schedule, options, batch.masks, batch.loss_weights)


def batch_latents(run: Run, batch: Batch, draws: list[torch.Generator]) -> Tensor:
    """Latents (b, c, h, w) in float32: from the cache, or encoded now."""
    if batch.latents is not None:
        return batch.latents.float()
    return run.encode(batch.pixels, draws)
