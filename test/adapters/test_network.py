"""The network as a whole: its keys, parts and rates, strength, norms, and that it learns."""

import pytest
import torch
from torch import nn

from sd_scripts.adapters.kinds import find_kind
from sd_scripts.adapters.network import AdapterNetwork
from sd_scripts.adapters.settings import adapter_settings, part_rates
from sd_scripts.errors import ConfigError
from sd_scripts.models.families.sd import SD1
from sd_scripts.models.family import Part
from sd_scripts.models.targets import adapter_counts, same_ranks
from test.adapters.conftest import golden, layout, options, tensor
from test.adapters.sd_model import real_sd, run, tiny_sd, tiny_sdxl

LAYOUTS = {
    "sd15": {},
    "sd15__conv": {"network_args": ["conv_dim=4", "conv_alpha=1"]},
    "sd15__unet_only": {"network_train_unet_only": True},
    "sd21": {},
    "sd21__conv": {"network_args": ["conv_dim=4", "conv_alpha=1"]},
    "sdxl": {},
    "sdxl__conv": {"network_args": ["conv_dim=4", "conv_alpha=1"]},
    "sdxl__unet_only": {"network_train_unet_only": True},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_keys_shapes_and_order_are_those_of_the_field(name):
    expected = layout(name)
    model = real_sd(name.partition("__")[0])
    network = AdapterNetwork.build(model, options(**LAYOUTS[name]), seed=0)
    found = {key: list(value.shape) for key, value in network.state_dict().items()}
    assert found == expected["keys"]
    assert list(found) == list(expected["keys"])
    modules = {part.rate.part: part.modules for part in network.summary()}
    assert modules.pop("unet") == expected["num_unet_modules"]
    assert sum(modules.values()) == expected["num_text_encoder_modules"]


@pytest.mark.parametrize("conv_dim", [None, 2])
def test_the_count_without_torch_is_that_of_the_network(conv_dim):
    model = real_sd("sd15")
    args = [f"conv_dim={conv_dim}"] if conv_dim else None
    network = AdapterNetwork.build(model, options(network_dim=8, network_args=args), seed=0)
    networks = {"unet": model.denoiser, "te1": model.text_encoders[0]}
    shapes = {part: {k: tuple(v.shape) for k, v in net.state_dict().items()} for part, net in networks.items()}
    found = {part.rate.part: (part.modules, part.parameters) for part in network.summary()}
    assert adapter_counts(model.family, shapes, same_ranks(8, conv_dim)) == found


def test_adapters_of_layers_that_nothing_uses_are_kept_and_not_trained():
    model = tiny_sdxl()
    network = AdapterNetwork.build(model, options(network_dim=2), seed=0)
    last = [
        m for name, m in network.modules_by_name().items() if name.startswith("lora_te1_text_model_encoder_layers_1_")
    ]
    assert len(last) == 6 and not any(p.requires_grad for m in last for p in m.parameters())
    assert all(f"{m.target.name}.lora_up.weight" in network.state_dict() for m in last)
    run(model).square().mean().backward()
    trained = [p for group in network.param_groups() for p in group["params"]]
    assert all(p.requires_grad and p.grad is not None for p in trained)


def test_gradients_reach_every_module_and_training_lowers_the_loss():
    model = tiny_sd()
    network = AdapterNetwork.build(model, options(network_dim=2, network_args=["conv_dim=2"]), seed=0)
    base = run(model)
    goal = base.detach() + 0.1 * torch.randn(base.shape, generator=torch.Generator().manual_seed(2))
    optimizer = torch.optim.AdamW(network.param_groups(), lr=1e-4)
    losses = []
    for _ in range(8):
        loss = (run(model) - goal).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if not losses:
            assert network.parts_without_gradient() == []
        for group in optimizer.param_groups:
            group["lr"] = 1e-2
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
    for name, module in network.modules_by_name().items():
        assert module.lora_up.weight.abs().sum() > 0, name
    assert not any(p.grad is not None for p in model.denoiser.parameters())


def test_a_part_that_the_model_never_uses_is_named():
    model = tiny_sd()
    network = AdapterNetwork.build(model, options(), seed=0)
    with torch.no_grad():
        text = model.encode_text(model.tokenize(["a cat"]))  # cached: no gradient gets there
    model.predict(torch.randn(1, 4, 8, 8), torch.tensor([5]), text).square().sum().backward()
    assert network.parts_without_gradient() == ["te1"]


def test_strength_disabled_and_detach():
    model = tiny_sd()
    base = run(model)
    network = AdapterNetwork.build(model, options(), seed=0)
    assert torch.equal(run(model), base)
    for module in network.modules_by_name().values():
        nn.init.normal_(module.lora_up.weight, generator=torch.Generator().manual_seed(1))
    full = run(model)
    network.multiplier = 0.5
    half = run(model)
    assert (full - base).abs().max() > 1e-3 and (half - base).abs().max() < (full - base).abs().max()
    with network.disabled():
        assert torch.equal(run(model), base)
    assert torch.equal(run(model), half)
    network.detach()
    assert torch.equal(run(model), base)
    network.attach()
    network.attach()
    assert torch.equal(run(model), half)


def parts(*names):
    return [Part(name, name, "") for name in names]


RATES = [  # unet_lr, text_encoder_lr → rates of unet and te1 with learning_rate 1e-4; every blank, zero and value
    (None, None, 1e-4, 1e-4),
    (None, [], 1e-4, 1e-4),
    (None, [0.0], 1e-4, None),
    (None, [5e-5], 1e-4, 5e-5),
    (0.0, None, None, 1e-4),
    (0.0, [5e-5], None, 5e-5),
    (2e-4, None, 2e-4, 1e-4),
    (2e-4, [0.0], 2e-4, None),
    (2e-4, [5e-5], 2e-4, 5e-5),
]


@pytest.mark.parametrize(("unet_lr", "te_lr", "unet", "te"), RATES)
def test_a_rate_of_a_part_overrides_the_base_and_zero_freezes(unet_lr, te_lr, unet, te):
    network = AdapterNetwork.build(tiny_sd(), options(unet_lr=unet_lr, text_encoder_lr=te_lr), seed=0)
    groups = {group["name"]: group["lr"] for group in network.param_groups()}
    assert groups == {name: lr for name, lr in (("te1", te), ("unet", unet)) if lr is not None}
    grouped = sum(p.numel() for group in network.param_groups() for p in group["params"])
    assert grouped == sum(p.numel() for p in network.parameters())
    lines = [str(part) for part in network.summary()]
    if te is None:
        assert lines[0] == "text encoder: not trained (text_encoder_lr = 0)"
    if unet is None:
        assert lines[1] == "U-Net: not trained (unet_lr = 0)"


def test_base_rate_zero_trains_only_parts_with_their_own():
    network = AdapterNetwork.build(tiny_sd(), options(learning_rate=0.0, unet_lr=1e-3), seed=0)
    assert [(g["name"], g["lr"]) for g in network.param_groups()] == [("unet", 1e-3)]
    assert str(network.summary()[0]) == "text encoder: not trained (learning_rate = 0)"


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"unet_lr": 0.0, "network_train_unet_only": True}, "learning_rate"),
        ({"network_train_unet_only": True, "network_train_text_encoder_only": True}, "network_train_unet_only"),
        ({"text_encoder_lr": [1e-4, 1e-4]}, "text_encoder_lr"),
        ({"text_encoder_lr": [-1e-4]}, "text_encoder_lr"),
    ],
)
def test_rates_that_cannot_work_are_refused(given, option):
    with pytest.raises(ConfigError) as error:
        part_rates(parts("te1", "unet"), options(**given))
    assert error.value.option == option and "\n" not in str(error.value)


