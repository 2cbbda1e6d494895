import copy
import sys

import pytest
import torch
from torch import nn

from sd_scripts.errors import ConfigError
from sd_scripts.options.class_files import is_installed
from sd_scripts.options.optimizer_names import OPTIMIZERS
from sd_scripts.options.training import Optimizer
from sd_scripts.training.optimizers import (
    d_times_lr,
    eval_mode,
    evaluation_weights,
    is_schedule_free,
    make_optimizer,
    train_mode,
)

ADAPTIVE = [known.name for known in OPTIMIZERS.values() if known.is_adaptive]


class Thing:
    def __init__(self, params, lr):
        pass


def optimizer_options(name=None, arguments=None, **options):
    options.setdefault("learning_rate", 1.0 if name in ADAPTIVE else 1e-3)
    return Optimizer(optimizer_type=name, optimizer_args=arguments, **options)


def small_net():
    torch.manual_seed(0)
    # 64 x 128 = 8192 elements: above the 4096 below which bitsandbytes keeps its states in 32 bits
    return nn.Sequential(nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 1))


def loss_of(net):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 128, generator=generator)
    return ((net(x) - x[:, :1]) ** 2).mean()


def take_steps(net, optimizer, count):
    for _ in range(count):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()


def made(cfg, net):
    return make_optimizer(cfg, [{"params": list(net.parameters())}])[0]


def skip_if_missing(name):
    known = OPTIMIZERS.get(name.casefold())
    if known and not is_installed(known.path):
        pytest.skip(f"{known.install} is not installed")


