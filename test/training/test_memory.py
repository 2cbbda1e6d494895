"""Frozen layers, 8 bits, swapped blocks, checkpoints in main memory: each gives what is computed without it.

Main memory is played by negated copies: whatever computes with a tensor that is not on the device gets another result. The
device is played by arrays that are counted as long as they live.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sd_scripts.models.blocks import block_lists, blocks_to_keep_away, most_to_keep_away, spread
from sd_scripts.models.frozen_layers import (
    STORED,
    FrozenConv2d,
    FrozenLinear,
    dtype_of,
    freeze_layers,
    in_8_bits,
    store_in_8_bits,
    weight_of,
)
from sd_scripts.training.activations import keep_checkpoints_in_main_memory
from sd_scripts.training.block_swap import PLACES, BlockSwap
from sd_scripts.training.transfers import PlainTransfers, Transfers

WIDTH, COUNT = 64, 7


class Negated(Transfers):
    """Two places on one CPU."""

    def __init__(self):
        self.on_device: list[weakref.ref] = []
        self.most_on_device = 0
        self.fetched = 0

    def keep(self, tensor: Tensor) -> Tensor:
        return -tensor.detach()

    def write_back(self, tensor: Tensor, kept: Tensor) -> None:
        kept.copy_(-tensor)

    def fetch(self, kept: Sequence[Tensor]) -> tuple[list[Tensor], Any]:
        arrays = [-tensor.numpy() for tensor in kept]
        self.on_device += [weakref.ref(array) for array in arrays]
        self.fetched += len(arrays)
        moved = [torch.from_numpy(array) for array in arrays]
        self.most_on_device = max(self.most_on_device, self.living())
        return moved, "ticket"

    def wait(self, ticket: Any) -> None:
        assert ticket == "ticket"

    def living(self) -> int:
        self.on_device = [reference for reference in self.on_device if reference() is not None]
        return len(self.on_device)


class Block(nn.Module):
    """Linear, norm and a single parameter, as in a transformer; returns a tuple, as some do."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.into = nn.Linear(WIDTH, 2 * WIDTH)
        self.out = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.gate = nn.Parameter(torch.full((WIDTH,), 0.5))
        self.register_buffer("shift", torch.linspace(0, 1, WIDTH))

    def forward(self, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.out(torch.nn.functional.gelu(self.into(self.norm(x)) + other.mean()))
        return x + self.gate * hidden + self.shift, other + hidden.mean()


class Network(nn.Module):
    """A column of blocks, checkpointed or not, and an adapter at each of its linears."""

    def __init__(self, trains: bool, checkpoints: bool):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Block() for _ in range(COUNT))
        self.requires_grad_(trains)
        self.adapters = nn.ParameterList()
        for block in self.blocks if not trains else ():
            down, up = torch.randn(4, WIDTH) / 8, torch.randn(2 * WIDTH, 4) / 8
            self.adapters += [nn.Parameter(down), nn.Parameter(up)]
            block.into.register_forward_hook(self._adapter(self.adapters[-2], self.adapters[-1]))
        self.gradient_checkpointing = checkpoints
        if checkpoints:
            self._gradient_checkpointing_func = lambda *call: checkpoint(*call, use_reentrant=False)

    @staticmethod
    def _adapter(down: nn.Parameter, up: nn.Parameter):
        return lambda _module, inputs, output: output + inputs[0] @ down.T @ up.T

    def forward(self, x: Tensor) -> Tensor:
        other = torch.ones(2, 3)
        for block in self.blocks:
            run = self._gradient_checkpointing_func if self.gradient_checkpointing else lambda block, *a: block(*a)
            x, other = run(block, x, other)
        return x + other.sum()


def trained(network: Network, steps: int = 3) -> tuple[list[float], list[Tensor]]:
    """Losses and weights after a few steps of two accumulated batches, with a drawing between them."""
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2)
    losses = []
    for step in range(steps):
        for batch in range(2):
            x = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(10 * step + batch))
            loss = network(x).square().mean()
            loss.backward()
            losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            losses += [network(x).sum().item() for _ in range(2)]
    return losses, [p.detach().clone() for p in parameters]


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("away", [1, 3, COUNT - PLACES])
def test_swapped_frozen_blocks_change_no_bit_and_leave_the_device(away, checkpoints):
    expected = trained(Network(trains=False, checkpoints=checkpoints))
    network, transfers = Network(trains=False, checkpoints=checkpoints), Negated()
    for block in network.blocks:
        assert len(freeze_layers(block)) == 2
    swap = BlockSwap(network.blocks, away, transfers)
    tensors_of_a_block = len(list(network.blocks[0].parameters())) + 1
    losses, weights = trained(network)
    assert losses == expected[0]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(weights, expected[1], strict=True))
    assert len(swap.swapped) == away + PLACES
    assert transfers.most_on_device == PLACES * tensors_of_a_block  # not one more, not even for the backward pass
    assert transfers.fetched > 0


