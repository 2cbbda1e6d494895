"""The kinds of adapters that can be trained: the names under which `network_module` asks for them. Needs no torch.

Their arguments are declared in `sd_scripts.options.network_arguments`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from sd_scripts.errors import ConfigError
from sd_scripts.options.methods import NETWORK_MODULES
from sd_scripts.options.network_arguments import module_name

if TYPE_CHECKING:
    from sd_scripts.adapters.base import AdapterModule


@dataclass(frozen=True)
class Kind:
    """A kind of adapter. `module` is where its `AdapterModule` lives, imported when one is built."""

    name: str
    module: str

    def load(self) -> type[AdapterModule]:
        """The class of its modules."""
        path, _, attribute = self.module.partition(":")
        return getattr(import_module(path), attribute)


KINDS = {kind.name: kind for kind in (Kind("networks.lora", "sd_scripts.adapters.lora:LoraModule"),)}


def find_kind(network_module: str) -> Kind:
    """The kind for `network_module`: `networks.lora`, `lora`, `networks/lora.py`, `sd_scripts.networks.lora` are one.

    Raises ConfigError with the nearest known name, or for a kind that is still to come.
    """
    name = module_name(network_module)
    if name in KINDS:
        return KINDS[name]
    if name in NETWORK_MODULES:
        raise ConfigError("network_module", network_module, f"is not yet available; {', '.join(KINDS)} is")
    raise ConfigError("network_module", network_module, f"no such kind of adapter{nearest(name, NETWORK_MODULES)}")


def nearest(word: str, known: tuple[str, ...]) -> str:
    """The tail of a message about an unknown name: the nearest known one, or all of them."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
