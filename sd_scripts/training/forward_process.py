"""What a step trains on: noisy latents, what the model should make of them, and how much each sample counts.

One function for all models: an architecture gives its `NoiseSchedule` (noise or v prediction) or `FlowSchedule`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Generator, Tensor

from sd_scripts.models.flow_schedule import FlowSchedule, Output
from sd_scripts.models.noise_schedule import NoiseSchedule
from sd_scripts.training.flow import (
    FlowOptions,
    FlowSettings,
    compared_output,
    compared_target,
    draw_sigmas,
    level_weight,
)
from sd_scripts.training.noise import NoiseOptions, draw_noise, draw_plain_noise
from sd_scripts.training.objective import LossOptions, timestep_weights
from sd_scripts.training.timesteps import timestep_bounds, uniform_timesteps


class ProcessOptions(NoiseOptions, LossOptions, FlowOptions, Protocol):
    """The options read here; every recipe has them."""

    min_timestep: int | None
    max_timestep: int | None


@dataclass(frozen=True)
class Noised:
    """A batch after the forward process; tensors on the device of the latents.

    Attributes:
        noisy: the model's input (b, c, h, w).
        target: what the model's output is compared with, after `compared`.
        timesteps: (b,), as the denoiser takes them: whole numbers, or for flow matching 1000 sigma.
        progress: timestep / steps, 0 … 1 (b,).
        snr: signal-to-noise ratio (b,).
        weights: what the timestep makes each sample count (b,).
        output: what is compared.
    """

    noisy: Tensor
    target: Tensor
    timesteps: Tensor
    progress: Tensor
    snr: Tensor
    weights: Tensor
    output: Output = "raw"

    def compared(self, prediction: Tensor) -> Tensor:
        """The model's output in the form that is compared with `target`."""
        if self.output == "raw":
            return prediction
        return compared_output(prediction.float(), self.noisy.float(), self.progress, self.output)


def noise_latents(
    latents: Tensor,
    schedule: NoiseSchedule | FlowSchedule,
    cfg: ProcessOptions,
    family: str,
    generators: Sequence[Generator],
    timesteps: Tensor | None = None,
) -> Noised:
    """Noise, noise level and target of each sample, from its own CPU generator alone.

    Args:
        latents: clean ones (b, c, h, w).
        family: name of the model family, whose usual settings stand in for unset options.
        timesteps: (b,) in 0 … steps instead of drawn ones, e.g. for validation.
    """
    low, high = timestep_bounds(cfg.min_timestep, cfg.max_timestep, schedule.steps)
    if isinstance(schedule, NoiseSchedule):
        noise = draw_noise(latents, cfg, generators)
        if timesteps is None:
            timesteps = uniform_timesteps(len(latents), low, high, generators)
        return diffused(latents, noise.target, noise.added, schedule, timesteps.long().to(latents.device), cfg)
    noise = draw_plain_noise(latents, cfg, generators)
    settings = FlowSettings.of(cfg, family, schedule)
    if timesteps is None:
        size = (latents.shape[-2], latents.shape[-1])
        sigmas = draw_sigmas(len(latents), settings, schedule, size, (low, high), generators)
    else:
        sigmas = timesteps / schedule.steps
    return flowed(latents, noise.target, noise.added, schedule, sigmas.to(latents.device), settings)


def diffused(
    latents: Tensor, noise: Tensor, added: Tensor, schedule: NoiseSchedule, timesteps: Tensor, cfg: LossOptions
) -> Noised:
    """The forward process of noise- and v-prediction models at whole timesteps (b,).

    Args:
        noise: what the target is made of. `added`: what the model sees; it differs by the input perturbation.
    """
    snr = schedule.snr(timesteps)
    return Noised(
        noisy=schedule.add_noise(latents, added, timesteps),
        target=schedule.target(latents, noise, timesteps),
        timesteps=timesteps,
        progress=timesteps / schedule.steps,
        snr=snr,
        weights=timestep_weights(snr, schedule.prediction, cfg),
    )


def flowed(
    latents: Tensor, noise: Tensor, added: Tensor, schedule: FlowSchedule, sigmas: Tensor, settings: FlowSettings
) -> Noised:
    """The forward process of flow matching at noise levels (b,)."""
    sigmas = sigmas.to(torch.float32)
    return Noised(
        noisy=schedule.add_noise(latents, added, sigmas),
        target=compared_target(latents, noise, settings.output),
        timesteps=sigmas * schedule.steps,
        progress=sigmas,
        snr=schedule.snr(sigmas),
        weights=level_weight(sigmas, settings.weighting),
        output=settings.output,
    )
