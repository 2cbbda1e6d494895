"""The kinds of adapters: the names under which `network_module` asks for them, and their arguments. Needs no torch."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from sd_scripts.errors import ConfigError

if TYPE_CHECKING:
    from sd_scripts.adapters.base import AdapterModule


@dataclass(frozen=True)
class Argument:
    """One `name=value` of `network_args`. `kind`: how the text is read and which values are legal."""

    name: str
    kind: Literal["count", "number", "share", "ratio"]  # whole >= 1; any >= 0; 0 <= x < 1; > 0
    help: str


@dataclass(frozen=True)
class Kind:
    """A kind of adapter. `module` is where its `AdapterModule` lives, imported when one is built."""

    name: str
    module: str
    arguments: tuple[Argument, ...]

    def load(self) -> type[AdapterModule]:
        """The class of its modules."""
        path, _, attribute = self.module.partition(":")
        return getattr(import_module(path), attribute)


CONVOLUTIONS = (
    Argument(
        "conv_dim", "count", "rank for 3x3 convolutions; unset leaves them and the other layers of the resnets out"
    ),
    Argument("conv_alpha", "number", "alpha for 3x3 convolutions; 1 when unset"),
)
DROPOUTS = (
    Argument("rank_dropout", "share", "chance to drop each rank for a picture in a step"),
    Argument("module_dropout", "share", "chance to skip each module in a step"),
)
LORA_PLUS = (
    Argument("loraplus_lr_ratio", "ratio", "LoRA+: rate of the up matrices as a multiple of the rate"),
    Argument("loraplus_unet_lr_ratio", "ratio", "the same for the U-Net only"),
    Argument("loraplus_text_encoder_lr_ratio", "ratio", "the same for the text encoders only"),
)

KINDS = {
    kind.name: kind
    for kind in (Kind("networks.lora", "sd_scripts.adapters.lora:LoraModule", CONVOLUTIONS + DROPOUTS + LORA_PLUS),)
}


def find_kind(network_module: str) -> Kind:
    """The kind for `network_module`: `networks.lora`, `lora`, `networks/lora.py`, `sd_scripts.networks.lora` are one.

    Raises ConfigError with the nearest known name.
    """
    name = network_module.strip().lower().replace("\\", ".").replace("/", ".").removesuffix(".py").strip(".")
    name = name.removeprefix("sd_scripts.").removeprefix("library.")
    for candidate in (name, f"networks.{name}"):
        if candidate in KINDS:
            return KINDS[candidate]
    raise ConfigError("network_module", network_module, f"no such kind of adapter{nearest(name, KINDS)}")


def nearest(word: str, known: dict[str, object] | tuple[str, ...]) -> str:
    """The tail of a message about an unknown name: the nearest known one, or all of them."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
