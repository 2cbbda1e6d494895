"""The loss of one batch: latents, noise, timesteps, prediction, weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sd_scripts.seeds import generator
from sd_scripts.training.forward_process import noise_latents
from sd_scripts.training.objective import training_loss

if TYPE_CHECKING:
    from sd_scripts.data.batch import Batch
    from sd_scripts.training.run import Run


def batch_loss(run: Run, epoch: int, batch: Batch, timesteps: Tensor | None = None) -> Tensor:
    """Scalar loss of a batch. Its draws depend on the seed, the epoch and each sample's own number, not on its neighbours.

    Args:
        timesteps: (b,) to use instead of drawn ones.
    """
    options, architecture = run.options, run.architecture
    batch = batch.to(run.accelerator.device)
    draws = [generator(run.seed, "noise", epoch, index) for index in batch.indices]
    latents = batch_latents(run, batch, draws)
    noised = noise_latents(latents, architecture.schedule, options, architecture.name, draws, timesteps)
    prediction = run.trainee(noised.noisy, noised.timesteps, batch.tokens)
    return training_loss(prediction, noised, options, batch.masks, batch.loss_weights)


def batch_latents(run: Run, batch: Batch, draws: list[torch.Generator]) -> Tensor:
    """Latents (b, c, h, w) in float32: from the cache, or encoded now."""
    if batch.latents is not None:
        return batch.latents.float()
    return run.encode(batch.pixels, draws)
