"""Options: length, optimizer, learning-rate schedule."""

from typing import ClassVar, Literal

from sd_scripts.options.schema import SET, Options, option


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
    max_nan_steps: int = option(
        0,
        ge=0,
        unit="steps",
        level="expert",
        label="Steps to skip",
        help="Leave out so many steps whose loss or gradients are not finite, and stop only then. Costs a little time in "
        "each step; 0 stops at the first.",
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
            "cosine_warmup_with_min_lr",
            "warmup_stable_decay",
            "piecewise_constant",
            "reduce_lr_on_plateau",
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
    resume_learning_rate: Literal["settings", "state"] = option(
        "settings",
        label="Rates after a resume",
        level="expert",
        only_with={"resume": SET},
        help="Go on with the rates and the schedule of these settings, from the step of the state; or with the rates that "
        "the state was saved with.",
    )
