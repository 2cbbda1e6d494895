"""Weights kept in bfloat16 that still learn from small steps.

bfloat16 has 8 bits of precision: a step below 1/512 of a weight is rounded away, each time, so training stands still.
Stochastic rounding goes up or down with a chance that makes the mean right (Zamirai et al., "Revisiting BFloat16
Training", arXiv:2010.06192).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor
from torch.nn import Parameter

Rounding = Callable[[Tensor], Tensor]  # float32 -> bfloat16


def stochastically_rounded(values: Tensor, generator: Generator | None = None) -> Tensor:
    """float32 values as bfloat16, up or down at random so that their mean stays; infinities and NaN stay what they are.

    Args:
        generator: on the device of `values`.
    """
    bits = values.view(torch.int32)
    noise = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32, device=values.device, generator=generator)
    # A bfloat16 is the upper half of a float32; the lower half, as a share of 2^16, is the chance that the sum carries.
    rounded = ((bits + noise) & -(1 << 16)).view(torch.float32)
    return torch.where(values.isfinite(), rounded, values).to(torch.bfloat16)


def nearest(values: Tensor) -> Tensor:
    """float32 values as the nearest bfloat16."""
    return values.to(torch.bfloat16)


@contextmanager
def in_float32(parameters: Iterable[Parameter], rounding: Rounding) -> Iterator[None]:
    """Within it bfloat16 parameters and their gradients are float32; afterwards they are rounded back into their memory."""
    kept = [(p, p.data, p.grad) for p in parameters if p.dtype == torch.bfloat16]
    for parameter, weights, gradient in kept:
        parameter.grad = None  # it must have the dtype of its parameter at all times
        parameter.data = weights.float()
        parameter.grad = None if gradient is None else gradient.float()
    try:
        yield
        for parameter, weights, _ in kept:
            weights.copy_(rounding(parameter.data))
    finally:
        for parameter, weights, gradient in kept:
            parameter.grad = None
            parameter.data = weights
            parameter.grad = gradient
