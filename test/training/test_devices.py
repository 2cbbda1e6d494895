"""What options ask of the machine: refused in words where it is not there, and passed on where it is."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch

from sd_scripts.errors import ConfigError
from sd_scripts.options.build import build
from sd_scripts.options.recipes import NetworkTraining
from sd_scripts.training import devices
from sd_scripts.training.compilation import check_compiler, compile_denoiser, wants_whole
from sd_scripts.training.devices import (
    ddp_settings,
    make_accelerator,
)


def options(**values) -> NetworkTraining:
    return build(NetworkTraining, values)


@pytest.mark.parametrize("is_installed", [True, False])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize(
    ("values", "asked"),
    [
        ({}, False),
        ({"xformers": True}, True),
        ({"diffusers_xformers": True}, True),
        ({"sdpa": True}, False),
        ({"xformers": True, "sdpa": True}, True),
        ({"xformers": True, "mem_eff_attn": True}, False),
    ],
)
def test_xformers_is_used_where_it_is_asked_for_and_can_be_had(
    values, asked, device, is_installed, monkeypatch, caplog
):
    monkeypatch.setattr(devices, "find_spec", lambda name: object() if is_installed else None)
    used = devices.uses_xformers(options(**values), torch.device(device))
    assert used is (asked and is_installed and device == "cuda")
    assert ("NVIDIA" in caplog.text) is (asked and is_installed and device == "cpu")


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"dynamo_backend": "eager"}, False),
        ({"torch_compile": True, "dynamo_backend": "no"}, False),
        ({"torch_compile": True}, True),
    ],
)
def test_what_is_compiled(values, wanted):
    assert wants_whole(options(**values)) is wanted


def test_a_compiler_that_torch_does_not_have_is_refused_with_those_it_has():
    with pytest.raises(ConfigError, match=r"nvprims_nvfuser.*inductor"):
        check_compiler(options(torch_compile=True, dynamo_backend="nvprims_nvfuser"))
    check_compiler(options(torch_compile=False, dynamo_backend="nvprims_nvfuser"))
    check_compiler(options(torch_compile=True, dynamo_backend="inductor"))


@pytest.mark.parametrize(
    ("mode", "dynamic", "expected"), [("default", "False", False), ("reduce-overhead", "True", True)]
)
def test_how_to_compile_comes_from_the_launch(monkeypatch, mode, dynamic, expected):
    monkeypatch.setenv("ACCELERATE_DYNAMO_MODE", mode)
    monkeypatch.setenv("ACCELERATE_DYNAMO_USE_DYNAMIC", dynamic)
    seen = {}

    class Network(torch.nn.Module):
        def compile(self, **arguments):
            seen.update(arguments)

    compile_denoiser(options(torch_compile=True), SimpleNamespace(denoiser=Network()))
    assert seen == {"backend": "inductor", "mode": mode, "fullgraph": False, "dynamic": expected}


def test_several_processes_are_told_what_the_options_say():
    (exchange,) = ddp_settings(options())
    assert (exchange.static_graph, exchange.find_unused_parameters) == (False, True)
    exchange, process_group = ddp_settings(
        options(ddp_timeout=90, ddp_gradient_as_bucket_view=True, ddp_static_graph=True)
    )
    assert (exchange.gradient_as_bucket_view, exchange.static_graph) == (True, True)
    assert not exchange.find_unused_parameters  # torch takes only one of the two
    assert process_group.timeout == timedelta(minutes=90)


@pytest.mark.parametrize("wanted", [True, False])
def test_switches_of_the_gpu_follow_the_options(wanted):
    make_accelerator(options(cuda_allow_tf32=wanted, cuda_cudnn_benchmark=wanted))
    assert torch.backends.cuda.matmul.allow_tf32 is wanted
    assert torch.backends.cudnn.benchmark is wanted


def test_xformers_is_asked_for_denoiser_and_vae(monkeypatch):
    from diffusers.models.modeling_utils import ModelMixin

    from test.tiny import tiny_networks

    asked = []
    monkeypatch.setattr(ModelMixin, "enable_xformers_memory_efficient_attention", lambda self: asked.append(self))
    model = tiny_networks("sd1")
    model.use_xformers()
    assert asked == [model.denoiser, model.vae]
