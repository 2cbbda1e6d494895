"""Options: what is minimised: loss, noise, timesteps."""

from typing import ClassVar, Literal

from sd_scripts.options.schema import Options, option


class Loss(Options):
    title: ClassVar[str] = "Loss"
    order: ClassVar[int] = 130

    loss_type: Literal["l2", "l1", "huber", "smooth_l1"] = option(
        "l2", help="How the error is measured. huber and smooth_l1 forgive outliers."
    )
    huber_schedule: Literal["constant", "exponential", "snr"] = option(
        "snr", level="expert", help="How the threshold of huber and smooth_l1 goes over the timesteps."
    )
    huber_c: float = option(0.1, gt=0, level="expert", help="Threshold of huber and smooth_l1.")
    huber_scale: float = option(1.0, gt=0, level="expert", help="Factor on the threshold of huber and smooth_l1.")
    min_snr_gamma: float | None = option(
        None, ge=0, label="Min-SNR gamma", help="Evens out the weight of the timesteps; 5 is usual. 0 is off."
    )
    debiased_estimation_loss: bool = option(
        False, level="expert", help="Weight timesteps by 1/sqrt(SNR). An alternative to min-SNR."
    )
    scale_v_pred_loss_like_noise_pred: bool = option(
        False, level="expert", help="Scale the loss of a v-prediction model to that of a noise-prediction one."
    )
    v_pred_like_loss: float | None = option(
        None, ge=0, level="expert", help="Add this share of a v-prediction-like loss. For noise-prediction models."
    )


class Noise(Options):
    title: ClassVar[str] = "Noise and timesteps"
    order: ClassVar[int] = 140

    noise_offset: float | None = option(
        None,
        ge=0,
        help="Adds constant noise per channel, which lets a model learn very dark and bright pictures; 0.03 to "
        "0.1 is usual.",
    )
    noise_offset_random_strength: bool = option(
        False, level="expert", help="Draw the offset's strength between 0 and the value each time."
    )
    adaptive_noise_scale: float | None = option(
        None, level="expert", help="Adds this times the mean latent to the noise offset."
    )
    multires_noise_iterations: int | None = option(
        None, ge=0, level="expert", help="Levels of pyramid noise; 6 to 10 is usual, 0 is off."
    )
    multires_noise_discount: float = option(
        0.3, ge=0, le=1, level="expert", help="How fast the levels of pyramid noise fade."
    )
    ip_noise_gamma: float | None = option(
        None, ge=0, level="expert", help="Extra noise on the model's input only (input perturbation); 0.1 is usual."
    )
    ip_noise_gamma_random_strength: bool = option(
        False, level="expert", help="Draw its strength between 0 and the value each time."
    )
    zero_terminal_snr: bool = option(
        False,
        level="expert",
        help="Rescale the noise schedule so that its end is pure noise. For v-prediction models made that way.",
    )
    min_timestep: int | None = option(
        None, ge=0, le=999, level="expert", help="Lowest timestep to train (0 is the clean picture)."
    )
    max_timestep: int | None = option(
        None,
        ge=1,
        le=1000,
        level="expert",
        help="Timesteps stay below this; 1000 is pure noise. Equal to min_timestep: that one only.",
    )


class Flow(Options):
    title: ClassVar[str] = "Flow matching"
    order: ClassVar[int] = 145
