"""How many processes read pictures."""

from __future__ import annotations

import os

SMALL = 32  # so few pictures are read by the training process: a worker takes longer to start
MEDIUM = 256
MOST = 16


def choose_workers(cores: int, processes: int, cached: bool, samples: int) -> int:
    """Loader processes for each training process.

    Latents in memory need none, few pictures few; else 60 % of the cores are shared by the training processes.

    Args:
        cores: of the machine that this process may use.
        processes: that train on it.
        cached: whether latents come from memory.
        samples: pictures in the plan.
    """
    if cached or samples < SMALL:
        return 0
    share = max(1, int(cores * 0.6 / max(processes, 1)))
    return min(share, 2 if samples < MEDIUM else MOST)


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
