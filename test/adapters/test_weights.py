"""Network files in: every style of names, ranks from the file, what does not fit; merging into a base model."""

import json

import pytest
import torch
from torch import nn

from sd_scripts.adapters.files import read_tensors, save_network, write_tensors
from sd_scripts.adapters.lora import LoraModule
from sd_scripts.adapters.network import AdapterNetwork
from sd_scripts.adapters.weights import merge_files
from sd_scripts.errors import ConfigError, UserError
from test.adapters.conftest import options
from test.adapters.sd_model import run, tiny_sd


def trained(path, *, seed: int = 1, rank: int = 4, alpha: float = 2.0, **given) -> torch.Tensor:
    """Save a LoRA with random weights; the tiny model's output with it."""
    model = tiny_sd()
    network = AdapterNetwork.build(model, options(network_dim=rank, network_alpha=alpha, **given), seed=0)
    noise = torch.Generator().manual_seed(seed)
    for module in network.modules_by_name().values():
        nn.init.normal_(module.lora_up.weight, std=0.3, generator=noise)
    save_network(path, network.state_dict(), {})
    return run(model)


def as_diffusers(tensors: dict, model) -> dict:
    """The same weights under the names of diffusers/peft, which keep no alpha."""
    names = {}
    for target in model.adapter_targets():
        is_unet = target.part == "unet"
        network, prefix = (model.denoiser, "unet.") if is_unet else (model.text_encoders[0], "text_encoder.text_model.")
        path = next(name for name, module in network.named_modules() if module is target.modules[0])
        names[target.name] = prefix + path
    found = {}
    for key, tensor in tensors.items():
        name, _, suffix = key.partition(".")
        if suffix != "alpha":
            found[f"{names[name]}.lora_{'A' if 'down' in suffix else 'B'}.weight"] = tensor
    return found


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_training_goes_on_from_a_file(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    expected = trained(path)
    model = tiny_sd()
    network = AdapterNetwork.build(model, options(network_alpha=2.0, network_weights=str(path)), seed=5)
    torch.testing.assert_close(run(model), expected)
    assert set(network.loaded.used) == set(network.modules_by_name()) and not network.loaded.unused


@pytest.mark.parametrize("alpha", [2.0, 8.0])
def test_another_alpha_or_rank_option_keeps_the_effect_or_is_refused(tmp_path, alpha):
    expected = trained(tmp_path / "a.safetensors")
    cfg = options(network_alpha=alpha, network_weights=str(tmp_path / "a.safetensors"))
    model = tiny_sd()
    network = AdapterNetwork.build(model, cfg, seed=0)
    torch.testing.assert_close(run(model), expected)
    assert float(next(iter(network.state_dict().values()))) == alpha
    with pytest.raises(UserError, match="rank 4, the network 8; set network_dim"):
        AdapterNetwork.build(tiny_sd(), cfg.model_copy(update={"network_dim": 8}), seed=0)


def test_ranks_from_the_file(tmp_path):
    given = {"network_args": ["conv_dim=2"], "network_train_unet_only": True}
    expected = trained(tmp_path / "a.safetensors", rank=3, alpha=1.5, **given)
    model = tiny_sd()
    cfg = options(network_dim=64, network_weights=str(tmp_path / "a.safetensors"), dim_from_weights=True)
    network = AdapterNetwork.build(model, cfg, seed=0)
    torch.testing.assert_close(run(model), expected)
    sizes = {(m.size.rank, m.size.alpha) for m in network.modules_by_name().values()}
    assert sizes == {(3, 1.5), (2, 1.0)}
    assert {m.target.part for m in network.modules_by_name().values()} == {"unet"}
    assert network.recorded_size(cfg) == (3, 1.5)
    with pytest.raises(ConfigError, match="network_weights"):
        AdapterNetwork.build(tiny_sd(), options(dim_from_weights=True), seed=0)


@pytest.mark.parametrize("alpha", [None, 8.0])
def test_diffusers_names_are_read(tmp_path, alpha):
    """Without an alpha the scale is 1; peft's own lora_alpha stands in the header."""
    trained(tmp_path / "a.safetensors", alpha=4.0 if alpha is None else alpha)
    model = tiny_sd()
    tensors = as_diffusers(read_tensors(tmp_path / "a.safetensors")[0], model)
    header = json.dumps({f"{component}.lora_alpha": alpha for component in ("unet", "text_encoder")})
    write_tensors(tmp_path / "b.safetensors", tensors, None if alpha is None else {"lora_adapter_metadata": header})
    AdapterNetwork.build(model, options(network_weights=str(tmp_path / "b.safetensors"), network_alpha=3.0), seed=0)
    other = tiny_sd()
    AdapterNetwork.build(other, options(network_weights=str(tmp_path / "a.safetensors"), network_alpha=1.0), seed=0)
    torch.testing.assert_close(run(model), run(other))


def test_what_does_not_fit_is_named(tmp_path, caplog):
    expected = trained(tmp_path / "a.safetensors", network_train_unet_only=True)
    tensors = read_tensors(tmp_path / "a.safetensors")[0]
    name = "lora_unet_nowhere"
    extra = {f"{name}.lora_down.weight": torch.ones(4, 3), f"{name}.lora_up.weight": torch.ones(3, 4)}
    write_tensors(tmp_path / "b.safetensors", tensors | extra)
    model = tiny_sd()
    cfg = options(network_weights=str(tmp_path / "b.safetensors"), network_alpha=2.0)
    network = AdapterNetwork.build(model, cfg, seed=0)
    torch.testing.assert_close(run(model), expected)
    assert network.loaded.unused == ("lora_unet_nowhere",)
    assert "lora_unet_nowhere" in caplog.text and f"{len(network.loaded.used)} modules used" in caplog.text
    write_tensors(tmp_path / "c.safetensors", extra)
    with pytest.raises(UserError, match="none of its 1 modules fits the model"):
        AdapterNetwork.build(tiny_sd(), options(network_weights=str(tmp_path / "c.safetensors")), seed=0)


def test_other_algorithms_are_not_taken_for_lora(tmp_path):
    name = "lora_unet_down_blocks_0_attentions_0_proj_in"
    tensors = {"hada_w1_a": torch.ones(32, 4), "hada_w1_b": torch.ones(4, 32), "alpha": torch.tensor(1.0)}
    write_tensors(tmp_path / "loha.safetensors", {f"{name}.{key}": value for key, value in tensors.items()})
    with pytest.raises(UserError, match="another kind of model or of network"):
        AdapterNetwork.build(tiny_sd(), options(network_weights=str(tmp_path / "loha.safetensors")), seed=0)


def test_a_frozen_part_of_the_file_still_acts_and_is_saved(tmp_path):
    expected = trained(tmp_path / "a.safetensors")
    model = tiny_sd()
    cfg = options(network_alpha=2.0, network_weights=str(tmp_path / "a.safetensors"), text_encoder_lr=[0.0])
    network = AdapterNetwork.build(model, cfg, seed=0)
    torch.testing.assert_close(run(model), expected)
    assert [g["name"] for g in network.param_groups()] == ["unet"]
    assert any(key.startswith("lora_te") for key in network.state_dict())
    assert "12 modules kept as they are" in str(network.summary()[0])


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.float16, 2e-3)])
def test_base_weights_are_merged_for_good(tmp_path, dtype, close):
    expected = trained(tmp_path / "a.safetensors", network_args=["conv_dim=2"])
    trained(tmp_path / "b.safetensors", seed=2)
    model = tiny_sd()
    model.denoiser.to(dtype)
    before = {k: v.clone() for k, v in model.denoiser.state_dict().items()}
    (line,) = merge_files(model, [str(tmp_path / "a.safetensors")], [], LoraModule)
    assert line.startswith("merged at 1: a.safetensors: ")
    merged = tiny_sd()
    merged.denoiser.load_state_dict(model.denoiser.state_dict())
    merged.text_encoders[0].load_state_dict(model.text_encoders[0].state_dict())
    torch.testing.assert_close(run(merged), expected, rtol=0, atol=20 * close)
    merge_files(model, [str(tmp_path / f"{n}.safetensors") for n in "ba"], [0.0, -1.0], LoraModule)
    for key, value in model.denoiser.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=close)


def test_merging_is_refused_where_it_cannot_work(tmp_path):
    trained(tmp_path / "a.safetensors")
    path = str(tmp_path / "a.safetensors")
    with pytest.raises(ConfigError, match="more values"):
        merge_files(tiny_sd(), [path], [1.0, 0.5], LoraModule)
    with pytest.raises(UserError, match="no such file"):
        merge_files(tiny_sd(), [path + "x"], [], LoraModule)
    name = "lora_unet_down_blocks_0_attentions_0_proj_in"
    wrong = {f"{name}.lora_down.weight": torch.ones(4, 7), f"{name}.lora_up.weight": torch.ones(5, 4)}
    write_tensors(tmp_path / "wrong.safetensors", wrong)
    with pytest.raises(UserError, match=f"{name}.*another model"):
        merge_files(tiny_sd(), [str(tmp_path / "wrong.safetensors")], [], LoraModule)


def test_base_weights_of_the_options_are_merged_before_training(tmp_path):
    expected = trained(tmp_path / "a.safetensors")
    model = tiny_sd()
    AdapterNetwork.build(model, options(base_weights=[str(tmp_path / "a.safetensors")]), seed=0)
    torch.testing.assert_close(run(model), expected, rtol=0, atol=1e-4)