@pytest.mark.filterwarnings("ignore:Paged optimizers")
@pytest.mark.parametrize("name", [known.name for known in OPTIMIZERS.values()])
def test_every_name_lowers_the_loss_in_any_case(name):
    skip_if_missing(name)
    net = small_net()
    optimizer = made(optimizer_options(name, learning_rate=1.0 if name in ADAPTIVE else 3e-3), net)
    before = loss_of(net).item()
    take_steps(net, optimizer, 40)
    eval_mode(optimizer)
    assert loss_of(net).item() < before
    assert type(made(optimizer_options(name.upper()), net)) is type(optimizer)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("AdamW", None),
        ("AdamW8bit", None),
        ("Lion", ["weight_decay=0.1"]),
        ("AdaFactor", None),
        ("AdaFactor", ["relative_step=False", "scale_parameter=False", "beta1=0.9"]),
        ("Prodigy", ["use_bias_correction=True", "safeguard_warmup=True"]),
        ("AdamWScheduleFree", ["warmup_steps=3"]),
        ("RAdamScheduleFree", None),
        ("DAdaptAdam", None),
    ],
)
def test_resumed_run_equals_an_unbroken_one_bit_for_bit(name, arguments, tmp_path):
    skip_if_missing(name)
    cfg = optimizer_options(name, arguments)
    unbroken = small_net()
    take_steps(unbroken, made(cfg, unbroken), 10)

    first = small_net()
    optimizer = made(cfg, first)
    take_steps(first, optimizer, 4)
    torch.save({"net": first.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")

    state = torch.load(tmp_path / "state.pt", weights_only=True)
    second = small_net()
    second.load_state_dict(state["net"])
    optimizer = made(cfg, second)
    optimizer.load_state_dict(state["optimizer"])
    train_mode(optimizer)
    take_steps(second, optimizer, 6)
    for resumed, expected in zip(second.parameters(), unbroken.parameters(), strict=True):
        assert torch.equal(resumed, expected)


def test_8bit_adamw_keeps_8bit_states_through_its_state_dict():
    net = small_net()
    optimizer = made(optimizer_options("AdamW8bit"), net)
    take_steps(net, optimizer, 3)
    assert optimizer.state[net[0].weight]["state1"].dtype == torch.uint8
    saved = copy.deepcopy(optimizer.state_dict())
    loaded = made(optimizer_options("AdamW8bit"), net)
    loaded.load_state_dict(saved)
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            other = loaded.state[parameter][key]
            assert torch.equal(value, other) if torch.is_tensor(value) else value == other


@pytest.mark.parametrize(
    ("cfg", "path"),
    [
        (optimizer_options(), "torch.optim.adamw.AdamW"),
        (optimizer_options(use_8bit_adam=True), "bitsandbytes.optim.adamw.AdamW8bit"),
        (optimizer_options(use_lion_optimizer=True), "lion_pytorch.lion_pytorch.Lion"),
        (optimizer_options("adamw", ["weight_decay=0.1", "betas=0.9,0.99"]),
         "torch.optim.adamw.AdamW(weight_decay=0.1,betas=(0.9, 0.99))"),
        (optimizer_options("SGDNesterov", ["momentum=0.5"]), "torch.optim.sgd.SGD(momentum=0.5,nesterov=True)"),
        (optimizer_options("AdaFactor"), "transformers.optimization.Adafactor(relative_step=True)"),
        (optimizer_options("AdaFactor", ["relative_step=False", "warmup_init=True"]),
         "transformers.optimization.Adafactor(relative_step=True,warmup_init=True)"),
        (optimizer_options("radam"), "torch.optim.radam.RAdam"),
        (optimizer_options("torch.optim.NAdam"), "torch.optim.nadam.NAdam"),
        (optimizer_options("AdEMAMix8bit"), "bitsandbytes.optim.ademamix.AdEMAMix8bit"),
    ],
)  # fmt: skip
def test_description_names_class_and_arguments(cfg, path):
    assert make_optimizer(cfg, [{"params": [nn.Parameter(torch.ones(1))]}])[1] == path


def test_groups_keep_their_rates_and_zero_is_a_value():
    groups = [
        {"params": [nn.Parameter(torch.ones(1))], "lr": 1e-4},
        {"params": [nn.Parameter(torch.ones(1))], "lr": 0.0},
        {"params": [nn.Parameter(torch.ones(1))]},
    ]
    optimizer, _ = make_optimizer(optimizer_options("Lion", learning_rate=5e-4), groups)
    assert [group["lr"] for group in optimizer.param_groups] == [1e-4, 0.0, 5e-4]
    optimizer, _ = make_optimizer(optimizer_options("Lion", learning_rate=0.0), groups[:2])
    assert [group["lr"] for group in optimizer.param_groups] == [1e-4, 0.0]


def test_adafactor_with_relative_step_takes_no_rates():
    groups = [{"params": [nn.Parameter(torch.ones(2, 2))], "lr": 1e-4}]
    optimizer, _ = make_optimizer(optimizer_options("AdaFactor"), groups)
    assert optimizer.param_groups[0]["lr"] is None
    fixed, _ = make_optimizer(optimizer_options("AdaFactor", ["relative_step=False"]), groups)
    assert fixed.param_groups[0]["lr"] == 1e-4
    assert groups[0]["lr"] == 1e-4  # the caller's groups are left alone


def test_adaptive_optimizers_refuse_parts_with_different_rates():
    groups = [{"params": [nn.Parameter(torch.ones(1))], "lr": lr} for lr in (1.0, 0.5, 0.0)]
    with pytest.raises(ConfigError, match=r"Prodigy.*one rate for all parts, but they have 0.5, 1"):
        make_optimizer(optimizer_options("Prodigy"), groups)
    make_optimizer(optimizer_options("Prodigy"), [groups[0], groups[2]])


def test_d_times_lr_is_that_of_prodigy_and_none_for_others():
    net = small_net()
    optimizer = made(optimizer_options("Prodigy", learning_rate=0.5), net)
    take_steps(net, optimizer, 5)
    (value,) = d_times_lr(optimizer)
    assert value == optimizer.param_groups[0]["d"] * 0.5 > 0.5e-6
    assert d_times_lr(made(optimizer_options("AdamW"), net)) is None


@pytest.mark.parametrize("name", ["AdamWScheduleFree", "RAdamScheduleFree", "SGDScheduleFree"])
def test_evaluation_weights_are_those_of_eval_mode_and_leave_no_trace(name):
    net = small_net()
    optimizer = made(optimizer_options(name), net)
    take_steps(net, optimizer, 8)  # RAdam only moves its averages in the first five
    training = [p.detach().clone() for p in net.parameters()]
    with evaluation_weights(optimizer):
        inside = [p.detach().clone() for p in net.parameters()]
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), training, strict=True))
    assert optimizer.param_groups[0]["train_mode"]
    eval_mode(optimizer)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), inside, strict=True))
    assert not torch.equal(inside[0], training[0])


def test_modes_are_no_ops_for_other_optimizers():
    net = small_net()
    optimizer = made(optimizer_options("AdamW"), net)
    before = net[0].weight.detach().clone()
    assert not is_schedule_free(optimizer)
    train_mode(optimizer)
    eval_mode(optimizer)
    with evaluation_weights(optimizer):
        assert torch.equal(net[0].weight, before)


