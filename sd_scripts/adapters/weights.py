"""Network files → tensors per adapter target, whatever style of names they use; files merged into a base model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from sd_scripts.adapters.base import AdapterModule, fused_shape, out_rows
from sd_scripts.adapters.files import read_tensors
from sd_scripts.errors import ConfigError, UserError
from sd_scripts.models.base import AdapterTarget, Architecture

# spellings of tensor names → ours; the longest that fits is taken
SPELLINGS = {
    ".lora_down.weight": "lora_down.weight",
    ".lora_up.weight": "lora_up.weight",
    ".lora_A.weight": "lora_down.weight",
    ".lora_B.weight": "lora_up.weight",
    ".lora_A.default.weight": "lora_down.weight",
    ".lora_B.default.weight": "lora_up.weight",
    ".lora.down.weight": "lora_down.weight",
    ".lora.up.weight": "lora_up.weight",
    ".alpha": "alpha",
}
NAMED_AT_MOST = 5  # unmatched names written out in a message


@dataclass(frozen=True)
class LoadReport:
    """Which modules of a network file were used; `str()` is a line for people."""

    path: Path
    used: tuple[str, ...]
    unused: tuple[str, ...]

    def __str__(self) -> str:
        text = f"{self.path.name}: {len(self.used)} modules used"
        return f"{text}, {len(self.unused)} not: {_some(self.unused)}" if self.unused else text


@dataclass(frozen=True)
class MatchedFile:
    """A network file, sorted by the targets of a model."""

    path: Path
    tensors: Mapping[str, Mapping[str, Tensor]]  # target name → suffix → tensor
    unmatched: tuple[str, ...]  # names of modules in the file that the model has no place for

    @property
    def report(self) -> LoadReport:
        """How much of the file fits."""
        return LoadReport(self.path, tuple(self.tensors), self.unmatched)


def match_file(path: Path, architecture: Architecture, kind: type[AdapterModule]) -> MatchedFile:
    """Read a network file of the given kind and find the target of each module in it.

    Raises UserError when the file cannot be read or nothing in it fits the model.
    """
    tensors, metadata = read_tensors(path)
    targets = tuple(architecture.adapter_targets())
    aliases = target_aliases(architecture, targets)
    matched: dict[str, dict[str, Tensor]] = {}
    unmatched: list[str] = []
    for name, group in _by_module(tensors).items():
        target = aliases.get(name)
        required = {suffix for suffix in kind.suffixes if suffix != "alpha"}
        if target is None or target in matched or not required <= set(group) <= set(kind.suffixes):
            unmatched.append(name)
        else:
            matched[target] = _with_alpha(name, group, kind, metadata)
    if not matched:
        raise UserError(
            f"{path}: none of its {len(unmatched)} modules fits the model ({_some(unmatched)}); "
            "it was made for another kind of model or of network"
        )
    return MatchedFile(path, matched, tuple(unmatched))


def target_aliases(architecture: Architecture, targets: Iterable[AdapterTarget]) -> dict[str, str]:
    """Every name under which files know a target → its own name: those of the field and of diffusers (`unet.…`)."""
    paths = _module_paths(architecture)
    aliases: dict[str, str] = {}
    for target in targets:
        aliases[target.name] = target.name
        if target.name.startswith("lora_te_"):
            aliases["lora_te1_" + target.name.removeprefix("lora_te_")] = target.name
        if len(target.modules) == 1:  # a fused layer has no single counterpart there
            aliases |= dict.fromkeys(paths.get(id(target.modules[0]), ()), target.name)
    return aliases | {name: target for name, target in _underscored(aliases).items() if name not in aliases}


def _underscored(aliases: Mapping[str, str]) -> dict[str, str]:
    """Names of diffusers' modules in the style of the field: some programs call an SDXL model's layers so."""
    starts = {"unet.": "lora_unet_", "text_encoder.": "lora_te1_", "text_encoder_2.": "lora_te2_"}
    return {
        start + name.removeprefix(part).replace(".", "_"): target
        for name, target in aliases.items()
        for part, start in starts.items()
        if name.startswith(part)
    }


def merge_files(
    architecture: Architecture, paths: Sequence[str], multipliers: Sequence[float], kind: type[AdapterModule]
) -> list[str]:
    """Add network files to the model's weights for good (`base_weights`): W += multiplier * change. One line on each.

    Missing multipliers are 1. Raises ConfigError/UserError; each file is checked in full before it touches a weight.
    """
    if len(multipliers) > len(paths):
        raise ConfigError(
            "base_weights_multiplier", multipliers, f"has more values than base_weights has files ({len(paths)})"
        )
    strengths = [*multipliers, *[1.0] * (len(paths) - len(multipliers))]
    targets = {target.name: target for target in architecture.adapter_targets()}
    report = []
    for path, strength in zip(paths, strengths, strict=True):
        file = match_file(Path(path), architecture, kind)
        changes = {name: _change(file, name, targets[name], kind) for name in file.tensors}
        for name, change in changes.items():
            _add(targets[name].modules, strength * change)
        report.append(f"merged at {strength:g}: {file.report}")
    return report


def _change(file: MatchedFile, name: str, target: AdapterTarget, kind: type[AdapterModule]) -> Tensor:
    try:
        return kind.weight_change(file.tensors[name], fused_shape(target.modules))
    except ValueError as error:
        raise UserError(f"{file.path}: {name}: {error}; it was made for another model") from error


def _add(modules: tuple[nn.Module, ...], change: Tensor) -> None:
    start = 0
    for module in modules:
        end = start + out_rows(module)
        weight = module.weight.data
        # a new tensor: the old one may be the model's file itself, mapped; summed in float32, so rounded once
        module.weight.data = (weight.float() + change[start:end].to(weight.device)).to(weight.dtype)
        start = end


def _by_module(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    groups: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, suffix = _split(key)
        groups.setdefault(name, {})[suffix] = tensor
    return groups


def _split(key: str) -> tuple[str, str]:
    """Module name and suffix. Unknown spellings split at the first dot in the field's style, else at the last."""
    for ending in sorted(SPELLINGS, key=len, reverse=True):
        if key.endswith(ending):
            return key.removesuffix(ending).removeprefix("base_model.model."), SPELLINGS[ending]
    name, _, suffix = key.partition(".") if key.startswith("lora_") else key.rpartition(".")
    return name, suffix


