"""Options: several devices: DDP and DeepSpeed."""

from typing import ClassVar

from sd_scripts.options.schema import Options


class Distributed(Options):
    title: ClassVar[str] = "Several devices"
    order: ClassVar[int] = 100