@pytest.mark.parametrize(
    ("cfg", "option", "message"),
    [
        (optimizer_options("AdmW"), "optimizer_type", 'did you mean "AdamW"'),
        (optimizer_options("torch.optim.AdamX"), "optimizer_type", 'no such class, did you mean "Adam'),
        (optimizer_options("torch.optmi.Adam"), "optimizer_type", "torch.optmi'.; check the path"),
        (optimizer_options("LBFGS"), "optimizer_type", "several times per step"),
        (optimizer_options("no_such_package.Adam"), "optimizer_type", "pip install no_such_package"),
        (optimizer_options("AdamW", ["weight_deca=0.1"]), "optimizer_args", 'did you mean "weight_decay"'),
        (optimizer_options("AdamW", ["weight_decay=-1"]), "optimizer_args", "Invalid weight_decay"),
        (optimizer_options("AdamW", ["lr=1e-3"]), "optimizer_args", "set by learning_rate"),
        (optimizer_options("test.training.test_optimizers.Thing"), "optimizer_type", "is no optimizer of torch"),
        (optimizer_options("AdamW", use_8bit_adam=True), "use_8bit_adam", "excludes optimizer_type"),
        (optimizer_options("Prodigy", learning_rate=0.0), "optimizer_args", "Invalid learning rate: 0"),
    ],
)
def test_what_cannot_work_is_refused_with_option_and_remedy(cfg, option, message):
    with pytest.raises(ConfigError, match=message) as failure:
        make_optimizer(cfg, [{"params": [nn.Parameter(torch.ones(1))]}])
    assert failure.value.option == option


def test_a_package_that_cannot_be_imported_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "prodigyopt", None)  # what Python does with a package that is blocked
    with pytest.raises(ConfigError, match="run: pip install prodigyopt"):
        make_optimizer(optimizer_options("Prodigy"), [{"params": [nn.Parameter(torch.ones(1))]}])


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("pytorch_optimizer", "CAME"),
        ("pytorch_optimizer", "pytorch_optimizer.StableAdamW"),
        ("pytorch_optimizer", "ScheduleFreeAdamW"),
        ("prodigyplus", "prodigyplus.ProdigyPlusScheduleFree"),
        ("dadaptation", "dadaptation.DAdaptAdam"),
    ],
)
def test_classes_of_optional_packages_lower_the_loss_and_give_their_weights_to_use(package, name):
    pytest.importorskip(package)
    net = small_net()
    is_adaptive = "rodigy" in name or "DAdapt" in name
    optimizer = made(optimizer_options(name, learning_rate=1.0 if is_adaptive else 3e-3), net)
    before = loss_of(net).item()
    take_steps(net, optimizer, 40)
    training = net[0].weight.detach().clone()
    with evaluation_weights(optimizer):
        assert loss_of(net).item() < before
        assert torch.equal(net[0].weight, training) != is_schedule_free(optimizer)
    assert torch.equal(net[0].weight, training)
    assert (d_times_lr(optimizer) is not None) == is_adaptive


def test_sgd_by_its_path_or_bare_name_has_no_momentum():
    for name in ("SGD", "torch.optim.SGD"):
        optimizer, _ = make_optimizer(optimizer_options(name), [{"params": [nn.Parameter(torch.ones(1))]}])
        assert optimizer.defaults["momentum"] == 0 and not optimizer.defaults["nesterov"]


def test_a_loaded_state_keeps_its_number_formats():
    """AdaFactor computes in float32 beside bfloat16 weights; torch alone would cut its averages to their format."""

    def fresh():
        net = small_net().bfloat16()
        return net, made(optimizer_options("AdaFactor", ["relative_step=False", "scale_parameter=False"]), net)

    net, optimizer = fresh()
    loss_of_half(net).backward()
    optimizer.step()
    other, resumed = fresh()
    resumed.load_state_dict(optimizer.state_dict())
    for parameter, twin in zip(net.parameters(), other.parameters(), strict=True):
        for key, value in optimizer.state[parameter].items():
            loaded = resumed.state[twin][key]
            assert torch.equal(loaded, value) and loaded.dtype == value.dtype if torch.is_tensor(value) else True


def loss_of_half(net):
    return net(torch.randn(8, 128, generator=torch.Generator().manual_seed(1)).bfloat16()).float().square().mean()
