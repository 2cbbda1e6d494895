"""SD networks for the adapter tests: tiny ones that run, and the shapes of real ones (on the meta device)."""

from dataclasses import dataclass

import torch
from diffusers import UNet2DConditionModel
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel

from sd_scripts.models.base import AdapterTarget
from sd_scripts.models.targets import sd_targets

TINY_CLIP = {
    "vocab_size": 1000, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 77, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1,
}  # fmt: skip
TINY_UNET = {
    "block_out_channels": (32, 64), "layers_per_block": 1, "sample_size": 8, "cross_attention_dim": 32,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "attention_head_dim": 2,
}  # fmt: skip
SD21_UNET = {"cross_attention_dim": 1024, "attention_head_dim": (5, 10, 20, 20), "use_linear_projection": True}


@dataclass
class SdModel:
    """What adapters need to know of an architecture."""

    denoiser: nn.Module
    text_encoders: tuple[nn.Module, ...]
    name: str = "sd1"

    def adapter_targets(self):
        networks = {"unet": self.denoiser, "te1": self.text_encoders[0]}
        shapes = {part: {k: tuple(v.shape) for k, v in net.state_dict().items()} for part, net in networks.items()}
        for t in sd_targets(shapes):
            module = networks[t.part].get_submodule(t.module)
            yield AdapterTarget(t.name, t.part, (module,), t.is_conv3x3, t.needs_conv_dim)


def tiny_sd(seed: int = 0) -> SdModel:
    torch.manual_seed(seed)
    unet, clip = UNet2DConditionModel(**TINY_UNET), CLIPTextModel(CLIPTextConfig(**TINY_CLIP))
    return SdModel(unet.eval().requires_grad_(False), (clip.eval().requires_grad_(False),))


def real_sd(name: str) -> SdModel:
    """Shapes of SD 1.5 or 2.1."""
    width, inner, layers = (768, 3072, 12) if name == "sd15" else (1024, 4096, 23)
    config = CLIPTextConfig(
        hidden_size=width, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=width // 64
    )
    with torch.device("meta"):
        unet = UNet2DConditionModel(**({"cross_attention_dim": 768} if name == "sd15" else SD21_UNET))
        return SdModel(unet, (CLIPTextModel(config),))


def run(model: SdModel, seed: int = 1) -> torch.Tensor:
    """The noise prediction for fixed inputs, text encoder included: (1, 4, 8, 8)."""
    noise = torch.Generator().manual_seed(seed)
    latents = torch.randn(1, 4, 8, 8, generator=noise)
    text = model.text_encoders[0](torch.tensor([[0, 5, 6, 7, 2]])).last_hidden_state
    return model.denoiser(latents, torch.tensor([500]), text).sample
