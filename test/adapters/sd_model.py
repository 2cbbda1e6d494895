"""SD models for the adapter tests: tiny ones that run, and the shapes of real ones (on the meta device)."""

from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import torch
from diffusers import UNet2DConditionModel
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel

from sd_scripts.models.sd import StableDiffusion
from test.tiny import tiny_networks

SD21_UNET = {"cross_attention_dim": 1024, "attention_head_dim": (5, 10, 20, 20), "use_linear_projection": True}


@dataclass
class Shapes:
    """What adapters need to know of an SD model."""

    name: str
    denoiser: nn.Module
    text_encoders: tuple[nn.Module, ...]
    vae: None = None

    family = StableDiffusion.family
    networks = StableDiffusion.networks

    def adapter_targets(self):
        networks = {name: network for name, network in self.networks.items() if network is not None}
        return StableDiffusion.adapter_targets(SimpleNamespace(networks=networks, family=self.family))


@cache
def _pristine() -> StableDiffusion:
    return tiny_networks("sd1")


def tiny_sd() -> StableDiffusion:
    """A fresh copy of always the same tiny SD 1.x model."""
    return deepcopy(_pristine())


def real_sd(name: str) -> Shapes:
    """Shapes of SD 1.5 or 2.1."""
    width, inner, layers = (768, 3072, 12) if name == "sd15" else (1024, 4096, 23)
    config = CLIPTextConfig(
        hidden_size=width, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=width // 64
    )
    with torch.device("meta"):
        unet = UNet2DConditionModel(**({"cross_attention_dim": 768} if name == "sd15" else SD21_UNET))
        return Shapes("sd1" if name == "sd15" else "sd2", unet, (CLIPTextModel(config),))


def run(model: StableDiffusion, seed: int = 1) -> torch.Tensor:
    """The noise prediction for fixed inputs, text encoder included: (1, 4, 8, 8)."""
    noise = torch.Generator().manual_seed(seed)
    latents = torch.randn(1, 4, 8, 8, generator=noise)
    return model.predict(latents, torch.tensor([500]), model.encode_text(model.tokenize(["a photo of a cat"])))
