"""The noise that training adds to latents: offset, pyramid (multires) and input-perturbation noise.

The formulas are pure functions of their random draws; `draw_noise` makes the draws. It makes them on the CPU and
sample by sample, so a sample's noise depends on its own generator alone: not on the device, the batch around it or the
number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Generator, Tensor


class NoiseOptions(Protocol):
    """The options read here; every recipe has them."""

    noise_offset: float | None
    noise_offset_random_strength: bool
    adaptive_noise_scale: float | None
    multires_noise_iterations: int | None
    multires_noise_discount: float
    ip_noise_gamma: float | None
    ip_noise_gamma_random_strength: bool


class Noise(NamedTuple):
    """Noise of a batch, both (b, c, h, w)."""

    target: Tensor  # what the model should find
    added: Tensor  # what is mixed into its input; differs from `target` by the input perturbation


def draw_noise(latents: Tensor, cfg: NoiseOptions, generators: Generator | Sequence[Generator]) -> Noise:
    """Noise for latents (b, c, h, w), on their device and in their dtype.

    Args:
        generators: CPU generators, one per sample; or a single one that serves the samples in order.
    """
    return _draw(latents, cfg, generators, is_plain=False)


def draw_plain_noise(latents: Tensor, cfg: NoiseOptions, generators: Generator | Sequence[Generator]) -> Noise:
    """As `draw_noise` without offset and pyramid, for models that are trained down to pure white noise."""
    return _draw(latents, cfg, generators, is_plain=True)


def _draw(latents: Tensor, cfg: NoiseOptions, generators: Generator | Sequence[Generator], *, is_plain: bool) -> Noise:
    chosen = [generators] * len(latents) if isinstance(generators, Generator) else list(generators)
    if len(chosen) != len(latents):
        raise ValueError(f"{len(chosen)} generators for {len(latents)} samples")
    drawn = []
    for sample, generator in zip(latents, chosen, strict=True):
        noise = torch.randn((1, *sample.shape), generator=generator).to(latents)
        drawn.append(_perturbed(noise if is_plain else _coloured(noise, sample, cfg, generator), cfg, generator))
    target = torch.cat([noise.target for noise in drawn])
    return Noise(target, torch.cat([noise.added for noise in drawn]) if cfg.ip_noise_gamma else target)


def _coloured(noise: Tensor, latent: Tensor, cfg: NoiseOptions, generator: Generator) -> Tensor:
    """Noise (1, c, h, w) with offset and pyramid. All draws come from `generator`, in the order of the lines below."""
    shape = noise.shape
    if cfg.noise_offset:
        draw = torch.randn((1, shape[1], 1, 1), generator=generator).to(latent)
        strength = _strength(cfg.noise_offset, cfg.noise_offset_random_strength, generator)
        noise = offset_noise(noise, draw, strength, latent.unsqueeze(0), cfg.adaptive_noise_scale)
    if cfg.multires_noise_iterations:
        sizes = _level_sizes(shape[2], shape[3], cfg.multires_noise_iterations, generator)
        levels = [torch.randn((1, shape[1], *size), generator=generator).to(latent) for size in sizes]
        noise = pyramid_noise(noise, levels, cfg.multires_noise_discount)
    return noise


def _perturbed(noise: Tensor, cfg: NoiseOptions, generator: Generator) -> Noise:
    if not cfg.ip_noise_gamma:
        return Noise(noise, noise)
    draw = torch.randn(noise.shape, generator=generator).to(noise)
    gamma = _strength(cfg.ip_noise_gamma, cfg.ip_noise_gamma_random_strength, generator)
    return Noise(noise, perturbed_noise(noise, draw, gamma))


def offset_noise(
    noise: Tensor, draw: Tensor, strength: float, latents: Tensor | None = None, adaptive_scale: float | None = None
) -> Tensor:
    """Noise plus a constant per channel: a model so trained can change a picture's mean.

    Guttenberg, "Diffusion with Offset Noise" (2023); with `adaptive_scale` the strength grows (or shrinks, down to 0)
    with the size of the channel's mean.

    Args:
        draw: standard normal, (b, c, 1, 1).
        latents: (b, c, h, w); needed with `adaptive_scale`.
    """
    if not adaptive_scale:
        return noise + strength * draw
    if latents is None:
        raise ValueError("the adaptive offset needs the latents")
    mean = latents.mean(dim=(2, 3), keepdim=True).abs()
    return noise + (strength + adaptive_scale * mean).clamp(min=0) * draw


def pyramid_noise(noise: Tensor, levels: Sequence[Tensor], discount: float) -> Tensor:
    """Noise plus coarser noise, enlarged and fading by `discount` per level, brought back to unit variance per sample.

    Whitaker, "Multi-Resolution Noise for Diffusion Model Training" (2023).

    Args:
        levels: standard normal noise (b, c, h_i, w_i), the finest first.
    """
    size = noise.shape[2:]
    for i, level in enumerate(levels):
        noise = noise + F.interpolate(level, size=size, mode="bilinear", align_corners=False) * discount**i
    return noise / noise.std(dim=(1, 2, 3), keepdim=True)


def level_sizes(height: int, width: int, factors: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Sizes of the levels of pyramid noise: level i is factors[i]**i times smaller, and one of 1 px is the last."""
    for i, factor in enumerate(factors):
        size = (max(1, int(height / factor**i)), max(1, int(width / factor**i)))
        yield size
        if 1 in size:
            return


def perturbed_noise(noise: Tensor, draw: Tensor, gamma: float) -> Tensor:
    """Noise for the model's input only, against exposure bias (Ning et al., "Input Perturbation", arXiv:2301.11706)."""
    return noise + gamma * draw


def _level_sizes(height: int, width: int, iterations: int, generator: Generator) -> list[tuple[int, int]]:
    factors = (2 + 2 * torch.rand(iterations, generator=generator, dtype=torch.float64)).tolist()
    return list(level_sizes(height, width, factors))


def _strength(full: float, is_random: bool, generator: Generator) -> float:
    """The strength itself, or one drawn evenly between 0 and it."""
    return full * torch.rand((), generator=generator, dtype=torch.float64).item() if is_random else full
