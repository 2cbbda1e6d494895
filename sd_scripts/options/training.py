"""Options: length, optimizer, learning rates, precision."""

from typing import ClassVar, Literal

from sd_scripts.options.schema import Options, option


class Length(Options):
    title: ClassVar[str] = "Length"
    order: ClassVar[int] = 60

    max_train_epochs: int | None = option(
        None,
        ge=1,
        level="essential",
        label="Epochs",
        help="How often all pictures (with their repeats) are gone through. It decides the length when it is set.",
    )
    max_train_steps: int = option(
        1600, ge=1, unit="steps", label="Steps", help="Length in optimizer steps. Used when no epochs are set."
    )
    gradient_accumulation_steps: int = option(
        1, ge=1, help="Batches collected into one optimizer step: works like a larger batch, without its memory."
    )
    seed: int | None = option(
        None, ge=0, le=2**63 - 1, help="The same seed gives the same training. Unset: one is drawn and recorded."
    )


class Optimizer(Options):
    title: ClassVar[str] = "Optimizer"
    order: ClassVar[int] = 70

    optimizer_type: str | None = option(
        None,
        label="Optimizer",
        suggestions=("AdamW", "AdamW8bit", "Lion", "AdaFactor", "Prodigy", "AdamWScheduleFree"),
        help="AdamW when unset. AdamW8bit saves memory; Prodigy finds its own rate (set the learning rate to 1). "
        "A class path works too.",
    )
    optimizer_args: list[str] | None = option(
        None, level="expert", help='Arguments for the optimizer, each as name=value, e.g. "weight_decay=0.01".'
    )
    use_8bit_adam: bool = option(False, level="expert", help="Older way to choose AdamW8bit.")
    use_lion_optimizer: bool = option(False, level="expert", help="Older way to choose Lion.")
    learning_rate: float = option(
        2e-6, ge=0, label="Learning rate", help="Rate of every part that has none of its own."
    )
    max_grad_norm: float = option(
        1.0, ge=0, level="expert", help="Gradients longer than this are shortened to it; 0 is off."
    )


class Scheduler(Options):
    title: ClassVar[str] = "Learning-rate schedule"
    order: ClassVar[int] = 80

    lr_scheduler: str = option(
        "constant",
        label="Schedule",
        suggestions=(
            "constant",
            "constant_with_warmup",
            "linear",
            "cosine",
            "cosine_with_restarts",
            "polynomial",
            "inverse_sqrt",
            "cosine_with_min_lr",
            "warmup_stable_decay",
            "piecewise_constant",
        ),
        help="How the learning rate goes over the run.",
    )
    lr_scheduler_type: str | None = option(
        None, level="expert", help="A scheduler class by its path; used instead of the name above."
    )
    lr_scheduler_args: list[str] | None = option(
        None, level="expert", help="Arguments for the scheduler, each as name=value."
    )
    lr_warmup_steps: int | float | str = option(
        0,
        label="Warm-up",
        unit="steps",
        help="The rate rises from 0 over so many steps; below 1 or with % it is a share of the run.",
    )
    lr_decay_steps: int | float | str = option(
        0,
        unit="steps",
        level="expert",
        help="Length of the fall at the end of warmup_stable_decay; below 1 or with % it is a share of the run.",
    )
    lr_scheduler_num_cycles: int = option(1, ge=1, level="expert", help="Restarts of cosine_with_restarts.")
    lr_scheduler_power: float = option(1.0, level="expert", help="Exponent of polynomial.")
    lr_scheduler_timescale: int | None = option(
        None, ge=1, unit="steps", level="expert", help="Time scale of inverse_sqrt; unset: the warm-up's length."
    )
    lr_scheduler_min_lr_ratio: float | None = option(
        None,
        ge=0,
        le=1,
        level="expert",
        help="Lowest rate as a share of the full one, for the schedules that have a floor.",
    )


class Precision(Options):
    title: ClassVar[str] = "Precision and memory"
    order: ClassVar[int] = 90

    mixed_precision: Literal["no", "fp16", "bf16"] = option(
        "no",
        help="Number format of the computation. bf16 for GPUs since 2020 (RTX 30 and newer), fp16 for older ones, "
        "no on a CPU.",
    )
    full_fp16: bool = option(
        False,
        level="expert",
        help="Keep the trained weights in fp16 too. Saves memory, costs accuracy; needs mixed precision fp16.",
    )
    full_bf16: bool = option(
        False,
        level="expert",
        help="Keep the trained weights in bf16 too. Saves memory, costs accuracy; needs mixed precision bf16.",
    )
    gradient_checkpointing: bool = option(
        False, help="Compute activations twice instead of keeping them: much less memory, about a quarter slower."
    )
    ema_decay: float | None = option(
        None,
        gt=0,
        lt=1,
        level="expert",
        help="Keep a running average of the trained weights with this decay (e.g. 0.999) and save that.",
    )


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