def test_rates_of_several_text_encoders():
    def rates(value):
        return [rate.lr for rate in part_rates(parts("te1", "te2", "te3", "unet"), options(text_encoder_lr=value))]

    assert rates([1e-5]) == [1e-5, 1e-5, 1e-5, 1e-4]
    assert rates([1e-5, 2e-5]) == [1e-5, 2e-5, 2e-5, 1e-4]
    assert rates([1e-5, 0.0, 3e-5]) == [1e-5, None, 3e-5, 1e-4]


def test_lora_plus_gives_the_up_matrices_their_own_rate():
    args = ["loraplus_lr_ratio=4", "loraplus_unet_lr_ratio=16"]
    network = AdapterNetwork.build(tiny_sd(), options(network_args=args), seed=0)
    groups = {group["name"]: group for group in network.param_groups()}
    assert {name: group["lr"] for name, group in groups.items()} == pytest.approx(
        {"te1": 1e-4, "te1+": 4e-4, "unet": 1e-4, "unet+": 16e-4}
    )
    ups = {id(m.lora_up.weight) for m in network.modules_by_name().values() if m.target.part == "unet"}
    assert {id(p) for p in groups["unet+"]["params"]} == ups
    assert len(groups["unet"]["params"]) == len(ups)


def test_only_options_leave_the_other_part_out():
    unet = AdapterNetwork.build(tiny_sd(), options(network_train_unet_only=True), seed=0)
    te = AdapterNetwork.build(tiny_sd(), options(network_train_text_encoder_only=True), seed=0)
    assert {k.split("_")[1] for k in unet.state_dict()} == {"unet"}
    assert {k.split("_")[1] for k in te.state_dict()} == {"te"}
    assert str(unet.summary()[0]) == "text encoder: not trained (network_train_unet_only)"


