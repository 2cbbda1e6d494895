"""SDXL: a U-Net that is told the picture's sizes, a VAE and two CLIP text encoders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from sd_scripts.models.base import Text, Tokens
from sd_scripts.models.frozen_layers import dtype_of
from sd_scripts.models.sd import SDSettings, StableDiffusion, device_of, join_rows
from sd_scripts.models.tokenizers.clip import END

if TYPE_CHECKING:
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextModel, CLIPTextModelWithProjection

USED_LAYER = -2  # both text encoders' last layer but one, before the final norm


class SDXL(StableDiffusion):
    """SDXL 1.0 and what descends from it, velocity-predicting models too."""

    name: ClassVar[str] = "sdxl"
    pads = (END, 0)

    def __init__(
        self,
        unet: UNet2DConditionModel,
        vae: AutoencoderKL,
        clip_l: CLIPTextModel,
        clip_g: CLIPTextModelWithProjection,
        settings: SDSettings,
        kept: Mapping[str, Tensor] | None = None,
    ):
        """Put a model together; see `StableDiffusion`. `clip_skip` has no effect."""
        super().__init__(unet, vae, clip_l, settings, kept)
        self.text_encoders = (clip_l, clip_g)

    def encode_text(self, tokens: Tokens) -> Text:
        """Hidden states of both encoders side by side (b, n, d1 + d2); the second one's summary (b, d) of the first row."""
        clip_l, clip_g = self.text_encoders
        ids_l, ids_g = (ids.to(device_of(encoder)) for ids, encoder in zip(tokens.ids, self.text_encoders, strict=True))
        hidden_l = clip_l(ids_l.flatten(0, 1), output_hidden_states=True).hidden_states[USED_LAYER]
        output_g = clip_g(ids_g.flatten(0, 1), output_hidden_states=True)
        rows = ids_l.shape[:2]
        hidden = torch.cat([hidden_l, output_g.hidden_states[USED_LAYER]], dim=-1).unflatten(0, rows)
        pooled = output_g.text_embeds.unflatten(0, rows)[:, 0]
        return Text(join_rows(hidden, tokens.weights), pooled)

    def predict(self, noisy: Tensor, timesteps: Tensor, text: Text, sizes: Tensor | None = None) -> Tensor:
        """The U-Net's noise or velocity (b, 4, h, w)."""
        dtype = dtype_of(self.denoiser)
        if sizes is None:
            height, width = (side * self.latent.downscale for side in noisy.shape[-2:])
            sizes = torch.tensor([[height, width, 0, 0, height, width]], device=noisy.device).expand(len(noisy), -1)
        added = {"text_embeds": text.pooled.to(dtype), "time_ids": sizes}
        hidden = text.hidden.to(dtype)
        return self.denoiser(noisy.to(dtype), timesteps, hidden, added_cond_kwargs=added, return_dict=False)[0]

    def idle_modules(self) -> tuple[nn.Module, ...]:
        """The first text encoder's last layer and norm: the U-Net sees the layer before."""
        if not self.text_encoders:
            return ()
        clip_l = self.text_encoders[0]
        return clip_l.encoder.layers[-1], clip_l.final_layer_norm

    def save(self, path: Path, dtype: torch.dtype | None, metadata: Mapping[str, str]) -> None:
        """Write the whole model as `.safetensors`, `.ckpt` or, with any other path, as a diffusers folder."""
        from sd_scripts.models.sdxl_files import save_sdxl

        save_sdxl(self, path, dtype, metadata)