@pytest.mark.parametrize("checkpoints", [False, True])
def test_swapped_trained_blocks_are_stepped_wherever_they_are(checkpoints):
    losses, weights = trained(Network(trains=True, checkpoints=checkpoints))
    network = Network(trains=True, checkpoints=checkpoints)
    BlockSwap(network.blocks, 4, PlainTransfers(torch.device("cpu")))
    result = trained(network)
    assert result[0] == losses
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(result[1], weights, strict=True))


@pytest.mark.parametrize("checkpoints", [False, True])
def test_swapped_blocks_that_are_stepped_in_the_backward_pass_bring_their_weights_back(checkpoints):
    def losses_of(network: Network) -> list[float]:
        for parameter in network.parameters():
            parameter.register_post_accumulate_grad_hook(step)
        losses = []
        for number in range(3):
            loss = network(torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(number))).square().mean()
            loss.backward()
            losses.append(loss.item())
        return losses

    @torch.no_grad()
    def step(parameter: nn.Parameter) -> None:
        parameter -= 1e-4 * parameter.grad
        parameter.grad = None

    expected = losses_of(Network(trains=True, checkpoints=checkpoints))
    network, transfers = Network(trains=True, checkpoints=checkpoints), Negated()
    BlockSwap(network.blocks, 4, transfers)
    assert losses_of(network) == expected


def test_blocks_that_cannot_be_swapped_are_refused():
    with pytest.raises(ValueError, match="two have to stay"):
        BlockSwap(Network(False, False).blocks, COUNT - 1, Negated())


@pytest.mark.parametrize(
    ("total", "chosen", "expected"),
    [(4, 4, [0, 1, 2, 3]), (9, 3, [0, 3, 6]), (38, 20, None), (7, 6, [0, 1, 2, 3, 4, 5])],
)
def test_swapped_blocks_are_spread(total, chosen, expected):
    places = spread(total, chosen)
    assert expected is None or places == expected
    assert len(set(places)) == chosen and max(places) < total and places == sorted(places)


@pytest.mark.parametrize(
    ("sizes", "wanted", "expected"),
    # FLUX: 19 double and 38 single blocks; one double counts as much as two single ones
    [
        ((24,), 20, [20]),
        ((19, 38), 18, [9, 18]),
        ((19, 38), 35, [17, 36]),
        ((20, 40), 37, [18, 38]),
        ((19, 38), 1, [0, 2]),
    ],
)
def test_how_many_blocks_of_each_kind_are_swapped(sizes, wanted, expected):
    lists = tuple(tuple(nn.Linear(1, 1) for _ in range(size)) for size in sizes)
    assert blocks_to_keep_away(lists, wanted) == expected
    assert all(n <= size - 2 for n, size in zip(expected, sizes, strict=True))


@pytest.mark.parametrize(("sizes", "most"), [((19, 38), 35), ((20, 40), 37), ((24,), 22), ((28,), 26), ((9,), 7)])
def test_most_blocks_that_can_be_swapped(sizes, most):
    lists = tuple(tuple(nn.Linear(1, 1) for _ in range(size)) for size in sizes)
    assert most_to_keep_away(lists) == most


def test_a_transformer_of_two_kinds_of_blocks_is_swapped_without_a_change():
    from diffusers import FluxTransformer2DModel

    def network() -> nn.Module:
        torch.manual_seed(0)
        return FluxTransformer2DModel(
            in_channels=4, num_layers=4, num_single_layers=6, attention_head_dim=16, num_attention_heads=2,
            joint_attention_dim=8, pooled_projection_dim=8, axes_dims_rope=(4, 6, 6),
        ).requires_grad_(False)  # fmt: skip

    def run(transformer: nn.Module) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(1, 16, 4, generator=generator).requires_grad_()
        out = transformer(
            hidden_states=x, encoder_hidden_states=torch.randn(1, 3, 8, generator=generator),
            pooled_projections=torch.randn(1, 8, generator=generator), timestep=torch.tensor([0.5]),
            img_ids=torch.zeros(16, 3), txt_ids=torch.zeros(3, 3), return_dict=False,
        )[0]  # fmt: skip
        out.square().sum().backward()
        return out.detach(), x.grad

    plain, transfers = network(), Negated()
    expected = run(plain)
    for checkpoints in (False, True):
        swapped = network().train()
        if checkpoints:
            swapped.enable_gradient_checkpointing()
        lists = block_lists(swapped)
        assert list(map(len, lists)) == [4, 6]
        for blocks, away in zip(lists, blocks_to_keep_away(lists, 3), strict=True):
            for block in blocks:
                freeze_layers(block)
            BlockSwap(blocks, away, transfers)
        for result in (run(swapped), run(swapped)):
            assert all(torch.equal(ours, theirs) for ours, theirs in zip(result, expected, strict=True))


