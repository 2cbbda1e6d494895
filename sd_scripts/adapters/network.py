"""`AdapterNetwork`: all adapter modules of a model, as the trainer sees them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sd_scripts.adapters.base import AdapterModule, Size
from sd_scripts.adapters.draws import DrawKey
from sd_scripts.adapters.settings import AdapterSettings, PartRate, adapter_settings, part_rates
from sd_scripts.adapters.weights import LoadReport, MatchedFile, match_file, merge_files
from sd_scripts.errors import ConfigError, UserError
from sd_scripts.models.base import AdapterTarget, Architecture
from sd_scripts.models.family import DENOISER

if TYPE_CHECKING:
    from sd_scripts.options.methods import Network

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartSummary:
    """What is trained of a part of the model. `lr` None: nothing, for the given reason."""

    rate: PartRate
    modules: int
    parameters: int
    fast_lr: float | None = None  # of the up matrices, with LoRA+

    def __str__(self) -> str:
        if self.rate.lr is None:
            kept = f", {self.modules} modules kept as they are" if self.modules else ""
            return f"{self.rate.label}: not trained ({self.rate.reason}{kept})"
        fast = f", up matrices {self.fast_lr:g}" if self.fast_lr is not None else ""
        size = f"{self.modules} modules, {self.parameters:,} parameters"
        return f"{self.rate.label}: {size}, learning rate {self.rate.lr:g}{fast}"


@dataclass(frozen=True)
class NormReport:
    """What `apply_max_norm` did, as scalars on the device: fetch them only when they are logged."""

    scaled: Tensor
    average: Tensor
    largest: Tensor


class AdapterNetwork(nn.Module):
    """Adapter modules by target name. `state_dict()` has the keys of the file, in the file's order.

    It is never called itself: its modules act through hooks on the model, from `build` on until `detach`.
    """

    def __init__(self, settings: AdapterSettings, rates: tuple[PartRate, ...], draws: DrawKey):
        super().__init__()
        self.settings = settings
        self.rates = rates
        self.loaded: LoadReport | None = None  # what `network_weights` brought
        self._draws = draws
        self._multiplier = 1.0

    @classmethod
    def build(cls, architecture: Architecture, cfg: Network, seed: int) -> AdapterNetwork:
        """Merge `base_weights` into the model; make the network, load `network_weights`, attach it to the model.

        Args:
            seed: decides the start of the weights and, with the step, the dropouts.

        Raises ConfigError and UserError for options and files that don't work.
        """
        settings = adapter_settings(cfg, architecture.family)
        targets = tuple(architecture.adapter_targets())
        parts = dict.fromkeys(target.part for target in targets)
        rates = part_rates([architecture.family.part(name) for name in parts], cfg)
        if cfg.dim_from_weights and not cfg.network_weights:
            raise ConfigError("dim_from_weights", True, "needs network_weights, the file to take the ranks from")
        kind = settings.kind.load()
        for line in merge_files(architecture, cfg.base_weights or [], cfg.base_weights_multiplier or [], kind):
            logger.info("base_weights: %s", line)
        file = match_file(Path(cfg.network_weights), architecture, kind) if cfg.network_weights else None
        network = cls(settings, rates, DrawKey(seed))
        sizes = _file_sizes(file, kind) if file and cfg.dim_from_weights else _option_sizes(targets, settings)
        # adapters of layers that nothing uses are in the file, but wait for no gradient: several devices would wait forever
        idle = {id(module) for top in architecture.idle_modules() for module in top.modules()}
        for target in targets:
            rate = network._rates[target.part]
            keeps_frozen = file is not None and target.name in file.tensors
            if target.name in sizes and not rate.is_left_out and (rate.lr is not None or keeps_frozen):
                is_trained = rate.lr is not None and not any(id(module) in idle for module in target.modules)
                network._add(kind, target, sizes[target.name], seed, is_trained)
        if not any(p.requires_grad for p in network.parameters()):
            where = f"{cfg.network_weights} holds nothing" if cfg.dim_from_weights else "the model has no layer"
            raise ConfigError(
                "network_module", cfg.network_module, f"nothing is left to train: {where} in the trained parts"
            )
        if file:
            network._load(file)
        network.attach()
        return network

    def modules_by_name(self) -> dict[str, AdapterModule]:
        """The adapter modules, in the order of the file."""
        return {name: module for name, module in self.named_children() if isinstance(module, AdapterModule)}

    @property
    def multiplier(self) -> float:
        """Strength of the whole network; 1 is that of the file."""
        return self._multiplier

    @multiplier.setter
    def multiplier(self, value: float) -> None:
        self._multiplier = value
        for module in self.modules_by_name().values():
            module.multiplier = value

    def attach(self) -> None:
        """Act on the model."""
        for module in self.modules_by_name().values():
            module.attach()

    def detach(self) -> None:
        """Leave the model as it was."""
        for module in self.modules_by_name().values():
            module.detach()

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Within it, the model acts as if there were no network."""
        before = self.multiplier
        self.multiplier = 0.0
        try:
            yield
        finally:
            self.multiplier = before

    def begin_step(self, step: int, rank: int = 0) -> None:
        """To be called before each forward pass in training: dropouts are drawn from seed, `step` and process `rank`.

        `step` counts batches, so that those of one accumulated optimizer step differ.
        """
        self._draws.set(step, rank)

    def param_groups(self) -> list[dict]:
        """A group for each trained part, named after it ("unet"), and with LoRA+ one ("unet+") for its up matrices; where
        blocks have rates of their own, a group for each ("unet block 4")."""
        groups = []
        for rate in self.rates:
            if rate.lr is None:
                continue
            ratio = self.settings.plus_ratio(rate.part)
            for name, lr, modules in self._same_rate(rate):
                fast = [p for module in modules for p in module.fast_parameters()] if ratio is not None else []
                is_fast = set(map(id, fast))
                slow = [p for module in modules for p in module.parameters() if id(p) not in is_fast]
                groups += [{"params": slow, "lr": lr, "name": name}] if slow else []
                groups += [{"params": fast, "lr": lr * ratio, "name": f"{name}+"}] if fast else []
        return groups

    def _same_rate(self, rate: PartRate) -> Iterator[tuple[str, float, list[AdapterModule]]]:
        """Name, rate and modules of what a part's adapters learn at one rate."""
        modules = [m for m in self._part_modules(rate.part) if any(p.requires_grad for p in m.parameters())]
        if self.settings.blocks is None or self.settings.blocks.weights is None or rate.part != DENOISER:
            yield rate.part, rate.lr, modules
            return
        for block in sorted(
            {module.target.block for module in modules}, key=lambda block: -1 if block is None else block
        ):
            own = [module for module in modules if module.target.block == block]
            weight = self.settings.rate_weight(block)
            yield f"{rate.part} block {block}", rate.lr * weight, own

    def summary(self) -> tuple[PartSummary, ...]:
        """Modules, parameters and rates of each part; `str()` of each is a line for people."""
        parts = []
        for rate in self.rates:
            modules = self._part_modules(rate.part)
            ratio = self.settings.plus_ratio(rate.part)
            fast_lr = rate.lr * ratio if rate.lr is not None and ratio is not None else None
            parameters = sum(p.numel() for module in modules for p in module.parameters() if p.requires_grad)
            parts.append(PartSummary(rate, len(modules), parameters, fast_lr))
        return tuple(parts)

    def recorded_size(self, cfg: Network) -> tuple[int | str | None, float | str]:
        """Rank and alpha for the metadata: the options, with `dim_from_weights` the file's, if several "Dynamic"."""
        if not cfg.dim_from_weights:
            return cfg.network_dim, cfg.network_alpha
        sizes = {m.size for m in self.modules_by_name().values() if not m.target.is_conv3x3}
        if len(sizes) != 1:
            return "Dynamic", "Dynamic"
        (size,) = sizes
        return size.rank, size.rank if size.alpha is None else size.alpha

    def parts_without_gradient(self) -> list[str]:
        """Trained parts in which the last backward left no gradient, or only zeros: they would never learn.

        Waits for the device; meant for once, after the first backward.
        """
        silent = []
        for rate in self.rates:
            if rate.lr is None:
                continue
            grads = [
                p.grad for module in self._part_modules(rate.part) for p in module.parameters() if p.grad is not None
            ]
            if not any(bool(grad.any()) for grad in grads):
                silent.append(rate.part)
        return silent

    def apply_max_norm(self, max_norm: float) -> NormReport:
        """Shrink each trained module whose change of the weight has a norm above `max_norm` to that norm."""
        modules = [m for m in self.modules_by_name().values() if next(m.parameters()).requires_grad]
        norms = torch.stack([module.norm() for module in modules])
        ratios = norms.clamp(max=max_norm) / norms.clamp(min=max_norm / 2)  # the lower bound only avoids 0/0
        ratios = torch.where(norms > max_norm, ratios, 1.0)
        for module, ratio in zip(modules, ratios, strict=True):
            module.shrink(ratio)
        scaled = norms * ratios
        return NormReport((ratios != 1).sum(), scaled.mean(), scaled.max())

    def _add(self, kind: type[AdapterModule], target: AdapterTarget, size: Size, seed: int, is_trained: bool) -> None:
        module = kind.build(target, size, self.settings.dropouts, self.settings.extra, self._draws, seed)
        module.requires_grad_(is_trained)
        self.add_module(target.name, module)

    def _load(self, file: MatchedFile) -> None:
        modules = self.modules_by_name()
        used = {name: tensors for name, tensors in file.tensors.items() if name in modules}
        for name, tensors in used.items():
            try:
                modules[name].load_tensors(tensors)
            except ValueError as error:
                remedy = "set network_dim and conv_dim to the file's ranks, or dim_from_weights"
                raise UserError(f"{file.path}: {name}: {error}; {remedy}") from error
        left = (*file.unmatched, *(name for name in file.tensors if name not in used))
        self.loaded = LoadReport(file.path, tuple(used), left)
        logger.log(logging.WARNING if left else logging.INFO, "network_weights: %s", self.loaded)

    @property
    def _rates(self) -> dict[str, PartRate]:
        return {rate.part: rate for rate in self.rates}

    def _part_modules(self, part: str) -> list[AdapterModule]:
        return [module for module in self.modules_by_name().values() if module.target.part == part]


def _option_sizes(targets: tuple[AdapterTarget, ...], settings: AdapterSettings) -> dict[str, Size]:
    """Size of each target that the options train."""
    sizes = {target.name: settings.size_of(target) for target in targets}
    return {name: Size(*size) for name, size in sizes.items() if size is not None}


def _file_sizes(file: MatchedFile, kind: type[AdapterModule]) -> dict[str, Size]:
    return {name: kind.size_of(tensors) for name, tensors in file.tensors.items()}
