"""Options: pictures held out to measure the training by."""

from typing import ClassVar

from sd_scripts.options.schema import SET, Options, option
from sd_scripts.options.values import Interval


class Validation(Options):
    title: ClassVar[str] = "Validation"
    order: ClassVar[int] = 125

    validation_split: float = option(
        0.0,
        ge=0,
        le=1,
        label="Held out",
        help="Share of the pictures that is not trained on but measured; 0 is none. A loss that rises on them shows "
        "that the model learns the others by heart.",
    )
    validation_seed: int | None = option(
        None,
        ge=0,
        le=2**63 - 1,
        level="expert",
        only_with={"validation_split": SET},
        help="Decides which pictures are held out and with which noise they are measured; unset: the seed of the run.",
    )
    validate_every_n_epochs: Interval | None = option(
        None,
        unit="epochs",
        level="expert",
        only_with={"validation_split": SET},
        help="Measure after every n-th epoch; unset: after each.",
    )
    validate_every_n_steps: Interval | None = option(
        None,
        unit="steps",
        level="expert",
        only_with={"validation_split": SET},
        help="Also measure after every n-th step; 0 is never.",
    )
    max_validation_steps: int | None = option(
        None,
        ge=1,
        unit="batches",
        level="expert",
        only_with={"validation_split": SET},
        help="Measure on at most so many batches; unset: on all.",
    )
