"""Options: how prompts are read."""

from typing import ClassVar

from sd_scripts.options.schema import Options


class TextEncoders(Options):
    title: ClassVar[str] = "Text encoders"
    order: ClassVar[int] = 15
