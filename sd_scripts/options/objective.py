"""Options: what is minimised: loss, noise, timesteps."""

from typing import Any, ClassVar, Literal

from sd_scripts.options.schema import SET, Options, option

HUBER: dict[str, Any] = {"loss_type": ("huber", "smooth_l1")}
NOISE = ("noise",)
SAMPLED = ("flux", "chroma", "lumina", "anima", "hunyuan_image")  # choose how timesteps are drawn; SD 3 has one way


class Loss(Options):
    title: ClassVar[str] = "Loss"
    order: ClassVar[int] = 130

    loss_type: Literal["l2", "l1", "huber", "smooth_l1"] = option(
        "l2", help="How the error is measured. huber and smooth_l1 forgive outliers."
    )
    huber_schedule: Literal["constant", "exponential", "snr"] = option(
        "snr",
        level="expert",
        only_with=HUBER,
        help="How the threshold of huber and smooth_l1 goes over the timesteps: the same for all (constant), or lower the "
        "more noise there is (exponential, snr).",
    )
    huber_c: float = option(
        0.1,
        gt=0,
        level="expert",
        only_with=HUBER,
        help="Threshold of huber and smooth_l1: errors beyond it count less.",
    )
    huber_scale: float = option(
        1.0,
        gt=0,
        level="expert",
        only_with=HUBER,
        help="Factor on the threshold of huber and smooth_l1.",
    )
    min_snr_gamma: float | None = option(
        None,
        ge=0,
        label="Min-SNR gamma",
        only_for=NOISE,
        help="Evens out the weight of the timesteps; 5 is usual. 0 is off.",
    )
    debiased_estimation_loss: bool = option(
        False, level="expert", only_for=NOISE, help="Weight timesteps by 1/sqrt(SNR). An alternative to min-SNR."
    )
    scale_v_pred_loss_like_noise_pred: bool = option(
        False,
        level="expert",
        only_for=NOISE,
        help="Scale the loss of a v-prediction model to that of a noise-prediction one.",
    )
    v_pred_like_loss: float | None = option(
        None,
        ge=0,
        level="expert",
        only_for=NOISE,
        help="Add this share of a v-prediction-like loss. For noise-prediction models.",
    )


