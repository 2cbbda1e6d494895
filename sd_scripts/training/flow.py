"""Flow matching: how noise levels are drawn, what is compared, and how levels are weighted.

Pure functions of their random draws; sigma (s) is the noise level, 0 … 1. Densities, weights and shift: Esser et al., "Scaling
Rectified Flow Transformers" (arXiv:2403.03206).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Generator, Tensor

from sd_scripts.models.flow_schedule import SMALLEST_SIGMA, FlowSchedule, Output, per_sample
from sd_scripts.options.families import acts_for
from sd_scripts.options.objective import Flow
from sd_scripts.options.schema import specs

Sampling = Literal["sigma", "uniform", "sigmoid", "shift", "flux_shift", "nextdit_shift"]
Scheme = Literal["sigma_sqrt", "logit_normal", "mode", "cosmap", "none", "uniform"]

# The log of the shift rises linearly with the number of tokens, through these two points (tokens, log of the shift).
SHIFT_POINTS = ((256, 0.5), (4096, 1.15))
NORMAL_DRAWS = ("sigmoid", "shift", "flux_shift")  # these begin with a normal draw, the others with an even one


class FlowOptions(Protocol):
    """The options read here; every recipe has them."""

    timestep_sampling: Sampling | None
    sigmoid_scale: float
    discrete_flow_shift: float | None
    training_shift: float
    weighting_scheme: Scheme
    logit_mean: float
    logit_std: float
    mode_scale: float
    model_prediction_type: Output | None


@dataclass(frozen=True)
class FlowSettings:
    """The options as they act for one model family."""

    sampling: Sampling | None  # None: a density over whole timesteps
    shift: float
    sigmoid_scale: float
    density: Scheme
    logit_mean: float
    logit_std: float
    mode_scale: float
    output: Output
    weighting: Scheme

    @classmethod
    def of(cls, cfg: FlowOptions, family: str, schedule: FlowSchedule) -> FlowSettings:
        """Unset options as is usual for the family; those that are not for it do not act."""
        sampling = None if schedule.draws_whole_timesteps else _acting(cfg, "timestep_sampling", family)
        shift = _acting(cfg, "training_shift" if sampling is None else "discrete_flow_shift", family)
        output = _acting(cfg, "model_prediction_type", family)
        # A weight of the noise level is for the error of the clean latents; where the output cannot be chosen, for any.
        is_weighted = output in (None, "sigma_scaled")
        return cls(
            sampling,
            1.0 if shift is None else shift,
            cfg.sigmoid_scale,
            cfg.weighting_scheme,
            cfg.logit_mean,
            cfg.logit_std,
            cfg.mode_scale,
            output or schedule.output,
            cfg.weighting_scheme if is_weighted else "none",
        )

    @property
    def takes_normal_draws(self) -> bool:
        if self.sampling in (None, "sigma"):
            return self.density == "logit_normal"
        return self.sampling in NORMAL_DRAWS


def _acting(cfg: FlowOptions, name: str, family: str) -> object:
    """An option's value where it is for this family, its usual value there if unset; else None."""
    spec = specs(Flow)[name]
    if not acts_for(spec.only_for, (family,)):
        return None
    value = getattr(cfg, name)
    return spec.default_for(family) if value is None else value


# Noise levels


def draw_sigmas(
    count: int,
    settings: FlowSettings,
    schedule: FlowSchedule,
    size: tuple[int, int],
    bounds: tuple[int, int],
    generators: Sequence[Generator],
) -> Tensor:
    """Noise levels (count,) on the CPU; each sample draws from its own generator.

    Args:
        size: of the latents, (height, width).
        bounds: lowest and highest timestep.
    """
    draw = torch.randn if settings.takes_normal_draws else torch.rand
    draws = torch.cat([draw(1, generator=generator) for generator in generators])
    if len(draws) != count:
        raise ValueError(f"{len(draws)} generators for {count} samples")
    return sigmas_from(draws, settings, schedule, size, bounds)


