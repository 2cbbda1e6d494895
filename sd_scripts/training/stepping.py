"""How the optimizer goes through the weights, from the options: all at once, or in parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch.nn import Parameter

from sd_scripts.errors import ConfigError
from sd_scripts.training.split_optimizer import Stepping, by_block, each_alone, in_equal_parts, up_to_size

# Weights that are float32 at a time while bfloat16 ones are stepped: 128 MB, and still few enough calls to keep a GPU busy.
FLOAT32_AT_A_TIME = 2**25


class SteppingOptions(Protocol):
    """The options read here; every recipe has them."""

    fused_backward_pass: bool
    fused_optimizer_groups: int | None
    blockwise_fused_optimizers: bool
    full_bf16: bool
    stochastic_rounding: bool
    max_grad_norm: float


def stepping_of(
    cfg: SteppingOptions, named: Mapping[str, Parameter], seed: int, *, is_sharded: bool = False
) -> Stepping | None:
    """How the trained parameters are stepped; None is all at once, as the optimizer itself does it.

    Args:
        named: the parameters by their names, in the order of the model.
        is_sharded: DeepSpeed or FSDP lay the weights out anew, and keep what they want of them in float32.
    """
    parameters = list(named.values())
    rounding_seed = seed if cfg.full_bf16 and cfg.stochastic_rounding and not is_sharded else None
    if cfg.fused_backward_pass:
        parts = each_alone(parameters)
    elif cfg.blockwise_fused_optimizers:
        parts = by_block(named)
    elif cfg.fused_optimizer_groups:
        parts = in_equal_parts(parameters, cfg.fused_optimizer_groups)
    elif rounding_seed is not None:
        return Stepping(up_to_size(parameters, FLOAT32_AT_A_TIME), rounding_seed=rounding_seed)
    else:
        return None
    return Stepping(parts, is_fused=True, max_norm=cfg.max_grad_norm, rounding_seed=rounding_seed)


def check_stepping(cfg: SteppingOptions, processes: int) -> None:
    """Raise ConfigError where several processes exclude it: their gradients meet only after the backward pass."""
    for name in ("fused_backward_pass", "fused_optimizer_groups", "blockwise_fused_optimizers"):
        if getattr(cfg, name) and processes > 1:
            reason = f"works on one device only, and there are {processes} processes; leave it off, or start one"
            raise ConfigError(name, getattr(cfg, name), reason)
