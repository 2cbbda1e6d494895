import copy

import pytest
import torch
from torch import nn

from sd_scripts.errors import ConfigError
from sd_scripts.options.training import Optimizer
from sd_scripts.training.optimizers import eval_mode, evaluation_weights, is_schedule_free, make_optimizer
from sd_scripts.training.schedulers import RelativeStep
from sd_scripts.training.split_optimizer import Stepping, by_block, each_alone, in_equal_parts, up_to_size

OPTIMIZERS = [
    ("AdamW", None),
    ("AdamW", ["foreach=False", "amsgrad=True"]),
    ("AdamW8bit", None),
    ("Lion", ["weight_decay=0.1"]),
    ("Lion8bit", None),
    ("SGDNesterov", None),
    ("AdaFactor", None),
    ("AdaFactor", ["relative_step=False", "scale_parameter=False"]),
    ("RAdam", None),
    ("AdamWScheduleFree", ["warmup_steps=2"]),
    ("RAdamScheduleFree", None),
    ("SGDScheduleFree", None),
]
names = pytest.mark.parametrize(("name", "arguments"), OPTIMIZERS, ids=lambda value: str(value))


class Blocks(nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(16, 80)
        self.blocks = nn.ModuleList(nn.Linear(80, 80) for _ in range(4))  # 6400 weights: 8-bit states are from 4096 on
        self.last = nn.Linear(80, 1)
        self.to(dtype)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x).tanh()
        return self.last(x)


def loss_of(net):
    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
    out = net(x.to(net.first.weight.dtype)).float()
    return ((out - x[:, :1].sin()) ** 2).mean()


def groups_of(net):
    """Two groups with rates of their own, both in every part that `by_block` makes."""
    biases = [p for n, p in net.named_parameters() if n.endswith("bias")]
    weights = [p for n, p in net.named_parameters() if n.endswith("weight")]
    return [
        {"params": weights, "lr": 3e-3, "name": "weights"},
        {"params": biases, "lr": 1e-2, "name": "biases", "weight_decay": 0.0},
    ]


def made(name, arguments, net, stepping=None):
    cfg = Optimizer(optimizer_type=name, optimizer_args=arguments, learning_rate=1e-3)
    return make_optimizer(cfg, groups_of(net), stepping)[0]


def take_steps(net, optimizer, count, *, clip=0.0):
    for step in range(count):
        optimizer.param_groups[0]["lr"] = None if optimizer.param_groups[0]["lr"] is None else 3e-3 / (step + 1)
        loss_of(net).backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()


def splits(net):
    parameters = list(net.parameters())
    return {
        "each": each_alone(parameters),
        "equal": in_equal_parts(parameters, 3),
        "block": by_block(dict(net.named_parameters())),
    }


