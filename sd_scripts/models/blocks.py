"""The blocks of a network: what is kept in 8 bits, swapped, or compiled one by one."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # plans count blocks without torch
    from torch import nn

    Blocks = tuple[tuple[nn.Module, ...], ...]


def block_lists(network: nn.Module) -> Blocks:
    """The outermost lists of modules that hold weights, in the order in which the network names them."""
    from torch.nn import ModuleList

    found: list[tuple[nn.Module, ...]] = []
    for child in network.children():
        if isinstance(child, ModuleList):
            blocks = tuple(block for block in child if any(True for _ in block.parameters()))
            found += [blocks] if blocks else []
        else:
            found += block_lists(child)
    return tuple(found)


def blocks_to_keep_away(lists: Sequence[Sized], wanted: int) -> list[int]:
    """How many blocks of each list are kept off the device, when the user asks for so many.

    Of two kinds of blocks, as in FLUX, one of the first counts as much as two of the second, and they take turns.
    """
    if len(lists) == 1:
        return [wanted]
    if len(lists) != 2:
        raise ValueError(f"blocks of {len(lists)} kinds are not counted in any known way")
    return [wanted // 2, 2 * (wanted - wanted // 2)]


def most_to_keep_away(lists: Sequence[Sized]) -> int:
    """The largest number for which two blocks of each list stay on the device."""
    return max(
        (n for n in range(sum(map(len, lists))) if _fits(lists, blocks_to_keep_away(lists, n))),
        default=0,
    )


def _fits(lists: Sequence[Sized], away: Sequence[int]) -> bool:
    return all(n <= max(0, len(blocks) - 2) for n, blocks in zip(away, lists, strict=True))


def spread(total: int, chosen: int) -> list[int]:
    """`chosen` of `total` places as evenly as possible, so that each transfer has the time of the blocks between."""
    return [number * total // chosen for number in range(chosen)]
