"""Ranks, alphas and rates by block of the U-Net: `block_dims`, `down_lr_weight` and their kin. Needs no torch."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from sd_scripts.errors import ConfigError
from sd_scripts.models.family import BlockRows

logger = logging.getLogger(__name__)

WEIGHT_ITEMS = ("down_lr_weight", "mid_lr_weight", "up_lr_weight")
SIZE_ITEMS = ("block_dims", "block_alphas", "conv_block_dims", "conv_block_alphas")
THRESHOLD = "block_lr_zero_threshold"


@dataclass(frozen=True)
class BlockSettings:
    """What the options say of each block; None: nothing."""

    dims: tuple[int, ...] | None = None
    alphas: tuple[float, ...] | None = None
    conv_dims: tuple[int, ...] | None = None
    conv_alphas: tuple[float, ...] | None = None
    weights: tuple[float, ...] | None = None  # of the rates; a block of weight 0 is left out

    def is_left_out(self, block: int) -> bool:
        """Whether its rate is 0."""
        return self.weights is not None and self.weights[block] == 0


def take_block_settings(items: MutableMapping[str, Any], rows: BlockRows) -> BlockSettings | None:
    """What the items of `network_args` say of blocks, which are taken out of them; None if they say nothing.

    Raises:
        ConfigError: another number of values than there are blocks, or no numbers.
    """
    given = {name: items.pop(name) for name in (*SIZE_ITEMS, *WEIGHT_ITEMS, THRESHOLD) if name in items}
    if not any(name in given for name in (*SIZE_ITEMS, *WEIGHT_ITEMS)):
        return None
    return BlockSettings(
        _whole(given, "block_dims", rows.total),
        _numbers(given, "block_alphas", rows.total),
        _whole(given, "conv_block_dims", rows.total),
        _numbers(given, "conv_block_alphas", rows.total),
        _weights(given, rows),
    )


def _numbers(given: Mapping[str, str], name: str, count: int) -> tuple[float, ...] | None:
    if name not in given:
        return None
    values = _read(name, given[name])
    if len(values) != count or min(values) < 0:
        raise ConfigError("network_args", f"{name}={given[name]}", f"must be {count} numbers, one for each block")
    return tuple(values)


def _whole(given: Mapping[str, str], name: str, count: int) -> tuple[int, ...] | None:
    values = _numbers(given, name, count)
    if values is not None and any(value != int(value) for value in values):
        raise ConfigError("network_args", f"{name}={given[name]}", "ranks are whole numbers")
    return None if values is None else tuple(map(int, values))


def _weights(given: Mapping[str, Any], rows: BlockRows) -> tuple[float, ...] | None:
    if not any(name in given for name in WEIGHT_ITEMS):
        return None
    threshold = given.get(THRESHOLD) or 0.0
    weights = [1.0] * rows.before
    for name, count in zip(WEIGHT_ITEMS, (rows.down, rows.mid, rows.up), strict=True):
        weights += _row_of_weights(name, given.get(name), count)
    weights += [1.0] * rows.after
    return tuple(weight if weight > threshold else 0.0 for weight in weights)


def _row_of_weights(name: str, text: str | None, count: int) -> list[float]:
    """The weights of one row: those given, a curve, or 1 where nothing is said."""
    if text is None:
        return [1.0] * count
    if text.strip().partition("+")[0] in CURVES:
        return _curve(name, text.strip(), count)
    values = _read(name, text)
    if any(value < 0 for value in values):
        raise ConfigError("network_args", f"{name}={text}", "a rate cannot be multiplied by a negative number")
    if len(values) != count:
        what = f"only the first {count} are used" if len(values) > count else "the rest is 1"
        logger.warning("%s has %d values for %d blocks: %s", name, len(values), count, what)
    return (values + [1.0] * count)[:count]


# x runs from 0 at the first block of the row to 1 at the last
CURVES = {
    "sine": lambda x: math.sin(math.pi / 2 * x),
    "cosine": lambda x: math.sin(math.pi / 2 * (1 - x)),
    "linear": lambda x: x,
    "reverse_linear": lambda x: 1 - x,
    "zeros": lambda x: 0.0,
}


def _curve(name: str, text: str, count: int) -> list[float]:
    curve, _, offset = text.partition("+")
    (lift,) = _read(name, offset) if offset else (0.0,)
    return [CURVES[curve](i / max(1, count - 1)) + lift for i in range(count)]


def _read(name: str, text: str) -> Sequence[float]:
    """Numbers between commas; nothing between two is 0."""
    try:
        return [float(item) if item.strip() else 0.0 for item in text.strip("[]() ").split(",")]
    except ValueError:
        curves = f", or one of {', '.join(CURVES)}" if name in WEIGHT_ITEMS else ""
        raise ConfigError("network_args", f"{name}={text}", f"must be numbers separated by commas{curves}") from None
