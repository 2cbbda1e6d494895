"""Options → what kind of adapter is built, how large, and which parts are trained at which rate. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from sd_scripts.adapters.blocks import BlockSettings, take_block_settings
from sd_scripts.adapters.kinds import Kind, find_kind
from sd_scripts.errors import ConfigError
from sd_scripts.models.family import ModelFamily, Part
from sd_scripts.options.families import FAMILIES
from sd_scripts.options.network_arguments import current_name, item_problem, items_of, read_item, split_items

if TYPE_CHECKING:
    from sd_scripts.options.methods import Network

DEFAULT_RANK = 4
DEFAULT_CONV_ALPHA = 1.0


@dataclass(frozen=True)
class Dropouts:
    """Chances (0 ≤ p < 1): of each value between down and up, of each rank of a sample, of a whole module."""

    neuron: float = 0.0
    rank: float = 0.0
    module: float = 0.0

    @property
    def any(self) -> bool:
        return bool(self.neuron or self.rank or self.module)


class Sized(Protocol):
    """What the size of an adapter depends on: of a target by name or in a loaded model."""

    @property
    def is_conv3x3(self) -> bool: ...

    @property
    def needs_conv_dim(self) -> bool: ...

    @property
    def block(self) -> int | None: ...


@dataclass(frozen=True)
class AdapterSettings:
    """What the network options ask for."""

    kind: Kind
    rank: int
    alpha: float
    conv_rank: int | None = None
    conv_alpha: float = DEFAULT_CONV_ALPHA
    dropouts: Dropouts = Dropouts()
    unet_ratio: float | None = None  # LoRA+
    text_encoder_ratio: float | None = None
    blocks: BlockSettings | None = None  # of the U-Net
    extra: Mapping[str, object] = field(default_factory=dict)  # arguments that only this kind has

    def plus_ratio(self, part: str) -> float | None:
        """LoRA+ ratio of a part, None without."""
        return self.unet_ratio if part == "unet" else self.text_encoder_ratio

    def size_of(self, target: Sized) -> tuple[int, float] | None:
        """Rank and alpha of a target; None: it is left out."""
        by_block = self.blocks if target.block is not None else None
        trains_conv = self.conv_rank is not None or (self.blocks is not None and self.blocks.conv_dims is not None)
        if (target.needs_conv_dim and not trains_conv) or (by_block and by_block.is_left_out(target.block)):
            return None
        if target.is_conv3x3:
            rank, alpha = self.conv_rank or 0, self.conv_alpha
            own = (by_block.conv_dims, by_block.conv_alphas) if by_block else (None, None)
        else:
            rank, alpha = self.rank, self.alpha
            own = (by_block.dims, by_block.alphas) if by_block else (None, None)
        rank = rank if own[0] is None else own[0][target.block]
        return (rank, alpha if own[1] is None else own[1][target.block]) if rank else None

    def rank_of(self, target: Sized) -> int | None:
        """Rank of a target; None: it is left out."""
        size = self.size_of(target)
        return None if size is None else size[0]

    def rate_weight(self, block: int | None) -> float:
        """By which the rate of a target in this block is multiplied."""
        weights = self.blocks.weights if self.blocks is not None and block is not None else None
        return 1.0 if weights is None else weights[block]


def adapter_settings(cfg: Network, family: ModelFamily | None = None) -> AdapterSettings:
    """Read the network options. Raises ConfigError for unknown modules and arguments and for impossible values.

    Args:
        family: of the model; without it nothing is said of its blocks.
    """
    kind = find_kind(cfg.network_module)
    arguments = read_arguments(kind, cfg.network_args or [])
    blocks = None
    if family is not None and family.blocks is not None:
        blocks = take_block_settings(arguments, family.blocks)
    ratio = arguments.pop("loraplus_lr_ratio", None)
    return AdapterSettings(
        kind,
        rank=DEFAULT_RANK if cfg.network_dim is None else cfg.network_dim,
        alpha=cfg.network_alpha,
        conv_rank=arguments.pop("conv_dim", None),
        conv_alpha=arguments.pop("conv_alpha", DEFAULT_CONV_ALPHA),
        dropouts=Dropouts(
            cfg.network_dropout or 0.0, arguments.pop("rank_dropout", 0.0), arguments.pop("module_dropout", 0.0)
        ),
        unet_ratio=arguments.pop("loraplus_unet_lr_ratio", ratio),
        text_encoder_ratio=arguments.pop("loraplus_text_encoder_lr_ratio", ratio),
        blocks=blocks,
        extra=arguments,
    )


def read_arguments(kind: Kind, network_args: Sequence[str]) -> dict[str, Any]:
    """The values of those `network_args` that this kind of adapter has.

    Raises ConfigError for what `network_arguments.check_items` calls an error; what is a warning there is left out.
    """
    own = items_of(kind.name)
    values = {}
    for name, text in split_items(network_args).items():
        problem = item_problem(kind.name, name, text, tuple(FAMILIES))
        if problem and problem.level == "error":
            raise ConfigError("network_args", f"{name}={text}", f"{problem.message} - {problem.remedy}".rstrip(" -"))
        current = current_name(name)
        if current in own and (value := read_item(current, text)[0]) is not None:
            values[current] = value
    return values


@dataclass(frozen=True)
class PartRate:
    """How a part of the model is trained. `lr` is None when it is not, and `reason` says why."""

    part: str
    lr: float | None
    reason: str = ""
    is_left_out: bool = False  # by a "train … only" option: not even loaded from a file
    label: str = ""  # of the part, for people


def part_rates(parts: Sequence[Part], cfg: Network) -> tuple[PartRate, ...]:
    """The rate of each part: its own, else the base rate; 0 freezes it. ConfigError when nothing is left to train."""
    if cfg.network_train_unet_only and cfg.network_train_text_encoder_only:
        raise ConfigError(
            "network_train_unet_only", True, "cannot be combined with network_train_text_encoder_only; unset one"
        )
    encoders = [part.name for part in parts if part.is_text_encoder]
    given = _encoder_rates(cfg.text_encoder_lr, len(encoders))
    rates = []
    for part in parts:
        only = "network_train_unet_only" if part.is_text_encoder else "network_train_text_encoder_only"
        option = "text_encoder_lr" if part.is_text_encoder else "unet_lr"
        own = given[encoders.index(part.name)] if part.is_text_encoder else cfg.unet_lr
        rates.append(_rate(part, only, bool(getattr(cfg, only)), option, own, cfg.learning_rate))
    if all(rate.lr is None for rate in rates):
        why = "; ".join(f"{rate.label}: {rate.reason}" for rate in rates)
        raise ConfigError("learning_rate", cfg.learning_rate, f"nothing is left to train ({why})")
    return tuple(rates)


def _rate(part: Part, only: str, is_left_out: bool, option: str, own: float | None, base: float) -> PartRate:
    if is_left_out:
        return PartRate(part.name, None, only, is_left_out=True, label=part.label)
    lr = base if own is None else own
    if lr == 0:
        return PartRate(part.name, None, f"{'learning_rate' if own is None else option} = 0", label=part.label)
    return PartRate(part.name, lr, label=part.label)


def _encoder_rates(value: Sequence[float] | float | None, encoders: int) -> list[float | None]:
    """One rate for each text encoder; the last one given also serves those after it."""
    given = [value] if isinstance(value, (int, float)) else list(value or [])
    if len(given) > max(encoders, 1):
        have = "no text encoder" if encoders == 0 else f"{encoders} text encoder{'s' if encoders > 1 else ''}"
        raise ConfigError("text_encoder_lr", value, f"has {len(given)} values, but the model has {have}")
    if any(rate is not None and rate < 0 for rate in given):
        raise ConfigError("text_encoder_lr", value, "a learning rate cannot be negative")
    return [given[min(i, len(given) - 1)] if given else None for i in range(encoders)]
