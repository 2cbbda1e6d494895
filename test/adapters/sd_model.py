"""SD models for the adapter tests: tiny ones that run, and the shapes of real ones (on the meta device)."""

from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import torch
from diffusers import UNet2DConditionModel
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

from sd_scripts.models.sd import StableDiffusion
from test.tiny import tiny_networks

SD21_UNET = {"cross_attention_dim": 1024, "attention_head_dim": (5, 10, 20, 20), "use_linear_projection": True}


SDXL_UNET = {
    "block_out_channels": (320, 640, 1280),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "transformer_layers_per_block": (1, 2, 10), "cross_attention_dim": 2048, "attention_head_dim": (5, 10, 20),
    "use_linear_projection": True, "addition_embed_type": "text_time", "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}  # fmt: skip


@dataclass
class Shapes:
    """What adapters need to know of an SD model."""

    name: str
    denoiser: nn.Module
    text_encoders: tuple[nn.Module, ...]
    vae: None = None

    family = StableDiffusion.family
    networks = StableDiffusion.networks

    def idle_modules(self):
        return ()

    def adapter_targets(self):
        networks = {name: network for name, network in self.networks.items() if network is not None}
        return StableDiffusion.adapter_targets(SimpleNamespace(networks=networks, family=self.family))


@cache
def _pristine() -> StableDiffusion:
    return tiny_networks("sd1")


def tiny_sd() -> StableDiffusion:
    """A fresh copy of always the same tiny SD 1.x model."""
    return deepcopy(_pristine())


def tiny_sdxl() -> StableDiffusion:
    """A tiny SDXL model with the levels and layers of a real one, which other programs count on."""
    return tiny_networks("sdxl", levels=3, layers=2)


def real_sd(name: str) -> Shapes:
    """Shapes of SD 1.5, SD 2.1 or SDXL."""
    if name == "sdxl":
        return _real_sdxl()
    width, inner, layers = (768, 3072, 12) if name == "sd15" else (1024, 4096, 23)
    config = CLIPTextConfig(
        hidden_size=width, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=width // 64
    )
    with torch.device("meta"):
        unet = UNet2DConditionModel(**({"cross_attention_dim": 768} if name == "sd15" else SD21_UNET))
        return Shapes("sd1" if name == "sd15" else "sd2", unet, (CLIPTextModel(config),))


def _real_sdxl() -> Shapes:
    clip_l = CLIPTextConfig(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)
    clip_g = CLIPTextConfig(
        hidden_size=1280, intermediate_size=5120, num_hidden_layers=32, num_attention_heads=20, projection_dim=1280
    )
    with torch.device("meta"):
        unet = UNet2DConditionModel(**SDXL_UNET)
        return Shapes("sdxl", unet, (CLIPTextModel(clip_l), CLIPTextModelWithProjection(clip_g)))


def run(model: StableDiffusion, seed: int = 1) -> torch.Tensor:
    """The noise prediction for fixed inputs, text encoder included: (1, 4, 8, 8)."""
    noise = torch.Generator().manual_seed(seed)
    latents = torch.randn(1, 4, 8, 8, generator=noise)
    return model.predict(latents, torch.tensor([500]), model.encode_text(model.tokenize(["a photo of a cat"])))
