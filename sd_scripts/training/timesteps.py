"""Which timesteps a batch trains. The draws come from explicit generators on the CPU, as those of the noise do."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from sd_scripts.errors import ConfigError


def timestep_bounds(min_timestep: int | None, max_timestep: int | None, num_timesteps: int = 1000) -> tuple[int, int]:
    """The smallest timestep, and the one that is just too large. Unset bounds are those of the schedule.

    Equal bounds mean that single timestep. Bounds in the wrong order or outside the schedule raise ConfigError.
    """
    low = 0 if min_timestep is None else min_timestep
    high = num_timesteps if max_timestep is None else max_timestep
    if not 0 <= low < num_timesteps:
        raise ConfigError("min_timestep", low, f"must be between 0 and {num_timesteps - 1}")
    if high > num_timesteps:
        raise ConfigError("max_timestep", high, f"must be at most {num_timesteps}")
    if low > high:
        raise ConfigError("min_timestep", low, f"must not be above max_timestep ({high}), which is itself left out")
    return (low, low + 1) if low == high else (low, high)


def uniform_timesteps(batch_size: int, low: int, high: int, generators: Generator | Sequence[Generator]) -> Tensor:
    """Integer timesteps (b,) on the CPU, evenly from low … high - 1.

    Args:
        generators: CPU generators, one per sample; or a single one that serves the samples in order.
    """
    chosen = [generators] * batch_size if isinstance(generators, Generator) else list(generators)
    if len(chosen) != batch_size:
        raise ValueError(f"{len(chosen)} generators for {batch_size} samples")
    return torch.cat([torch.randint(low, high, (1,), generator=generator) for generator in chosen])
