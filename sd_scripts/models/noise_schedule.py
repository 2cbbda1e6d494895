"""The forward process of DDPM models: how noisy a timestep is, and what the denoiser is to predict there.

Symbols as in Ho et al. 2020 (alpha_bar) and Salimans & Ho 2022 (v):
x_t = sqrt(alpha_bar) x_0 + sqrt(1 - alpha_bar) noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

PredictionType = Literal["epsilon", "v"]


@dataclass(frozen=True)
class NoiseSchedule:
    """A discrete schedule.

    Attributes:
        betas: noise variance that each timestep adds, (steps,), float32.
        alphas_cumprod: alpha_bar of each timestep, (steps,), float32, falling.
        prediction: what the denoiser predicts.
    """

    betas: Tensor
    alphas_cumprod: Tensor
    prediction: PredictionType = "epsilon"

    @classmethod
    def scaled_linear(
        cls, prediction: PredictionType = "epsilon", steps: int = 1000, first: float = 0.00085, last: float = 0.012
    ) -> NoiseSchedule:
        """Stable Diffusion's schedule: the square roots of beta rise linearly from `first` to `last`."""
        betas = torch.linspace(first**0.5, last**0.5, steps, dtype=torch.float32) ** 2
        return cls(betas, torch.cumprod(1.0 - betas, dim=0), prediction)

    @property
    def steps(self) -> int:
        """Number of timesteps; they run from 0 to steps - 1."""
        return len(self.alphas_cumprod)

    def to(self, device: torch.device | str) -> NoiseSchedule:
        """The same on another device."""
        return replace(self, betas=self.betas.to(device), alphas_cumprod=self.alphas_cumprod.to(device))

    def with_zero_terminal_snr(self) -> NoiseSchedule:
        """Rescaled so that the last timestep is pure noise (Lin et al. 2023, algorithm 1)."""
        root = self.alphas_cumprod.sqrt()
        first, last = root[0].clone(), root[-1].clone()
        alphas_cumprod = ((root - last) * (first / (first - last))) ** 2
        before = torch.cat([alphas_cumprod.new_ones(1), alphas_cumprod[:-1]])
        return replace(self, betas=1.0 - alphas_cumprod / before, alphas_cumprod=alphas_cumprod)

    def snr(self, timesteps: Tensor) -> Tensor:
        """Signal-to-noise ratio alpha_bar / (1 - alpha_bar) at integer timesteps; 0 where all is noise."""
        alpha_bar = self._alpha_bar(timesteps)
        return alpha_bar / (1.0 - alpha_bar)

    def add_noise(self, latents: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        """Noisy latents x_t, shaped and typed like `latents` (b, c, h, w), at integer timesteps (b,)."""
        signal, spread = self._scales(timesteps, latents)
        return (signal * latents + spread * noise).to(latents.dtype)

    def target(self, latents: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        """What the denoiser is to predict: the noise, or v = sqrt(alpha_bar) noise - sqrt(1 - alpha_bar) x_0."""
        if self.prediction == "epsilon":
            return noise
        signal, spread = self._scales(timesteps, latents)
        return (signal * noise - spread * latents).to(latents.dtype)

    def _alpha_bar(self, timesteps: Tensor) -> Tensor:
        return self.alphas_cumprod[timesteps.to(self.alphas_cumprod.device)].to(timesteps.device)

    def _scales(self, timesteps: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """sqrt(alpha_bar) and sqrt(1 - alpha_bar), float32, shaped (b, 1, …) to go with `like`."""
        alpha_bar = self._alpha_bar(timesteps).to(like.device).view(-1, *[1] * (like.ndim - 1))
        return alpha_bar.sqrt(), (1.0 - alpha_bar).sqrt()
