"""How many processes read pictures."""

from __future__ import annotations

import os

SMALL = 32  # so few pictures are read by the training process: a worker takes longer to start
PER_WORKER = 16  # pictures that make a process worth its start
SHARE = 0.75  # of the cores at most; the rest is for the training processes themselves


def choose_workers(cores: int, processes: int, cached: bool, samples: int) -> int:
    """Loader processes for each training process.

    Cached latents need none: they are read faster than another process could hand them over. Few pictures need few. Else
    half to three quarters of the cores are shared by the training processes.

    Args:
        cores: of the machine that this process may use.
        processes: that train on it.
        cached: whether latents come from a cache.
        samples: pictures in the plan.
    """
    if cached or samples < SMALL:
        return 0
    return min(most_workers(cores, processes), samples // PER_WORKER)


def most_workers(cores: int, processes: int) -> int:
    """Loader processes that each training process may have without slowing down the others."""
    return max(1, int(cores * SHARE / max(processes, 1)))


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
