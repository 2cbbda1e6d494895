"""Layers whose weights do not train: the backward pass keeps nothing of them but the stored weight itself.

A usual layer hands autograd a view or a converted copy of its weight, which then lives until the backward pass. So weights that
are stored in 8 bits, or that leave the device between forward and backward, would take their full place all the same. Here the
backward pass reads the weight anew from where it is stored.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

STORED = torch.float8_e4m3fn
# The least to gain: weights below it (a gate, a small embedding) stay as they are.
SMALLEST_WEIGHT = 1024


class FrozenLinear(nn.Linear):
    """A Linear of a weight that may be stored in 8 bits, divided by `weight_scale`."""

    weight_scale: float

    def forward(self, x: Tensor) -> Tensor:
        x, bias = _inputs(x, self.weight, self.bias)
        return _LinearProduct.apply(x, self.weight, bias, self.weight_scale)


class FrozenConv2d(nn.Conv2d):
    """A Conv2d of a weight that may be stored in 8 bits, divided by `weight_scale`."""

    weight_scale: float

    def forward(self, x: Tensor) -> Tensor:
        x, bias = _inputs(x, self.weight, self.bias)
        return _Convolution.apply(
            x, self.weight, bias, self.weight_scale, self.stride, self.padding, self.dilation, self.groups
        )


def freeze_layers(network: nn.Module) -> list[FrozenLinear | FrozenConv2d]:
    """Turn every Linear and Conv2d of a network that does not train into a frozen one; which those are.

    Modules stay the same objects with the same names, tensors and hooks.
    """
    return [layer for module in network.modules() if (layer := _frozen(module)) is not None]


def _frozen(module: nn.Module) -> FrozenLinear | FrozenConv2d | None:
    if isinstance(module, (FrozenLinear, FrozenConv2d)):
        return module
    if any(parameter.requires_grad for parameter in module.parameters(recurse=False)):
        return None
    if type(module) is nn.Linear:
        module.__class__ = FrozenLinear
    elif type(module) is nn.Conv2d and module.padding_mode == "zeros" and not isinstance(module.padding, str):
        module.__class__ = FrozenConv2d
    else:
        return None
    module.weight_scale = 1.0
    return module


def store_in_8_bits(network: nn.Module, device: torch.device | None = None) -> int:
    """Keep the weights of a network's frozen Linear and Conv2d layers in float8_e4m3fn; the bytes saved by that.

    Norms, biases, embeddings and single parameters stay as they are.

    Args:
        device: where to convert, if not where the weights are; they stay where they are in any case.
    """
    saved = 0
    for layer in freeze_layers(network):
        weight = layer.weight
        if weight.dtype == STORED or weight.numel() < SMALLEST_WEIGHT:
            continue
        small, layer.weight_scale = in_8_bits(weight.data.to(device or weight.device))
        saved += weight.nbytes - small.nbytes
        weight.data = small.to(weight.device)
    return saved


def in_8_bits(weight: Tensor) -> tuple[Tensor, float]:
    """A weight divided by a power of two, in float8_e4m3fn, and that power.

    The largest value comes to lie in the upper half of the format's range (up to 448), so that as few as possible fall below
    its smallest normal number, 2^-6. A power of two costs no accuracy: values that had 4 significant bits come back exactly.
    """
    largest = float(weight.abs().amax()) if weight.numel() else 0.0
    if largest == 0 or not math.isfinite(largest):
        return weight.to(STORED), 1.0
    scale = 2.0 ** math.ceil(math.log2(largest / torch.finfo(STORED).max))
    return (weight.float() / scale).to(STORED), scale


def weight_of(layer: nn.Module) -> Tensor:
    """A layer's weight as it acts: of one stored in 8 bits the value in float32."""
    if isinstance(layer, (FrozenLinear, FrozenConv2d)) and layer.weight.dtype == STORED:
        return _widened(layer.weight, layer.weight_scale, torch.float32)
    return layer.weight


def dtype_of(network: nn.Module) -> torch.dtype:
    """The format in which a network computes: that of its first weight which is not stored in 8 bits."""
    return next((p.dtype for p in network.parameters() if p.dtype != STORED), torch.get_default_dtype())


def _inputs(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Input and bias in the format of the computation: autocast's, else the weight's, else (8 bits) the bias's or input's."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
    elif weight.dtype != STORED:
        dtype = weight.dtype
    else:
        dtype = x.dtype if bias is None else bias.dtype
    return x.to(dtype), None if bias is None else bias.to(dtype)


def _widened(weight: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """The weight in the format of the computation; itself where nothing has to be done."""
    if weight.dtype == dtype and scale == 1:
        return weight
    return weight.to(dtype) if scale == 1 else weight.to(dtype).mul_(scale)


class _LinearProduct(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, scale: float) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.scale, ctx.dtype = scale, x.dtype
        return functional.linear(x, _widened(weight, scale, x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        return gradient.matmul(_widened(weight, ctx.scale, ctx.dtype)), None, None, None


class _Convolution(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        scale: float,
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        groups: int,
    ) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.scale, ctx.dtype, ctx.shape = scale, x.dtype, x.shape
        ctx.geometry = (stride, padding, dilation, groups)
        return functional.conv2d(x, _widened(weight, scale, x.dtype), bias, stride, padding, dilation, groups)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        wide = _widened(weight, ctx.scale, ctx.dtype)
        stride, padding, dilation, groups = ctx.geometry
        # Only the shape of the input matters for its gradient, so it is not kept.
        shape_only = gradient.new_empty(1).expand(ctx.shape)
        into_x, _, _ = torch.ops.aten.convolution_backward(
            gradient, shape_only, wide, None, stride, padding, dilation, False, (0, 0), groups, (True, False, False)
        )
        return into_x, None, None, None, None, None, None, None
