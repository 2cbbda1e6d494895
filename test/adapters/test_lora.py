"""The mathematics of LoRA, against golden numbers, and of its dropouts; fused layers; number formats."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from sd_scripts.adapters.base import Size
from sd_scripts.adapters.draws import DrawKey
from sd_scripts.adapters.lora import LoraModule, product
from sd_scripts.adapters.settings import Dropouts
from sd_scripts.models.base import AdapterTarget
from test.adapters.conftest import golden, tensor

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


NONE = Dropouts()


class FixedDraws(DrawKey):
    """Hands out the draws of a golden case."""

    def __init__(self, draws: torch.Tensor):
        super().__init__(0)
        self.draws = draws

    def uniform(self, salt, shape, device):
        return self.draws.view(torch.Size(shape))


def adapter(base: nn.Module | tuple, rank: int, alpha: float | None, *, dropouts=NONE, draws=None) -> LoraModule:
    modules = base if isinstance(base, tuple) else (base,)
    target = AdapterTarget("lora_unet_x", "unet", modules)
    module = LoraModule.build(target, Size(rank, alpha), dropouts, {}, draws or DrawKey(0), seed=0)
    module.attach()
    return module


def fill(module: LoraModule, inputs: dict) -> None:
    with torch.no_grad():
        module.lora_down.weight.copy_(tensor(inputs["down"]))
        module.lora_up.weight.copy_(tensor(inputs["up"]))


def linear(inputs: dict) -> nn.Linear:
    weight = tensor(inputs["weight"])
    base = nn.Linear(weight.shape[1], weight.shape[0], bias="bias" in inputs)
    base.weight.data = weight
    if "bias" in inputs:
        base.bias.data = tensor(inputs["bias"])
    return base


@pytest.mark.parametrize(("inputs", "expected"), golden("linear"))
def test_linear_matches_golden(inputs, expected):
    base = linear(inputs)
    module = adapter(base, inputs["rank"], inputs["alpha"])
    module.multiplier = inputs["multiplier"]
    fill(module, inputs)
    assert module.scale == pytest.approx(expected["scale"])
    torch.testing.assert_close(base(tensor(inputs["x"])), tensor(expected["y"]), **CLOSE)
    change = LoraModule.weight_change(dict(module.state_dict()), base.weight.shape) * inputs["multiplier"]
    torch.testing.assert_close(base.weight + change, tensor(expected["merged_weight"]), **CLOSE)
    module.detach()
    torch.testing.assert_close(base(tensor(inputs["x"])), tensor(expected["y"]) - tensor(expected["delta_y"]), **CLOSE)


@pytest.mark.parametrize(("inputs", "expected"), golden("conv"))
def test_convolution_matches_golden(inputs, expected):
    weight, down = tensor(inputs["weight"]), tensor(inputs["down"])
    base = nn.Conv2d(weight.shape[1], weight.shape[0], weight.shape[2], inputs["stride"], inputs["padding"])
    base.weight.data, base.bias.data = weight, tensor(inputs["bias"])
    module = adapter(base, down.shape[0], inputs["alpha"])
    fill(module, inputs)
    torch.testing.assert_close(base(tensor(inputs["x"])), tensor(expected["y"]), **CLOSE)
    change = LoraModule.weight_change(dict(module.state_dict()), weight.shape)
    torch.testing.assert_close(base.weight + change, tensor(expected["merged_weight"]), **CLOSE)


@pytest.mark.parametrize(("inputs", "expected"), golden("rank_dropout"))
def test_rank_dropout_matches_golden(inputs, expected):
    base = linear(inputs)
    draws = FixedDraws(tensor(inputs["uniform_draw"]))
    module = adapter(base, 4, inputs["alpha"], dropouts=Dropouts(rank=inputs["p"]), draws=draws)
    fill(module, inputs)
    torch.testing.assert_close(base(tensor(inputs["x"])), tensor(expected["y"]), **CLOSE)


@pytest.mark.parametrize(("inputs", "expected"), golden("module_dropout"))
def test_module_dropout_matches_golden(inputs, expected):
    base = linear(inputs)
    draws = FixedDraws(torch.tensor(inputs["uniform_draw"]))
    module = adapter(base, 4, inputs["alpha"], dropouts=Dropouts(module=inputs["p"]), draws=draws)
    fill(module, inputs)
    torch.testing.assert_close(base(tensor(inputs["x"])), tensor(expected["y"]), **CLOSE)


def test_fresh_lora_changes_nothing_and_leaves_the_state_dict_alone():
    base = nn.Linear(6, 5)
    before, x = {k: v.clone() for k, v in base.state_dict().items()}, torch.randn(3, 6)
    y = base(x)
    module = adapter(base, 2, 1.0)
    torch.testing.assert_close(base(x), y, rtol=0, atol=0)
    assert list(base.state_dict()) == list(before)
    assert [name for name, _ in base.named_parameters()] == ["weight", "bias"]
    assert module.lora_down.weight.abs().max() <= 6**-0.5  # kaiming uniform with a = sqrt(5): bound 1 / sqrt(inputs)
    assert module.lora_down.weight.std() > 0.1


def test_start_depends_on_seed_and_name_only():
    def down(name: str, seed: int) -> torch.Tensor:
        target = AdapterTarget(name, "unet", (nn.Linear(6, 5),))
        return LoraModule.build(target, Size(2, 1), Dropouts(), {}, DrawKey(0), seed).lora_down.weight

    first = down("a", 1)
    torch.manual_seed(99)
    assert torch.equal(down("a", 1), first)
    assert not torch.equal(down("b", 1), first)
    assert not torch.equal(down("a", 2), first)


@pytest.mark.parametrize("dropouts", [Dropouts(), Dropouts(0.3, 0.4, 0.5)], ids=["plain", "dropouts"])
def test_parts_of_a_fused_layer_act_as_the_fused_layer(dropouts):
    """q, k, v with one shared pair equal one Linear with three times the rows: values, gradients and dropout masks."""
    torch.manual_seed(0)
    parts = (nn.Linear(6, 4), nn.Linear(6, 2), nn.Linear(6, 3))
    whole = nn.Linear(6, 9)
    with torch.no_grad():
        whole.weight.copy_(torch.cat([p.weight for p in parts]))
        whole.bias.copy_(torch.cat([p.bias for p in parts]))
    draws = DrawKey(5)
    draws.set(step=3, rank=0)
    split, fused = (adapter(base, 2, 1.0, dropouts=dropouts, draws=draws) for base in (parts, whole))
    for module in (split, fused):
        nn.init.normal_(module.lora_up.weight, generator=torch.Generator().manual_seed(1))
    x, weights = torch.randn(5, 7, 6), torch.randn(9)
    outputs = [torch.cat([p(x) for p in parts], dim=-1), whole(x)]
    torch.testing.assert_close(*outputs)
    for y in outputs:
        (y * weights).sum().backward()
    torch.testing.assert_close(split.lora_down.weight.grad, fused.lora_down.weight.grad)
    torch.testing.assert_close(split.lora_up.weight.grad, fused.lora_up.weight.grad)


@pytest.mark.parametrize("shape", [(64, 6), (64, 10, 6)])
def test_dropouts_have_their_rates_and_keep_the_mean(shape):
    base = nn.Linear(6, 5)
    draws = DrawKey(0)
    module = adapter(base, 8, 8.0, dropouts=Dropouts(neuron=0.2), draws=draws)
    low = torch.ones(4000, 8)
    draws.set(1, 0)
    dropped = module._dropped(low)
    assert (dropped == 0).float().mean() == pytest.approx(0.2, abs=0.01)
    assert dropped.mean() == pytest.approx(1, abs=0.02)
    module.dropouts = Dropouts(rank=0.3)
    dropped = module._dropped(low)
    assert (dropped == 0).float().mean() == pytest.approx(0.3, abs=0.01)
    assert dropped.mean() == pytest.approx(1, abs=0.02)
    sequence = module._dropped(torch.ones(*shape[:-1], 8))
    if sequence.ndim == 3:  # one draw a picture and rank
        assert torch.equal(sequence, sequence[:, :1].expand_as(sequence))
    module.dropouts = Dropouts(module=0.25)
    skipped = 0
    for step in range(2000):
        draws.set(step, 0)
        skipped += float(module._dropped(torch.ones(1, 8)).sum()) == 0
    assert skipped / 2000 == pytest.approx(0.25, abs=0.03)


def test_dropouts_act_in_training_only_and_change_with_step_and_rank():
    base, x, draws = nn.Linear(6, 5), torch.randn(4, 6), DrawKey(0)
    module = adapter(base, 4, 4.0, dropouts=Dropouts(neuron=0.5), draws=draws)
    nn.init.ones_(module.lora_up.weight)
    seen = []
    for step, rank in ((1, 0), (1, 0), (2, 0), (1, 1)):
        draws.set(step, rank)
        seen.append(base(x))
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2]) and not torch.equal(seen[0], seen[3])
    module.eval()
    plain = functional.linear(x, base.weight + product(module.lora_up.weight, module.lora_down.weight), base.bias)
    torch.testing.assert_close(base(x), plain)


def test_dropout_without_a_step_is_refused():
    base = nn.Linear(6, 5)
    adapter(base, 4, 4.0, dropouts=Dropouts(rank=0.5))
    with pytest.raises(RuntimeError, match="begin_step"):
        base(torch.randn(2, 6))


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_gives_the_same_gradients(reentrant):
    base, draws = nn.Linear(6, 6), DrawKey(0)
    module = adapter(base, 4, 4.0, dropouts=Dropouts(0.3, 0.3, 0.3), draws=draws)
    nn.init.ones_(module.lora_up.weight)
    draws.set(4, 0)
    x = torch.randn(3, 6, requires_grad=True)
    base(base(x)).square().sum().backward()
    plain = module.lora_down.weight.grad.clone()
    module.zero_grad()
    checkpoint(lambda v: base(base(v)), x, use_reentrant=reentrant).square().sum().backward()
    torch.testing.assert_close(module.lora_down.weight.grad, plain)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("is_conv", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_bases_train_float32_weights(dtype, is_conv, autocast):
    base = (nn.Conv2d(3, 4, 3, padding=1) if is_conv else nn.Linear(3, 4)).to(dtype).requires_grad_(False)
    x = torch.randn((2, 3, 5, 5) if is_conv else (2, 3)).to(dtype)
    plain = base(x)
    module = adapter(base, 2, 2.0)
    nn.init.ones_(module.lora_up.weight)
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        y = base(x)
    assert y.dtype == dtype and module.lora_down.weight.dtype == torch.float32
    y.float().square().sum().backward()
    assert module.lora_down.weight.grad.abs().sum() > 0
    change = LoraModule.weight_change(dict(module.state_dict()), base.weight.shape)
    wide = functional.conv2d(x.float(), change, padding=1) if is_conv else functional.linear(x.float(), change)
    torch.testing.assert_close(y.float(), plain.float() + wide, rtol=0.02, atol=0.05)


def test_norm_is_that_of_the_product():
    module = adapter(nn.Conv2d(3, 5, 3, stride=2), 4, 2.0)
    nn.init.normal_(module.lora_up.weight)
    up, down = module.lora_up.weight, module.lora_down.weight
    assert float(module.norm()) == pytest.approx(0.5 * product(up, down).norm().item(), rel=1e-5)


def test_other_alpha_in_a_file_keeps_its_strength():
    module = adapter(nn.Linear(6, 5), 2, 1.0)
    up, down = torch.randn(5, 2), torch.randn(2, 6)
    module.load_tensors({"lora_up.weight": up, "lora_down.weight": down, "alpha": torch.tensor(4.0)})
    change = LoraModule.weight_change(dict(module.state_dict()), torch.Size((5, 6)))
    torch.testing.assert_close(change, 2 * up @ down)
    assert float(module.alpha) == 1.0


def test_compiled_model_sees_the_adapter():
    base, x = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 5)), torch.randn(3, 6)
    draws = DrawKey(0)
    module = adapter(base[0], 2, 2.0, dropouts=Dropouts(rank=0.5), draws=draws)
    nn.init.ones_(module.lora_up.weight)
    builds = []
    compiled = torch.compile(base, backend=lambda graph, _: builds.append(graph) or graph.forward, fullgraph=True)
    for step in range(4):
        draws.set(step, 0)
        torch.testing.assert_close(compiled(x), base(x))
    assert len(builds) == 1  # not compiled again for a new step