@pytest.mark.parametrize("kind", ["plain", "autocast"])
def test_frozen_layers_compute_what_they_did_and_keep_no_weight(kind):
    def network() -> nn.Sequential:
        torch.manual_seed(1)
        layers = (
            nn.Conv2d(4, 8, 3, padding=1, stride=2), nn.SiLU(), nn.Conv2d(8, 16, 3, dilation=2, padding=2, groups=4),
            nn.Flatten(2), nn.Linear(16, 32, bias=False), nn.GELU(), nn.Linear(32, 8),
        )  # fmt: skip
        return nn.Sequential(*layers).requires_grad_(False)

    def run(net: nn.Module) -> tuple[Tensor, Tensor]:
        x = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(2)).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "autocast"):
            out = net(x)
        out.float().square().sum().backward()
        return out.detach(), x.grad

    plain, frozen = network(), network()
    names = list(frozen.state_dict())
    assert [type(layer) for layer in freeze_layers(frozen)] == [FrozenConv2d, FrozenConv2d, FrozenLinear, FrozenLinear]
    assert freeze_layers(frozen) == freeze_layers(frozen) and list(frozen.state_dict()) == names
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(run(frozen), run(plain), strict=True))


def test_trained_layers_and_odd_ones_are_left_alone():
    odd = nn.Sequential(nn.Linear(4, 4), nn.Conv2d(4, 4, 3, padding="same"), nn.Embedding(4, 4), nn.LayerNorm(4))
    odd[1:].requires_grad_(False)
    assert freeze_layers(odd) == []


@pytest.mark.parametrize("spread_of_weights", [1e-3, 0.02, 1.0, 50.0])
def test_eight_bits_lose_little_at_any_scale(spread_of_weights):
    weight = torch.randn(320, 320, generator=torch.Generator().manual_seed(0)) * spread_of_weights
    stored, scale = in_8_bits(weight)
    assert stored.dtype == STORED and np.log2(scale) % 1 == 0
    error = (stored.float() * scale - weight).norm() / weight.norm()
    # four significant bits round by 2.6 % on average; without a scale, weights of 0.02 lose a third more
    assert 0.025 < error < 0.028
    again, again_scale = in_8_bits(stored.float() * scale)
    assert torch.equal(again.float() * again_scale, stored.float() * scale)


@pytest.mark.parametrize("weight", [torch.zeros(4, 4), torch.empty(0, 4), torch.full((4, 4), 1e-30)])
def test_eight_bits_take_odd_weights(weight):
    stored, scale = in_8_bits(weight)
    assert torch.allclose(stored.float() * scale, weight, rtol=0.07)


def test_eight_bits_halve_the_blocks_and_leave_norms_and_biases():
    network = nn.Sequential(
        nn.Linear(64, 64), nn.LayerNorm(64), nn.Embedding(64, 64), nn.Conv2d(64, 64, 3), nn.Linear(8, 8)
    )
    network.requires_grad_(False).to(torch.bfloat16)
    before = network[0].weight.clone()
    saved = store_in_8_bits(network)
    assert saved == 64 * 64 + 64 * 64 * 9  # a byte for each weight of the two larger layers
    kept = [name for name, p in network.named_parameters() if p.dtype == torch.bfloat16]
    assert kept == ["0.bias", "1.weight", "1.bias", "2.weight", "3.bias", "4.weight", "4.bias"]
    assert torch.allclose(weight_of(network[0]), before.float(), rtol=0.07, atol=1e-4)
    assert dtype_of(network) == torch.bfloat16
    assert store_in_8_bits(network) == 0  # once is enough


@pytest.mark.parametrize("smallest", [1, 2**20])
def test_checkpoints_in_main_memory_change_no_bit(smallest):
    expected = trained(Network(trains=True, checkpoints=True))
    network, transfers = Network(trains=True, checkpoints=True), Negated()
    assert keep_checkpoints_in_main_memory(network, transfers, smallest) == 1
    losses, weights = trained(network)
    assert losses == expected[0]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(weights, expected[1], strict=True))
    # two inputs a block, two batches a step, three steps; what is small stays
    assert transfers.fetched == (2 * COUNT * 2 * 3 if smallest == 1 else 0)


def test_without_checkpointing_there_is_nothing_to_keep_elsewhere():
    assert keep_checkpoints_in_main_memory(Network(trains=True, checkpoints=False), Negated()) == 0
