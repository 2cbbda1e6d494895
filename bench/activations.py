"""Memory that a training step needs besides weights, counted on tensors without memory (no GPU, no data).

    python -m bench.activations

Gives the bytes for each pixel of a picture; `training/memory_estimate.py` holds them as a table.
"""

from __future__ import annotations

import logging
import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sd_scripts.models.frozen_layers import freeze_layers

logger = logging.getLogger(__name__)

HALF = torch.bfloat16
DENOISERS: dict[str, dict[str, Any]] = {
    "sd1": {"cross_attention_dim": 768, "attention_head_dim": 8},
    "sd2": {"cross_attention_dim": 1024, "attention_head_dim": (5, 10, 20, 20), "use_linear_projection": True},
    "sdxl": {
        "cross_attention_dim": 2048,
        "attention_head_dim": (5, 10, 20),
        "use_linear_projection": True,
        "block_out_channels": (320, 640, 1280),
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "transformer_layers_per_block": (1, 2, 10),
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,
    },
}


class Peak(TorchDispatchMode):
    """Counts the bytes of all tensors that were made within it and still live, and their peak; weights are known."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.known = {parameter.untyped_storage()._cdata for parameter in network.parameters()}
        self.now = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self._seen or storage._cdata in self.known:
            return
        self._seen.add(storage._cdata)
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())

    def _gone(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size


class _Attention(torch.autograd.Function):
    """What a fused kernel keeps: its inputs, its output, a number for each row."""

    @staticmethod
    def forward(ctx, q, k, v):
        out = torch.empty_like(q)
        ctx.save_for_backward(q, k, v, out, q.new_empty(q.shape[:-1], dtype=torch.float32))
        return out

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, _, _ = ctx.saved_tensors
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def as_autocast_would(network: nn.Module) -> None:
    """Norms in float32, products in 16 bits, attention fused: what happens under autocast on a GPU."""
    for module in network.modules():
        if isinstance(module, (nn.GroupNorm, nn.LayerNorm)):
            module.float().register_forward_pre_hook(lambda _m, inputs: (inputs[0].float(),))
        elif isinstance(module, (nn.Linear, nn.Conv2d)):
            module.register_forward_pre_hook(lambda _m, inputs: (inputs[0].to(HALF),))
    torch.is_autocast_enabled = lambda _kind="": False  # torch knows no autocast for tensors without memory
    functional.scaled_dot_product_attention = lambda q, k, v, **_: _Attention.apply(q.to(HALF), k.to(HALF), v.to(HALF))


def network_of(family: str) -> nn.Module:
    """A frozen denoiser of a family's size with a LoRA of rank 16 at every layer."""
    from diffusers import UNet2DConditionModel

    with torch.device("meta"):
        network = UNet2DConditionModel(**DENOISERS[family]).to(HALF).requires_grad_(False).train()
        as_autocast_would(network)
        for layer in freeze_layers(network):
            width, out = layer.weight.shape[1], layer.weight.shape[0]
            down = nn.Parameter(torch.empty(16, *layer.weight.shape[1:], dtype=HALF))
            up = nn.Parameter(torch.empty(out, 16, *(1,) * (layer.weight.ndim - 2), dtype=HALF))
            layer.register_forward_hook(lora(layer, down, up)) if width >= 16 else None
    return network


def lora(layer: nn.Module, down: nn.Parameter, up: nn.Parameter) -> Any:
    """A forward hook that adds a LoRA."""
    if isinstance(layer, nn.Linear):
        return lambda _m, inputs, output: output + functional.linear(functional.linear(inputs[0], down), up)
    return lambda m, inputs, output: (
        output + functional.conv2d(functional.conv2d(inputs[0], down, None, m.stride, m.padding), up)
    )


def measure(network: nn.Module, side: int, batch: int, text_width: int) -> int:
    """Peak bytes of a step on pictures of `side` px, besides weights."""
    with Peak(network) as peak, torch.device("meta"):
        noisy = torch.empty(batch, 4, side // 8, side // 8, dtype=HALF)
        text = torch.empty(batch, 77, text_width, dtype=HALF)
        added = {"text_embeds": torch.empty(batch, 1280, dtype=HALF), "time_ids": torch.empty(batch, 6, dtype=HALF)}
        times = torch.empty(batch, dtype=torch.long)
        out = network(noisy, times, text, added_cond_kwargs=added, return_dict=False)[0]
        out.float().square().mean().backward()
    return peak.peak


def main() -> None:
    for family, settings in DENOISERS.items():
        network = network_of(family)
        for checkpoints in (False, True):
            if checkpoints:
                network.enable_gradient_checkpointing()
            for side, batch in ((512, 1), (1024, 1), (512, 4)):
                peak = measure(network, side, batch, settings["cross_attention_dim"])
                each = peak / (batch * side * side)
                logger.info(
                    "%s %d px, batch %d, %s: %.2f GB, %.0f bytes a pixel",
                    family, side, batch, "checkpoints" if checkpoints else "all kept", peak / 1e9, each,
                )  # fmt: skip


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()
