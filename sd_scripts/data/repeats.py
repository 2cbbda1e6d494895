"""How often each regularisation picture is used: as often in all as there are uses of training pictures."""

from __future__ import annotations

from collections.abc import Sequence


def fit_repeats(repeats: Sequence[int], wanted: int) -> list[int]:
    """Uses per epoch of each regularisation picture, in the order of the pictures.

    Pictures get their own repeats until `wanted` uses are reached; pictures after that get 0. Where all are too few,
    each gets one more, in order, again and again.
    """
    if wanted <= 0 or not repeats:
        return [0] * len(repeats)
    fitted: list[int] = []
    total = 0
    for count in repeats:
        fitted.append(count if total < wanted else 0)
        total += fitted[-1]
    each, extra = divmod(max(0, wanted - total), len(repeats))
    return [count + each + (at < extra) for at, count in enumerate(fitted)]


def share(total: int, sizes: Sequence[int]) -> list[int]:
    """`total` split in proportion to the sizes, in whole numbers that add up; the largest fractions are rounded up."""
    whole = sum(sizes)
    if not whole:
        return [0] * len(sizes)
    exact = [total * size / whole for size in sizes]
    shares = [int(value) for value in exact]
    by_fraction = sorted(range(len(sizes)), key=lambda at: shares[at] - exact[at])
    for at in by_fraction[: total - sum(shares)]:
        shares[at] += 1
    return shares


def rotated(pool: Sequence[int], quota: int, epoch: int) -> list[int]:
    """The `quota` members of a pool whose turn it is: each epoch goes on where the one before stopped."""
    return [pool[(epoch * quota + at) % len(pool)] for at in range(quota)]