@names
@pytest.mark.parametrize("split", ["each", "equal", "block"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_fused_steps_give_the_weights_of_plain_ones(name, arguments, split):
    plain, fused = Blocks(), Blocks()
    take_steps(plain, made(name, arguments, plain), 5)
    optimizer = made(name, arguments, fused, Stepping(splits(fused)[split], is_fused=True))
    take_steps(fused, optimizer, 5)
    for expected, actual in zip(plain.parameters(), fused.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("split", "most"), [("each", 1), ("equal", 7), ("block", 4)])
def test_gradients_are_dropped_inside_the_backward_pass(split, most):
    net = Blocks()
    made("AdamW", None, net, Stepping(splits(net)[split], is_fused=True))
    living = []

    def count(*_):
        living.append(sum(p.grad is not None for p in net.parameters()))

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(count)
    for module in net.modules():
        module.register_full_backward_hook(count)
    loss_of(net).backward()
    assert max(living) <= most < len(list(net.parameters()))
    assert all(p.grad is None for p in net.parameters())


def test_plain_steps_keep_all_gradients_which_is_what_fusing_saves():
    net = Blocks()
    made("AdamW", None, net)
    loss_of(net).backward()
    assert all(p.grad is not None for p in net.parameters())


@names
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_resumed_equals_unbroken_bit_for_bit(name, arguments, tmp_path):
    def fresh(net):
        return made(name, arguments, net, Stepping(splits(net)["block"], is_fused=True))

    unbroken = Blocks()
    optimizer = fresh(unbroken)
    take_steps(unbroken, optimizer, 2)
    torch.save({"net": unbroken.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    take_steps(unbroken, optimizer, 3)

    state = torch.load(tmp_path / "state.pt", weights_only=True)
    resumed = Blocks()
    resumed.load_state_dict(state["net"])
    optimizer = fresh(resumed)
    optimizer.load_state_dict(state["optimizer"])
    take_steps(resumed, optimizer, 3)
    assert all(torch.equal(p, q) for p, q in zip(resumed.parameters(), unbroken.parameters(), strict=True))


@pytest.mark.parametrize("name", ["AdamW", "AdamW8bit", "AdaFactor", "AdamWScheduleFree"])
def test_a_plain_run_s_state_is_gone_on_from_in_parts(name):
    plain, fused = Blocks(), Blocks()
    plain_optimizer = made(name, None, plain)
    take_steps(plain, plain_optimizer, 2)
    fused.load_state_dict(plain.state_dict())
    fused_optimizer = made(name, None, fused, Stepping(each_alone(list(fused.parameters())), is_fused=True))
    fused_optimizer.load_state_dict(copy.deepcopy(plain_optimizer.state_dict()))
    take_steps(plain, plain_optimizer, 2)
    take_steps(fused, fused_optimizer, 2)
    for expected, actual in zip(plain.parameters(), fused.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def test_gradients_are_clipped_part_by_part():
    """With plain SGD a step is the rate times the gradient, so its length tells how the gradient was cut."""
    net = Blocks(torch.float64)
    before = [p.detach().clone() for p in net.parameters()]
    stepping = Stepping(each_alone(list(net.parameters())), is_fused=True, max_norm=1e-3)
    made("torch.optim.SGD", None, net, stepping)
    loss_of(net).backward()
    rates = {id(p): group["lr"] for group in groups_of(net) for p in group["params"]}
    for old, parameter in zip(before, net.parameters(), strict=True):
        assert (old - parameter).norm().item() == pytest.approx(1e-3 * rates[id(parameter)], rel=1e-4)


def test_a_part_that_waits_for_a_gradient_that_never_comes_is_stepped_at_the_end():
    net = Blocks()
    net.unused = nn.Linear(3, 3)
    parameters = list(net.parameters())
    cfg = Optimizer(learning_rate=1e-2)
    optimizer, _ = make_optimizer(cfg, [{"params": parameters}], Stepping([parameters], is_fused=True))
    unused, used = net.unused.weight.detach().clone(), net.last.weight.detach().clone()
    loss_of(net).backward()
    assert torch.equal(net.last.weight, used) and net.last.weight.grad is not None
    optimizer.step()
    assert not torch.equal(net.last.weight, used) and torch.equal(net.unused.weight, unused)
    assert net.last.weight.grad is None


def test_schedule_free_weights_to_use_are_those_of_the_plain_one():
    plain, fused = Blocks(), Blocks()
    plain_optimizer = made("AdamWScheduleFree", None, plain)
    fused_optimizer = made(
        "AdamWScheduleFree", None, fused, Stepping(each_alone(list(fused.parameters())), is_fused=True)
    )
    take_steps(plain, plain_optimizer, 4)
    take_steps(fused, fused_optimizer, 4)
    assert is_schedule_free(fused_optimizer) and fused_optimizer.param_groups[0]["train_mode"]
    training = fused.last.weight.detach().clone()
    with evaluation_weights(fused_optimizer):
        inside = fused.last.weight.detach().clone()
    assert torch.equal(fused.last.weight, training) and not torch.equal(inside, training)
    eval_mode(plain_optimizer)
    torch.testing.assert_close(inside, plain.last.weight.detach(), rtol=1e-5, atol=1e-6)
    take_steps(fused, fused_optimizer, 1)  # goes on in training mode


def test_adafactor_s_own_rate_is_reported():
    net = Blocks()
    optimizer = made("AdaFactor", None, net, Stepping(splits(net)["each"], is_fused=True))
    scheduler = RelativeStep(optimizer, 1e-3)
    take_steps(net, optimizer, 1)
    scheduler.step()
    assert all(0 < rate < 0.1 for rate in scheduler.get_last_lr())


def test_optimizers_that_find_one_rate_for_all_are_refused():
    net = Blocks()
    cfg = Optimizer(optimizer_type="Prodigy", learning_rate=1.0)
    with pytest.raises(ConfigError, match="stepped in parts"):
        make_optimizer(cfg, [{"params": list(net.parameters())}], Stepping(splits(net)["each"], is_fused=True))


# Ways to split


def test_splits_hold_every_parameter_once_in_order():
    net = Blocks()
    parameters = list(net.parameters())
    for parts in (*splits(net).values(), up_to_size(parameters, 7000), in_equal_parts(parameters, 50)):
        assert [id(p) for part in parts for p in part] == list(map(id, parameters)) or parts == splits(net)["block"]
        assert {id(p) for part in parts for p in part} == set(map(id, parameters))
        assert sum(map(len, parts)) == len(parameters)


def test_equal_parts_hold_about_as_many_weights_each():
    sizes = [sum(p.numel() for p in part) for part in in_equal_parts(list(Blocks().parameters()), 3)]
    assert len(sizes) == 3 and max(sizes) < 2.2 * min(sizes)


def test_parts_up_to_a_size_are_as_large_as_that_allows():
    sizes = [sum(p.numel() for p in part) for part in up_to_size(list(Blocks().parameters()), 7000)]
    assert all(size <= 7000 for size in sizes) and len(sizes) == 5


def test_a_block_is_what_the_first_number_of_a_name_counts():
    names = ["a.blocks.0.x.1.w", "a.blocks.0.y", "a.blocks.10.x", "a.proj.w", "b.w", "a.other.0.w"]
    parts = by_block({name: nn.Parameter(torch.zeros(1)) for name in names})
    assert [len(part) for part in parts] == [2, 1, 2, 1]
