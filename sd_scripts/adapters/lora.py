"""LoRA: the change of a weight is `alpha / rank * up @ down` (Hu et al. 2021, https://arxiv.org/abs/2106.09685).

For a convolution `down` carries the kernel, stride and padding and `up` is 1x1.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from sd_scripts.adapters.base import AdapterModule, Size, fused_shape, out_rows
from sd_scripts.adapters.draws import DrawKey
from sd_scripts.adapters.settings import Dropouts
from sd_scripts.models.base import AdapterTarget
from sd_scripts.seeds import seed_of


def product(up: Tensor, down: Tensor) -> Tensor:
    """`up @ down` in the shape of the weight it changes: (out, in) or (out, in, kh, kw); float32."""
    matrix = up.flatten(1).float() @ down.flatten(1).float()
    return matrix.view(up.shape[0], *down.shape[1:])


def drop(values: Tensor, draws: Tensor, p: float) -> Tensor:
    """Zero where the draw is not above `p`, the rest enlarged so that the mean stays. `draws` broadcasts."""
    return values * ((draws > p).to(values.dtype) / (1 - p))


class LoraModule(AdapterModule):
    """LoRA of a Linear or Conv2d, or of several that are the parts of one; without values until `build` fills it."""

    suffixes = ("alpha", "lora_down.weight", "lora_up.weight")

    def __init__(self, target: AdapterTarget, size: Size, dropouts: Dropouts, draws: DrawKey):
        super().__init__(target, size, dropouts, draws)
        first = target.modules[0]
        rows = fused_shape(target.modules)[0]
        self.register_buffer("alpha", torch.tensor(float(size.alpha or size.rank)))  # first in the file
        if isinstance(first, nn.Conv2d):
            if first.groups != 1:
                raise TypeError(f"{target.name}: LoRA of a grouped convolution is not defined in any file format")
            self.lora_down = skip_init(
                nn.Conv2d, first.in_channels, size.rank, first.kernel_size, first.stride, first.padding, first.dilation,
                bias=False, padding_mode=first.padding_mode,
            )  # fmt: skip
            self.lora_up = skip_init(nn.Conv2d, size.rank, rows, 1, bias=False)
        else:
            self.lora_down = skip_init(nn.Linear, first.in_features, size.rank, bias=False)
            self.lora_up = skip_init(nn.Linear, size.rank, rows, bias=False)
        ends = tuple(accumulate(map(out_rows, target.modules)))
        self._rows = tuple(slice(start, end) for start, end in zip((0, *ends), ends, strict=False))

    @classmethod
    def build(
        cls,
        target: AdapterTarget,
        size: Size,
        dropouts: Dropouts,
        extra: Mapping[str, object],
        draws: DrawKey,
        seed: int,
    ) -> LoraModule:
        module = cls(target, size, dropouts, draws)
        # a generator of its own for each name, so that the start does not depend on which other modules are trained
        generator = torch.Generator().manual_seed(seed_of(seed, target.name))
        nn.init.kaiming_uniform_(module.lora_down.weight, a=5**0.5, generator=generator)
        nn.init.zeros_(module.lora_up.weight)
        return module

    @classmethod
    def size_of(cls, tensors: Mapping[str, Tensor]) -> Size:
        alpha = tensors.get("alpha")
        return Size(tensors["lora_down.weight"].shape[0], None if alpha is None else float(alpha))

    @classmethod
    def weight_change(cls, tensors: Mapping[str, Tensor], shape: torch.Size) -> Tensor:
        change = product(tensors["lora_up.weight"], tensors["lora_down.weight"])
        if change.numel() != shape.numel():
            raise ValueError(f"a change of shape {tuple(change.shape)} for a weight of shape {tuple(shape)}")
        return cls.size_of(tensors).scale * change.view(
            shape
        )  # files write 1x1 convolutions and linears for each other

    @property
    def scale(self) -> float:
        """alpha / rank."""
        return self.size.scale

    def adjust(self, part: int, x: Tensor, output: Tensor) -> Tensor:
        # autocast picks the format itself; without it the product is computed in the format of the trained weights
        if not torch.is_autocast_enabled(x.device.type):
            x = x.to(self.lora_down.weight.dtype)
        low = self.lora_down(x)  # (b, …, rank) or (b, rank, h, w)
        low = low * (self.multiplier * self.scale)
        if self.training and self.dropouts.any:
            low = self._dropped(low)
        return output + self._up(low, part).to(output.dtype)

    def _up(self, low: Tensor, part: int) -> Tensor:
        weight = self.lora_up.weight if len(self._rows) == 1 else self.lora_up.weight[self._rows[part]]
        return functional.conv2d(low, weight) if weight.ndim == 4 else functional.linear(low, weight)

    def _dropped(self, low: Tensor) -> Tensor:
        """`low` after the three dropouts: of single values, of ranks of a sample, of the whole module."""
        device = low.device
        if p := self.dropouts.neuron:
            low = drop(low, self._draw("neuron", tuple(low.shape), device), p)
        if p := self.dropouts.rank:
            draws = self._draw("rank", (low.shape[0], self.size.rank), device)
            is_conv = self.lora_up.weight.ndim == 4
            inner = (1,) * (low.ndim - 2)
            low = drop(
                low, draws.view(low.shape[0], -1, *inner) if is_conv else draws.view(low.shape[0], *inner, -1), p
            )
        if p := self.dropouts.module:
            # a factor instead of a branch: no wait for the device, and a gradient (of zero) for every process
            low = low * (self._draw("module", (), device) >= p).to(low.dtype)
        return low

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        found = self.size_of(tensors)
        down, up = tensors["lora_down.weight"], tensors["lora_up.weight"]
        if found.rank != self.size.rank:
            raise ValueError(f"the file has rank {found.rank}, the network {self.size.rank}")
        if down.numel() != self.lora_down.weight.numel() or up.numel() != self.lora_up.weight.numel():
            raise ValueError(f"the file has {tuple(up.shape)} x {tuple(down.shape)}, which does not fit the layer")
        with torch.no_grad():
            self.lora_down.weight.copy_(down.view_as(self.lora_down.weight))
            # another alpha than ours: `up` takes up the difference, so that the file acts as it did
            self.lora_up.weight.copy_(up.view_as(self.lora_up.weight).float() * (found.scale / self.scale))

    def norm(self) -> Tensor:
        # |up @ down|_F from the two rank x rank Gram matrices: no matrix of the weight's size is made
        up, down = self.lora_up.weight.detach().flatten(1).float(), self.lora_down.weight.detach().flatten(1).float()
        squared = ((up.T @ up) * (down @ down.T)).sum()
        return squared.clamp(min=0).sqrt() * self.scale

    def shrink(self, ratio: Tensor) -> None:
        root = ratio.sqrt()
        with torch.no_grad():
            self.lora_up.weight.mul_(root)
            self.lora_down.weight.mul_(root)

    def fast_parameters(self) -> list[nn.Parameter]:
        return [self.lora_up.weight]
