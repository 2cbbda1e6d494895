"""The forward process of flow-matching models, the counterpart of `NoiseSchedule`.

Liu et al., "Flow Straight and Fast" (arXiv:2209.03003); Lipman et al., "Flow Matching" (arXiv:2210.02747):
x_s = (1 - s) x_0 + s noise, where s (sigma) is the noise level, 0 … 1. The velocity along this line is noise - x_0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

# What of the denoiser's output is compared with what:
#   raw           the output, with the velocity
#   additive      the output plus its input, with the velocity
#   sigma_scaled  the clean latents it implies (input - s output), with the clean latents
Output = Literal["raw", "additive", "sigma_scaled"]

SMALLEST_SIGMA = 1e-4  # below it SNR and weights stay as they are there: at 0 they would be infinite


@dataclass(frozen=True)
class FlowSchedule:
    """What an architecture says of its flow matching; its `predict` takes timesteps s * steps and gives a velocity.

    Attributes:
        output: what is compared where users cannot choose (`model_prediction_type`).
        draws_whole_timesteps: noise levels come from a density over whole timesteps, not from `timestep_sampling`.
        patch: side of a token in latent pixels; shifts that grow with the picture count tokens.
        steps: the timestep of pure noise.
    """

    output: Output = "raw"
    draws_whole_timesteps: bool = False
    patch: int = 2
    steps: int = 1000

    def add_noise(self, latents: Tensor, noise: Tensor, sigmas: Tensor) -> Tensor:
        """Noisy latents x_s, shaped and typed like `latents` (b, c, …), at levels (b,)."""
        s = per_sample(sigmas, latents)
        return ((1 - s) * latents + s * noise).to(latents.dtype)

    def snr(self, sigmas: Tensor) -> Tensor:
        """Signal-to-noise ratio ((1 - s) / s)^2 at levels (b,)."""
        s = sigmas.clamp(min=SMALLEST_SIGMA)
        return ((1 - s) / s) ** 2

    def tokens(self, height: int, width: int) -> int:
        """Tokens of latents of this size."""
        return (height // self.patch) * (width // self.patch)


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """(b,) in float32 on the device of `like`, shaped to broadcast over its (b, …)."""
    return values.to(like.device).float().view(-1, *[1] * (like.dim() - 1))
