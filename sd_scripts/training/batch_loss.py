"""The loss of one batch: latents, noise, timesteps, prediction, weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from sd_scripts.seeds import generator
from sd_scripts.training.forward_process import noise_latents
from sd_scripts.training.objective import training_loss

if TYPE_CHECKING:
    from sd_scripts.data.batch import Batch
    from sd_scripts.training.run import Run


def batch_loss(run: Run, epoch: int, batch: Batch) -> Tensor:
    """Scalar loss of a batch. Its draws depend on the seed, the epoch and each sample's own number, not on its neighbours."""
    return loss_of(run, run.trainee, batch, (run.seed, epoch))


def loss_of(
    run: Run, trainee: nn.Module, batch: Batch, when: tuple[object, ...], timesteps: Tensor | None = None
) -> Tensor:
    """Scalar loss of a batch.

    Args:
        trainee: the method's, wrapped for the devices or not.
        when: what decides each sample's draws besides its own number.
        timesteps: (b,) to use instead of drawn ones.
    """
    options, architecture = run.options, run.architecture
    batch = batch.to(run.accelerator.device)
    seed, *rest = when
    draws = [generator(seed, "noise", *rest, index) for index in batch.indices]
    latents = batch_latents(run, batch, when)
    noised = noise_latents(latents, architecture.schedule, options, architecture.name, draws, timesteps)
    prediction = trainee(noised.noisy, noised.timesteps, batch.tokens, batch.text, batch.sizes)
    return training_loss(prediction, noised, options, batch.masks, batch.loss_weights)


def batch_latents(run: Run, batch: Batch, when: tuple[object, ...]) -> Tensor:
    """Latents (b, c, h, w) in float32: from the cache, or encoded now. The VAE's draws are its own, so that the noise is
    the same either way."""
    if batch.latents is not None:
        return batch.latents.float()
    seed, *rest = when
    return run.encode(batch.pixels, [generator(seed, "latents", *rest, index) for index in batch.indices])
