"""The LoRA type of a preset file, and its arguments, as `network_module` and the items of `network_args`."""

from __future__ import annotations

from typing import Any

from sd_scripts.options.families import FAMILIES
from sd_scripts.options.gui_presets import readers
from sd_scripts.options.gui_presets.conversion import Conversion
from sd_scripts.options.gui_presets.families import is_chroma
from sd_scripts.options.gui_presets.networks import ALGO_NAMES, ITEMS, OF_FAMILY, PLAIN, TYPES, families_of, find_type
from sd_scripts.options.network_arguments import NetworkArguments
from sd_scripts.options.schema import specs

KEYS = ("LoRA_type", "train_lora_ggpo", *ITEMS)


def settle_family(it: Conversion) -> None:
    """Where no box is ticked, a LoRA type that is made for one family tells which."""
    given = it.content.get("LoRA_type")
    name = find_type(given) if isinstance(given, str) else None
    if it.architecture is None and name in ("Flux1 OFT", *OF_FAMILY.values()):
        family = families_of(TYPES[name])[0]
        it.architecture = "chroma" if family == "flux" and is_chroma(it.content) else family
        label = FAMILIES[it.architecture].label
        it.say("converted", "LoRA_type", f"no box says the model family; by {name} it is {label}")


def network(it: Conversion) -> None:
    """Set the module and the arguments that the LoRA type has."""
    name = _type_of(it)
    if name is None:
        for key in KEYS[1:]:
            it.leave_out(key, "the LoRA type is not known", _idle(key))
        return
    kind = TYPES[name]
    is_sd3 = it.family == "sd3" and name in PLAIN
    it.set("network_module", "networks.lora_sd3" if is_sd3 else kind.module, "LoRA_type")
    if kind.algo:
        it.set("algo", kind.algo, "LoRA_type")
    _arguments(it, name)


def _type_of(it: Conversion) -> str | None:
    """The LoRA type, after it was compared with the model family."""
    given = it.take("LoRA_type", readers.word)
    name = find_type(given or "Standard")
    if name is None:
        it.say("invalid", "LoRA_type", f"{given!r} is none of {', '.join(TYPES)}; left out")
        return None
    if given and name != given:
        it.say("renamed", "LoRA_type", f"{given} is now called {name}")
    if it.family in families_of(TYPES[name]):
        return name
    label = FAMILIES[it.family].label
    own = OF_FAMILY.get(it.family, "Standard")
    if name in PLAIN or name in OF_FAMILY.values():
        it.say("converted", "LoRA_type", f"{name} is not for {label}, for which the file is; {own} is set")
        return own
    it.say("converted", "LoRA_type", f"{name} is not made for {label}, for which the file is; check which one is meant")
    return name


def _arguments(it: Conversion, name: str) -> None:
    for key, item in ITEMS.items():
        if key not in it.content:
            continue
        if name in item.types or _is_older_cp(it, key, name):
            value = it.take(key, item.read)
            if value is not None and value not in item.unset:
                _set_item(it, key, ALGO_NAMES.get(name, {}).get(key, item.name), value)
        else:
            it.leave_out(key, f"the LoRA type {name} has no such setting", item.idle)
    if "conv_dim" not in it.values:
        it.values.pop("conv_alpha", None)
    if it.values.get("split_mode"):
        it.set("train_blocks", "single", "split_mode")
    if "train_lora_ggpo" in it.content:
        _perturbation(it, is_on=name == "Flux1" and bool(it.take("train_lora_ggpo", readers.flag)))


def _perturbation(it: Conversion, is_on: bool) -> None:
    """GGPO has a box of its own; its two numbers only count with it."""
    for key in ("ggpo_sigma", "ggpo_beta"):
        if not is_on:
            it.values.pop(key, None)
        elif key not in it.values:
            it.set(key, ITEMS[key].idle, "train_lora_ggpo")


def _is_older_cp(it: Conversion, key: str, name: str) -> bool:
    """Before there was `use_tucker`, `use_cp` said it for all types that have it."""
    return key == "use_cp" and "use_tucker" not in it.content and name in ITEMS["use_tucker"].types


def _set_item(it: Conversion, key: str, name: str, value: Any) -> None:
    if key == "use_cp":
        if value:
            it.set("use_tucker", True, key)
            it.say("renamed", key, "is now called use_tucker")
    elif name in specs(NetworkArguments):
        it.set(name, value, key)
    elif value:  # LyCORIS takes more than has a field
        it.values.setdefault("network_args", []).append(f"{name}={value}")


def _idle(key: str) -> Any:
    return ITEMS[key].idle if key in ITEMS else None