def _module_paths(architecture: Architecture) -> dict[int, list[str]]:
    """id of a module → its names in diffusers' files, with and without the level that transformers dropped."""
    networks = [(("unet.", "transformer."), architecture.denoiser)]
    for i, encoder in enumerate(architecture.text_encoders):
        networks.append((("text_encoder." if i == 0 else f"text_encoder_{i + 1}.",), encoder))
    paths: dict[int, list[str]] = {}
    for prefixes, network in networks:
        for path, module in network.named_modules():
            bare = path.removeprefix("text_model.")
            forms = {path} if network is architecture.denoiser else {bare, f"text_model.{bare}"}
            paths[id(module)] = [prefix + form for prefix in prefixes for form in forms]
    return paths


def _with_alpha(
    name: str, group: dict[str, Tensor], kind: type[AdapterModule], metadata: Mapping[str, str]
) -> dict[str, Tensor]:
    """The group with the alpha that diffusers keeps in the header, when it has none of its own."""
    if "alpha" in group or "lora_adapter_metadata" not in metadata:
        return group
    component, _, path = name.partition(".")
    settings = json.loads(metadata["lora_adapter_metadata"])
    alpha = settings.get(f"{component}.lora_alpha")
    for pattern, value in (settings.get(f"{component}.alpha_pattern") or {}).items():
        if path == pattern or path.endswith(f".{pattern}"):
            alpha = value
    if alpha is None:
        return group
    if settings.get(f"{component}.use_rslora"):
        alpha *= kind.size_of(group).rank ** 0.5
    return group | {"alpha": torch.tensor(float(alpha))}


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
    return ", ".join(names[:NAMED_AT_MOST]) + more
