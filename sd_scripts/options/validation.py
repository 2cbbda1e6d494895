"""Options: pictures held out to measure the training by."""

from typing import ClassVar

from sd_scripts.options.schema import Options


class Validation(Options):
    title: ClassVar[str] = "Validation"
    order: ClassVar[int] = 125
