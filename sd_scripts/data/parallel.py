"""The same small look at many files: one after the other from memory, in threads from a slow disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = 8
# Seconds; from here on reads wait for the disk. In memory one takes 20 us, and threads would be in each other's way.
SLOW_READ = 0.0003

T = TypeVar("T")
R = TypeVar("R")


def in_parts(function: Callable[[T], R], items: Sequence[T]) -> Iterator[list[R]]:
    """`function` of each item, in order, part by part; in threads where the first few show that the disk is slow."""
    first, rest = items[:32], items[32:]
    results, seconds = [], []
    for item in first:
        began = time.perf_counter()
        results.append(function(item))
        seconds.append(time.perf_counter() - began)
    yield results
    size = max(1, min(64, len(rest) // (4 * THREADS)))  # a task for every item costs as much as the work itself
    parts = [rest[at : at + size] for at in range(0, len(rest), size)]
    # The median: on a busy machine some take long that do not wait for the disk.
    if not parts or sorted(seconds)[len(seconds) // 2] < SLOW_READ:
        yield from ([function(item) for item in part] for part in parts)
        return
    with ThreadPoolExecutor(THREADS) as pool:
        yield from pool.map(lambda part: [function(item) for item in part], parts)