class Noise(Options):
    title: ClassVar[str] = "Noise and timesteps"
    order: ClassVar[int] = 140

    noise_offset: float | None = option(
        None,
        ge=0,
        only_for=NOISE,
        help="Adds constant noise per channel, which lets a model learn very dark and bright pictures; 0.03 to "
        "0.1 is usual.",
    )
    noise_offset_random_strength: bool = option(
        False,
        level="expert",
        only_for=NOISE,
        only_with={"noise_offset": SET},
        help="Draw the offset's strength between 0 and the value each time.",
    )
    adaptive_noise_scale: float | None = option(
        None, level="expert", only_for=NOISE, help="Adds this times the mean latent to the noise offset."
    )
    multires_noise_iterations: int | None = option(
        None, ge=0, level="expert", only_for=NOISE, help="Levels of pyramid noise; 6 to 10 is usual, 0 is off."
    )
    multires_noise_discount: float = option(
        0.3,
        ge=0,
        le=1,
        level="expert",
        only_for=NOISE,
        only_with={"multires_noise_iterations": SET},
        help="How fast the levels of pyramid noise fade.",
    )
    ip_noise_gamma: float | None = option(
        None, ge=0, level="expert", help="Extra noise on the model's input only (input perturbation); 0.1 is usual."
    )
    ip_noise_gamma_random_strength: bool = option(
        False,
        level="expert",
        only_with={"ip_noise_gamma": SET},
        help="Draw its strength between 0 and the value each time.",
    )
    zero_terminal_snr: bool = option(
        False,
        level="expert",
        only_for=NOISE,
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

    timestep_sampling: Literal["sigma", "uniform", "sigmoid", "shift", "flux_shift", "nextdit_shift"] | None = option(
        None,
        label="Timesteps",
        only_for=SAMPLED,
        defaults={
            "flux": "sigma",
            "chroma": "sigma",
            "lumina": "shift",
            "anima": "sigmoid",
            "hunyuan_image": "sigma",
        },
        help="How the noise level of a step is drawn: from the sampler's table (sigma), evenly (uniform), mostly the middle "
        "(sigmoid), moved to more noise by a fixed shift (shift) or by one that grows with the picture (flux_shift; "
        "nextdit_shift for Lumina). Unset: as usual for the model.",
    )
    sigmoid_scale: float = option(
        1.0,
        gt=0,
        level="expert",
        only_for=SAMPLED,
        only_with={"timestep_sampling": ("sigmoid", "shift", "flux_shift")},
        help="Width of the draw for sigmoid, shift and flux_shift: larger reaches further to the ends.",
    )
    discrete_flow_shift: float | None = option(
        None,
        gt=0,
        label="Shift",
        only_for=SAMPLED,
        only_with={"timestep_sampling": ("sigma", "shift")},
        defaults={"flux": 3.0, "chroma": 3.0, "lumina": 6.0, "anima": 1.0, "hunyuan_image": 5.0},
        help="Moves the drawn noise levels: above 1 to more noise (composition), below 1 to less (detail). Unset: 3 for "
        "FLUX and Chroma, 6 for Lumina, 1 for Anima, 5 for HunyuanImage.",
    )
    training_shift: float = option(
        1.0,
        gt=0,
        level="expert",
        only_for=("sd3",),
        help="Moves the drawn noise levels of SD 3: above 1 to more noise, below 1 to less.",
    )
    weighting_scheme: Literal["sigma_sqrt", "logit_normal", "mode", "cosmap", "none", "uniform"] = option(
        "uniform",
        level="expert",
        only_for=("flow",),
        help="Which noise levels are drawn more often (logit_normal, mode) when they come from the sampler's table, or "
        "count more in the loss (sigma_sqrt, cosmap). uniform and none treat all alike.",
    )
    logit_mean: float = option(
        0.0,
        level="expert",
        only_for=("flow",),
        only_with={"weighting_scheme": "logit_normal"},
        help="Centre of logit_normal: above 0 is more noise.",
    )
    logit_std: float = option(
        1.0,
        gt=0,
        level="expert",
        only_for=("flow",),
        only_with={"weighting_scheme": "logit_normal"},
        help="Width of logit_normal.",
    )
    mode_scale: float = option(
        1.29,
        level="expert",
        only_for=("flow",),
        only_with={"weighting_scheme": "mode"},
        help="How strongly mode prefers the middle of the noise levels.",
    )
    model_prediction_type: Literal["raw", "additive", "sigma_scaled"] | None = option(
        None,
        label="Model output",
        level="expert",
        only_for=("flux", "chroma", "lumina", "hunyuan_image"),
        defaults={"flux": "sigma_scaled", "chroma": "sigma_scaled", "lumina": "raw", "hunyuan_image": "raw"},
        help="What is compared in the loss: the model's output as it is (raw), added to the noisy latents (additive), or "
        "turned into clean latents and weighted by noise level (sigma_scaled). raw is usual. What additive trains needs a "
        "sampler that adds them too.",
    )
    guidance_scale: float = option(
        3.5,
        ge=0,
        label="Guidance",
        only_for=("flux",),
        available=False,
        help="Guidance value told to FLUX dev while it trains. 1 is usual for LoRA and whole models alike.",
    )
    show_timesteps: Literal["console", "image"] | None = option(
        None,
        label="Show timesteps",
        level="expert",
        only_for=("flow",),
        available=False,
        help="Draw many noise levels with these settings, show how often each comes (as text or as a picture), and stop "
        "without training.",
    )
    show_timesteps_resolution: str = option(
        "1024",
        label="… for size",
        unit="px",
        level="expert",
        only_for=("flow",),
        only_with={"show_timesteps": SET},
        available=False,
        help="Picture size to show them for, one number or width,height; it counts where the shift grows with the picture.",
    )
    enable_scaled_pos_embed: bool = option(
        False,
        label="Positions scaled to size",
        level="expert",
        only_for=("sd3",),
        available=False,
        help="Stretch the position codes of SD 3.5 medium to the resolution that is trained instead of cutting a piece.",
    )
    pos_emb_random_crop_rate: float = option(
        0.0,
        ge=0,
        le=1,
        label="Random positions",
        level="expert",
        only_for=("sd3",),
        available=False,
        help="Share of uses in which a random piece of the position codes is taken (0 to 1), as SD 3.5 medium was trained.",
    )