def sigmas_from(
    draws: Tensor, settings: FlowSettings, schedule: FlowSchedule, size: tuple[int, int], bounds: tuple[int, int]
) -> Tensor:
    """Noise levels from even (0 … 1) or standard normal draws (b,), in float32.

    They are moved into the bounds as a whole, so that their shape stays.
    """
    low, high = bounds
    if settings.sampling is None:
        u = shifted(density(draws, settings), settings.shift)
        return (u * (high - low) + low).floor() / schedule.steps
    levels = _levels(draws, settings, schedule, size)
    return levels * ((high - low) / schedule.steps) + low / schedule.steps


def _levels(draws: Tensor, settings: FlowSettings, schedule: FlowSchedule, size: tuple[int, int]) -> Tensor:
    normal = draws * settings.sigmoid_scale
    match settings.sampling:
        case "sigma":
            return from_table(density(draws, settings), settings.shift, schedule.steps)
        case "uniform":
            return draws
        case "sigmoid":
            return normal.sigmoid()
        case "shift":
            return shifted(normal.sigmoid(), settings.shift)
        case "flux_shift":
            return shifted(normal.sigmoid(), shift_for(schedule.tokens(*size)))
        case "nextdit_shift":
            return shifted(draws, shift_for(schedule.tokens(*size)))
    raise ValueError(f"unknown timestep_sampling {settings.sampling!r}")


def density(draws: Tensor, settings: FlowSettings) -> Tensor:
    """Places 0 … 1 in the table of timesteps: even ones, or by logit_normal or mode."""
    match settings.density:
        case "logit_normal":
            return (draws * settings.logit_std + settings.logit_mean).sigmoid()
        case "mode":
            return mode(draws, settings.mode_scale)
    return draws


def mode(u: Tensor, scale: float) -> Tensor:
    """Even draws with heavy tails and a mode in the middle (arXiv:2403.03206, equation 20)."""
    return 1 - u - scale * (torch.cos(math.pi / 2 * u) ** 2 - 1 + u)


def from_table(u: Tensor, shift: float, steps: int) -> Tensor:
    """The entry at place u (0 … 1) of the sampler's table, which falls from 1 in `steps` equal parts, then is shifted."""
    index = (u * steps).long().clamp(0, steps - 1)
    return shifted((steps - index) / steps, shift)


def shifted(sigmas: Tensor, shift: float) -> Tensor:
    """Levels moved to more noise (shift above 1) or less (arXiv:2403.03206, equation 23)."""
    return shift * sigmas / (1 + (shift - 1) * sigmas)


def shift_for(tokens: int) -> float:
    """The shift that grows with the picture, as FLUX.1 was trained."""
    (few, low), (many, high) = SHIFT_POINTS
    return math.exp(low + (high - low) * (tokens - few) / (many - few))


# What is compared


def compared_output(output: Tensor, noisy: Tensor, sigmas: Tensor, kind: Output) -> Tensor:
    """What the denoiser's output (b, c, …) becomes before it is compared (see `Output`)."""
    match kind:
        case "raw":
            return output
        case "additive":
            return output + noisy
        case "sigma_scaled":
            return noisy - per_sample(sigmas, noisy) * output
    raise ValueError(f"unknown model_prediction_type {kind!r}")


def compared_target(latents: Tensor, noise: Tensor, kind: Output) -> Tensor:
    """What it is compared with.

    sd-scripts compares the clean latents of sigma_scaled with the velocity for all models but SD 3. No model can be right
    then: the output that this asks for is not the velocity that samplers take it for.
    """
    return latents if kind == "sigma_scaled" else noise - latents


def level_weight(sigmas: Tensor, scheme: Scheme) -> Tensor:
    """Weight of each level (b,): 1/s^2 (sigma_sqrt: errors of clean latents count as errors of the velocity), 2 / (pi (1 - 2s +
    2s^2)) (cosmap), else 1.
    """
    match scheme:
        case "sigma_sqrt":
            return sigmas.clamp(min=SMALLEST_SIGMA) ** -2.0
        case "cosmap":
            return 2 / (math.pi * (1 - 2 * sigmas + 2 * sigmas**2))
    return torch.ones_like(sigmas)