@pytest.mark.parametrize(("inputs", "expected"), golden("scale_weight_norms"))
def test_max_norm_matches_golden(inputs, expected):
    class Model:
        family = SD1
        text_encoders = ()
        denoiser = nn.ModuleDict({"a": nn.Linear(4, 3), "b": nn.Conv2d(3, 4, 3), "c": nn.Conv2d(3, 2, 1)})

        def idle_modules(self):
            return ()

        def adapter_targets(self):
            from sd_scripts.models.base import AdapterTarget

            for name, module in self.denoiser.items():
                yield AdapterTarget(name, "unet", (module,), is_conv3x3=name == "b", needs_conv_dim=name == "b")

    network = AdapterNetwork.build(Model(), options(network_dim=2, network_args=["conv_dim=2", "conv_alpha=2"]), seed=0)
    weights = {key: tensor(value) for key, value in inputs["weights"].items()}
    for name, module in network.modules_by_name().items():
        own = {key.partition(".")[2]: value for key, value in weights.items() if key.startswith(f"{name}.")}
        module.load_state_dict(own)
        module.size = type(module.size)(2, float(own["alpha"]))
    report = network.apply_max_norm(inputs["max_norm"])
    assert int(report.scaled) == expected["keys_scaled"]
    assert float(report.average) == pytest.approx(expected["average_norm"], rel=1e-5)
    assert float(report.largest) == pytest.approx(expected["largest_norm"], rel=1e-5)
    found = network.state_dict()
    for key, value in expected["weights"].items():
        torch.testing.assert_close(found[key], tensor(value), rtol=1e-5, atol=1e-6)


def test_max_norm_of_a_fresh_network_is_no_nan():
    network = AdapterNetwork.build(tiny_sd(), options(), seed=0)
    report = network.apply_max_norm(1.0)
    assert (int(report.scaled), float(report.average)) == (0, 0.0)
    assert all(torch.isfinite(p).all() for p in network.parameters())


@pytest.mark.parametrize(
    "spelling",
    ["networks.lora", "lora", "networks/lora.py", "networks\\lora", "sd_scripts.networks.lora", "Networks.LoRA"],
)
def test_spellings_of_the_module(spelling):
    assert find_kind(spelling).name == "networks.lora"


def test_unknown_module_names_the_nearest():
    with pytest.raises(ConfigError, match=r"network_module = 'networks.lore': .* did you mean networks.lora\?"):
        find_kind("networks.lore")


@pytest.mark.parametrize("name", ["networks.lora_flux", "lora_sd3", "networks/oft.py", "lycoris.kohya"])
def test_a_known_kind_that_is_to_come_says_so(name):
    with pytest.raises(ConfigError, match=r"not yet available; networks\.lora is"):
        find_kind(name)


def test_network_arguments_are_read():
    args = ["conv_dim=8", "conv_alpha=2.5", "rank_dropout=0.1", "module_dropout=0.2", "loraplus_lr_ratio="]
    settings = adapter_settings(options(network_dim=None, network_alpha=3.0, network_dropout=0.3, network_args=args))
    assert (settings.rank, settings.alpha, settings.conv_rank, settings.conv_alpha) == (4, 3.0, 8, 2.5)
    assert (settings.dropouts.neuron, settings.dropouts.rank, settings.dropouts.module) == (0.3, 0.1, 0.2)
    assert settings.plus_ratio("unet") is None


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("conv_dm=4", 'did you mean "conv_dim"'),
        ("conv_dim", "name=value"),
        ("conv_dim=four", "a whole number of at least 1"),
        ("conv_dim=0", "whole number"),
        ("conv_dim=2.5", "whole number"),
        ("rank_dropout=1", "below 1"),
        ("module_dropout=-0.1", "at least 0"),
        ("loraplus_lr_ratio=0", "above 0"),
        ("conv_alpha=nan", "at least 0"),
    ],
)
def test_bad_network_arguments_are_refused(item, message):
    with pytest.raises(ConfigError, match=message) as error:
        adapter_settings(options(network_args=[item]))
    assert error.value.option == "network_args" and item in str(error.value)


def test_argument_given_twice_is_refused():
    with pytest.raises(ConfigError, match="twice"):
        adapter_settings(options(network_args=["conv_dim=4", "conv_dim=8"]))


def test_settings_need_no_torch():
    import subprocess
    import sys

    code = "import sys, sd_scripts.adapters.settings, sd_scripts.adapters.kinds; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
