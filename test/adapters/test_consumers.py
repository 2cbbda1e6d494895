"""The saved LoRA in the programs that read it: diffusers for real; the name rules of A1111 and ComfyUI."""

import re

import pytest
import torch
from torch import nn

from sd_scripts.adapters.files import save_network
from sd_scripts.adapters.network import AdapterNetwork
from test.adapters.conftest import options
from test.adapters.sd_model import real_sd, run, tiny_sd, tiny_sdxl

pytest.importorskip("peft")


def pipeline(model):
    from diffusers import DDIMScheduler, StableDiffusionPipeline, StableDiffusionXLPipeline

    if model.name == "sdxl":
        return StableDiffusionXLPipeline(
            vae=model.vae, text_encoder=model.text_encoders[0], text_encoder_2=model.text_encoders[1], tokenizer=None,
            tokenizer_2=None, unet=model.denoiser, scheduler=DDIMScheduler(steps_offset=1, clip_sample=False),
        )  # fmt: skip
    return StableDiffusionPipeline(
        vae=model.vae, text_encoder=model.text_encoders[0], tokenizer=None, unet=model.denoiser,
        scheduler=DDIMScheduler(steps_offset=1, clip_sample=False), safety_checker=None, feature_extractor=None,
        requires_safety_checker=False,
    )  # fmt: skip


@pytest.mark.parametrize("make", [tiny_sd, tiny_sdxl])
@pytest.mark.parametrize("args", [None, ["conv_dim=2"]], ids=["linear", "conv"])
def test_diffusers_loads_every_key_and_acts_with_the_strength_asked_for(tmp_path, caplog, make, args):
    model = make()
    base = run(model)
    network = AdapterNetwork.build(model, options(network_dim=4, network_alpha=2.0, network_args=args), seed=0)
    for i, module in enumerate(network.modules_by_name().values()):
        nn.init.normal_(module.lora_up.weight, std=0.3, generator=torch.Generator().manual_seed(i))
    ours = {}
    for network.multiplier in (1.0, 0.5):
        ours[network.multiplier] = run(model).detach()
    path = save_network(tmp_path / "x.safetensors", network.state_dict(), {"ss_network_dim": "4"})
    reader = make()
    pipe = pipeline(reader)
    pipe.load_lora_weights(str(path.parent), weight_name=path.name, adapter_name="x")
    loaded = [m for part in (reader.denoiser, *reader.text_encoders) for m in part.modules()]
    pairs = [m for m in loaded if "x" in getattr(m, "lora_A", {})]
    assert len(pairs) == len(network.modules_by_name())
    numbers = sum(m.lora_A["x"].weight.numel() + m.lora_B["x"].weight.numel() for m in pairs)
    assert numbers == sum(p.numel() for p in network.parameters())
    for strength, expected in ours.items():
        pipe.set_adapters("x", strength)
        torch.testing.assert_close(run(reader), expected, rtol=1e-3, atol=1e-4)
    pipe.disable_lora()
    torch.testing.assert_close(run(reader), base)
    assert (ours[1.0] - base).abs().max() > 0.05 and (ours[0.5] - base).abs().max() > 0.02


# ComfyUI answers to `lora_unet_` + the diffusers name of every weight, dots as underscores; A1111 uses regexes.
A1111 = (
    r"lora_unet_(down|up)_blocks_(\d+)_attentions_(\d+)_(.+)",
    r"lora_unet_(down|up)_blocks_(\d+)_resnets_(\d+)_(conv1|conv2|time_emb_proj|conv_shortcut)",
    r"lora_unet_(down|up)_blocks_(\d+)_(downsamplers|upsamplers)_0_conv",
    r"lora_unet_mid_block_(attentions|resnets)_(\d+)_(.+)",
    r"lora_te_text_model_encoder_layers_(\d+)_(self_attn|mlp)_(\w+)",
)


@pytest.mark.parametrize("name", ["sd15", "sd21"])
def test_names_follow_the_rules_of_a1111_and_comfyui(name):
    model = real_sd(name)
    network = AdapterNetwork.build(model, options(network_args=["conv_dim=4"]), seed=0)
    names = set(network.modules_by_name())
    networks = {"lora_unet_": model.denoiser, "lora_te_text_model_": model.text_encoders[0]}
    known = {
        prefix + key.removesuffix(".weight").replace(".", "_")
        for prefix, part in networks.items()
        for key in part.state_dict()
        if key.endswith(".weight")
    }
    assert names <= known
    assert not [n for n in names if not any(re.fullmatch(pattern, n) for pattern in A1111)]
