import math

import pytest
import torch
from torch import nn

from sd_scripts.options.training import Optimizer
from sd_scripts.training.optimizers import evaluation_weights, make_optimizer
from sd_scripts.training.split_optimizer import Stepping, each_alone, up_to_size
from sd_scripts.training.stochastic_rounding import in_float32, nearest, stochastically_rounded
from test.training.test_split_optimizer import Blocks, loss_of


def rounded(values, seed=0):
    return stochastically_rounded(values, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("value", [1.001, -1.001, 0.3, 1e-3, 3e38, -7e-39, 1e-42])
def test_the_mean_of_many_roundings_is_the_value(value):
    count = 200_000
    values = torch.full((count,), value)
    drawn = rounded(values).double()
    lower, upper = sorted({*drawn.tolist()})
    exact = values[0].double().item()
    assert lower <= exact <= upper
    deviation = (upper - lower) / 2 / math.sqrt(count)  # of the mean, at most
    assert abs(drawn.mean().item() - exact) < 5 * deviation


def test_the_neighbours_come_in_proportion_to_their_nearness():
    values = torch.full((100_000,), 1 + 2**-7 * 0.25)  # a quarter of the way from 1 to the next bfloat16
    assert (rounded(values) > 1).float().mean().item() == pytest.approx(0.25, abs=0.01)


def test_values_that_are_bfloat16_already_stay():
    values = torch.randn(1000).bfloat16().float()
    assert torch.equal(rounded(values).float(), values)


def test_infinities_and_nan_stay_what_they_are():
    values = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0])
    drawn = torch.stack([rounded(values, seed) for seed in range(50)])
    assert (drawn[:, 0] == math.inf).all() and (drawn[:, 1] == -math.inf).all()
    assert drawn[:, 2].isnan().all() and (drawn[:, 3:] == 0).all()


def test_inside_all_is_float32_and_afterwards_the_same_memory_is_bfloat16():
    parameter = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    parameter.grad = torch.full((4,), 0.5, dtype=torch.bfloat16)
    memory, other = parameter.data_ptr(), nn.Parameter(torch.ones(4))
    with in_float32([parameter, other], nearest):
        assert parameter.dtype == parameter.grad.dtype == torch.float32
        parameter.data.mul_(2)
    assert parameter.dtype == parameter.grad.dtype == torch.bfloat16
    assert parameter.data_ptr() == memory and (parameter == 2).all()


def test_an_error_inside_leaves_the_weights_as_they_were():
    parameter = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    with pytest.raises(ValueError), in_float32([parameter], nearest):
        parameter.data.mul_(2)
        raise ValueError
    assert parameter.dtype == torch.bfloat16 and (parameter == 1).all()


def bf16_run(name, steps, *, rounding_seed, rate=1e-4, is_fused=False, net=None, arguments=None):
    net = net or Blocks(torch.bfloat16)
    parameters = list(net.parameters())
    parts = each_alone(parameters) if is_fused else up_to_size(parameters, 7000)
    stepping = Stepping(parts, is_fused=is_fused, rounding_seed=rounding_seed)
    cfg = Optimizer(optimizer_type=name, optimizer_args=arguments, learning_rate=rate)
    optimizer, _ = make_optimizer(cfg, [{"params": parameters}], stepping)
    more_steps(net, optimizer, steps)
    return net, optimizer


def more_steps(net, optimizer, steps):
    for _ in range(steps):
        loss_of(net).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_small_steps_move_the_weights_as_in_float32_on_average():
    """Ones with a constant gradient: 200 steps of 2e-4 are each a twentieth of what the nearest bfloat16 needs."""
    weight = nn.Parameter(torch.ones(20_000, dtype=torch.bfloat16))
    still = nn.Parameter(torch.ones(20_000, dtype=torch.bfloat16))
    cfg = Optimizer(optimizer_type="torch.optim.SGD", learning_rate=2e-4)
    optimizer, _ = make_optimizer(cfg, [{"params": [weight]}], Stepping([[weight]], rounding_seed=1))
    plain, _ = make_optimizer(cfg, [{"params": [still]}])
    for _ in range(200):
        weight.grad, still.grad = torch.ones_like(weight), torch.ones_like(still)
        optimizer.step()
        plain.step()
    assert (still == 1).all()
    assert weight.float().mean().item() == pytest.approx(1 - 200 * 2e-4, abs=5e-4)


@pytest.mark.parametrize("name", ["AdamW", "AdamW8bit", "Lion", "AdaFactor", "AdamWScheduleFree"])
@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_learning_in_bfloat16_comes_close_to_float32(name, is_fused):
    arguments = ["relative_step=False", "scale_parameter=False"] if name == "AdaFactor" else None
    options = {"rate": 3e-4, "arguments": arguments}
    start = loss_of(Blocks()).item()
    exact = loss_of(bf16_run(name, 25, rounding_seed=None, net=Blocks(), **options)[0]).item()
    near = loss_of(bf16_run(name, 25, rounding_seed=1, is_fused=is_fused, **options)[0]).item()
    assert exact < start
    assert near - exact < 0.25 * (start - exact)


@pytest.mark.parametrize("name", ["AdamW", "AdamW8bit", "AdaFactor", "AdamWScheduleFree"])
def test_state_is_kept_in_float32_and_resumed_bit_for_bit(name, tmp_path):
    unbroken, optimizer = bf16_run(name, 3, rounding_seed=5)
    torch.save({"net": unbroken.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    more_steps(unbroken, optimizer, 3)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    resumed, optimizer = bf16_run(name, 0, rounding_seed=5)
    resumed.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    more_steps(resumed, optimizer, 3)
    assert all(torch.equal(p, q) for p, q in zip(resumed.parameters(), unbroken.parameters(), strict=True))
    assert all(p.dtype == torch.bfloat16 for p in resumed.parameters())


def test_the_seed_decides():
    first, again, other = (bf16_run("AdamW", 5, rounding_seed=seed)[0] for seed in (1, 1, 2))
    pairs = list(zip(first.parameters(), again.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(p, q) for p, q, _ in pairs)
    assert not all(torch.equal(p, r) for p, _, r in pairs)


def test_schedule_free_weights_to_use_are_given_and_taken_back():
    net, optimizer = bf16_run("AdamWScheduleFree", 5, rounding_seed=1, rate=1e-2)
    before = [p.detach().clone() for p in net.parameters()]
    with evaluation_weights(optimizer):
        assert not all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))
        assert all(p.dtype == torch.bfloat16 for p in net.parameters())
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))
    more_steps(net, optimizer, 1)
