"""What is minimised: element-wise errors and the weights of timesteps and samples, as pure functions of tensors.

Symbols: t timestep, gamma the clamp of min-SNR, delta the threshold of the Huber family; SNR = alpha_bar / (1 - alpha_bar)
of a sample's timestep, or ((1 - sigma) / sigma)^2. A `loss` without further word is one value per sample, shape (b,).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from sd_scripts.training.forward_process import Noised

LossType = Literal["l2", "l1", "huber", "smooth_l1"]
HuberSchedule = Literal["constant", "exponential", "snr"]
Prediction = Literal["epsilon", "v"]

# SNR outside counts as the nearer end in all weights but min-SNR: at 1000 as sd-scripts has it; at 0.001 so that the
# weights stay finite on a zero-terminal schedule, which ends at SNR 0.
SNR_RANGE = (1e-3, 1e3)


class LossOptions(Protocol):
    """The options read here; every recipe has them."""

    loss_type: LossType
    huber_schedule: HuberSchedule
    huber_c: float
    huber_scale: float
    min_snr_gamma: float | None
    debiased_estimation_loss: bool
    scale_v_pred_loss_like_noise_pred: bool
    v_pred_like_loss: float | None


def training_loss(
    prediction: Tensor,
    noised: Noised,
    cfg: LossOptions,
    mask: Tensor | None = None,
    sample_weights: Tensor | None = None,
) -> Tensor:
    """The scalar to minimise: mean of `sample_losses`."""
    return sample_losses(prediction, noised, cfg, mask, sample_weights).mean()


def sample_losses(
    prediction: Tensor,
    noised: Noised,
    cfg: LossOptions,
    mask: Tensor | None = None,
    sample_weights: Tensor | None = None,
) -> Tensor:
    """Weighted loss per sample (b,), in float32.

    Args:
        prediction: the model's output (b, c, h, w).
        noised: what it was made from, with the target.
        mask: (b, h', w') or (b, 1, h', w') in 0…1, of any size; 0 means that the place does not count.
        sample_weights: (b,), e.g. the prior-loss weight of regularization pictures.
    """
    delta = None
    if cfg.loss_type in ("huber", "smooth_l1"):
        delta = huber_threshold(cfg.huber_schedule, cfg.huber_c, cfg.huber_scale, noised.progress, noised.snr)
    compared = noised.compared(prediction).float()
    elements = pointwise_loss(compared, noised.target.float(), cfg.loss_type, delta)
    if mask is not None:
        elements = masked(elements, mask)
    loss = elements.flatten(1).mean(1)
    if sample_weights is not None:
        loss = loss * sample_weights.to(loss)
    return loss * noised.weights.to(loss)


def timestep_weights(snr: Tensor, prediction: Prediction, cfg: LossOptions) -> Tensor:
    """What the chosen weightings make of each sample (b,); they multiply."""
    weights = torch.ones_like(snr)
    if cfg.min_snr_gamma:
        weights = weights * min_snr_weight(snr, cfg.min_snr_gamma, prediction)
    if cfg.scale_v_pred_loss_like_noise_pred:
        weights = weights * v_to_noise_scale(snr)
    if cfg.v_pred_like_loss:
        weights = weights * (1 + cfg.v_pred_like_loss * noise_to_v_scale(snr))
    if cfg.debiased_estimation_loss:
        weights = weights * debiased_weight(snr, prediction)
    return weights


# Element-wise errors


def pointwise_loss(prediction: Tensor, target: Tensor, kind: LossType, delta: Tensor | None = None) -> Tensor:
    """Error of every element, same shape as the inputs; `delta` (b,) is the threshold of huber and smooth_l1.

    huber and smooth_l1 are the smooth "pseudo-Huber" forms of Charbonnier et al. (1997), as used for diffusion models
    by Song and Dhariwal, arXiv:2310.14189. Both are 2*(sqrt(d^2 + delta^2) - delta), huber times delta: for small
    errors huber is d^2, for large ones smooth_l1 is 2*|d|.
    """
    match kind:
        case "l2":
            return F.mse_loss(prediction, target, reduction="none")
        case "l1":
            return F.l1_loss(prediction, target, reduction="none")
        case "huber" | "smooth_l1":
            if delta is None:
                raise ValueError(f"{kind} needs a threshold per sample")
            delta = _per_sample(delta, prediction)
            square = (prediction - target) ** 2
            # the formula times (root + delta) / (root + delta): no difference of nearly equal numbers for small errors
            rounded = 2 * square / (torch.sqrt(square + delta**2) + delta)
            return delta * rounded if kind == "huber" else rounded
    raise ValueError(f"unknown loss {kind!r}")


def huber_threshold(schedule: HuberSchedule, c: float, scale: float, progress: Tensor, snr: Tensor) -> Tensor:
    """Threshold per sample (b,), multiplied by `scale` (sd-scripts forgets that for snr).

    Args:
        schedule: constant is c; exponential falls from 1 at t = 0 to c at the end, snr from 1 at infinite SNR to c at
            SNR 0 (Khrapov et al., "Scheduled Pseudo-Huber Loss", arXiv:2403.16728).
        progress: t / number of timesteps, (b,), 0…1.
        snr: (b,); for flow matching ((1 - sigma) / sigma)^2.
    """
    match schedule:
        case "constant":
            delta = torch.full_like(snr, c)
        case "exponential":
            delta = torch.pow(c, progress.to(snr))
        case "snr":
            # (1 - c) / (1 + sigma)^2 + c with sigma = 1 / sqrt(SNR), written so that SNR 0 is no division by zero
            ratio = snr.sqrt()
            delta = (1 - c) * (ratio / (1 + ratio)) ** 2 + c
        case _:
            raise ValueError(f"unknown huber schedule {schedule!r}")
    return delta * scale


def masked(elements: Tensor, mask: Tensor) -> Tensor:
    """Element-wise loss (b, c, h, w) times a mask (b, h', w') or (b, 1, h', w'), brought to size by area averaging."""
    if mask.dim() == 3:
        mask = mask.unsqueeze(1)
    mask = F.interpolate(mask.to(elements), size=elements.shape[2:], mode="area")
    return elements * mask


def mask_from_picture(picture: Tensor) -> Tensor:
    """Mask (b, 1, h, w) in 0…1 from mask pictures (b, 3, h, w) in -1…1: the first channel counts."""
    return (picture[:, :1] + 1) / 2


# Weights of timesteps


def min_snr_weight(snr: Tensor, gamma: float, prediction: Prediction) -> Tensor:
    """min(SNR, gamma) / SNR, or / (SNR + 1) for v-prediction (Hang et al., arXiv:2303.09556)."""
    if prediction == "v":
        return snr.clamp(max=gamma) / (snr + 1)
    return (gamma / snr).clamp(max=1)  # equal to the formula, and 1 where SNR is 0


def debiased_weight(snr: Tensor, prediction: Prediction) -> Tensor:
    """1 / sqrt(SNR), or 1 / (SNR + 1) for v-prediction (Yu et al., arXiv:2310.08442)."""
    low, high = SNR_RANGE
    if prediction == "v":
        return 1 / (snr.clamp(max=high) + 1)
    return snr.clamp(low, high).rsqrt()


def v_to_noise_scale(snr: Tensor) -> Tensor:
    """SNR / (SNR + 1): from the error of v to that of the noise it implies (Salimans and Ho, arXiv:2202.00512)."""
    snr = snr.clamp(max=SNR_RANGE[1])
    return snr / (snr + 1)


def noise_to_v_scale(snr: Tensor) -> Tensor:
    """(SNR + 1) / SNR: the inverse of `v_to_noise_scale`, bounded where the SNR is near 0."""
    return 1 + 1 / snr.clamp(*SNR_RANGE)


def _per_sample(values: Tensor, like: Tensor) -> Tensor:
    """(b,) shaped to broadcast over (b, …)."""
    return values.to(like).view(-1, *[1] * (like.dim() - 1))
