"""Stable Diffusion 1.x and 2.x: U-Net, VAE and one CLIP text encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from sd_scripts.errors import ConfigError
from sd_scripts.models.base import Architecture, Text, Tokens
from sd_scripts.models.frozen_layers import dtype_of
from sd_scripts.models.noise_schedule import NoiseSchedule
from sd_scripts.models.tokenizers.clip import END, ClipTokenizer

if TYPE_CHECKING:
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from PIL import Image
    from transformers import CLIPTextModel

    from sd_scripts.models.blocks import Blocks


@dataclass(frozen=True)
class SDSettings:
    """What the options say and the weights do not.

    Attributes:
        v_parameterization: the U-Net predicts velocity instead of noise.
        clip_skip: use the text encoder's n-th last layer; None or 1 is the last.
        max_token_length: 75, 150 or 225 tokens of a caption are used.
        weighted_captions: brackets in captions are emphasis.
    """

    v_parameterization: bool = False
    clip_skip: int | None = None
    max_token_length: int | None = None
    weighted_captions: bool = False


class StableDiffusion(Architecture):
    """What SD 1.x and 2.x share, which is nearly everything."""

    pads: ClassVar[tuple[int, ...]]  # of each text encoder, the token id that fills a row

    def __init__(
        self,
        unet: UNet2DConditionModel,
        vae: AutoencoderKL,
        text_encoder: CLIPTextModel,
        settings: SDSettings,
        kept: Mapping[str, Tensor] | None = None,
    ):
        """Put a model together.

        Args:
            unet, vae, text_encoder: loaded networks.
            settings: what their weights do not tell.
            kept: tensors of the source file that no network uses, written back by `save`.
        """
        self.denoiser = unet
        self.vae = vae
        self.device = unet.device
        self.text_encoders = (text_encoder,)
        self.settings = settings
        prediction = "v" if settings.v_parameterization else "epsilon"
        self.schedule = NoiseSchedule.scaled_linear(prediction).to(unet.device)
        self.kept = dict(kept or {})
        self._tokenizer = ClipTokenizer(settings.max_token_length, *self.pads, reads_weights=settings.weighted_captions)

    @property
    def tokenizer(self) -> ClipTokenizer:
        """The picklable tokenizer."""
        return self._tokenizer

    def tokenize(self, captions: Sequence[str]) -> Tokens:
        """Ids (b, rows of 77, 77) on the CPU."""
        return self._tokenizer(captions)

    def encode_text(self, tokens: Tokens) -> Text:
        """Hidden states (b, 77, d); of several rows (b, 2 + 75 rows, d): one start, the rows' texts, one end."""
        encoder = self.text_encoders[0]
        ids = tokens.ids[0].to(device_of(encoder))
        hidden = _clip_hidden(encoder, ids.flatten(0, 1), self.settings.clip_skip or 1)
        return Text(join_rows(hidden.unflatten(0, ids.shape[:2]), tokens.weights))

    def encode_image(self, pixels: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Scaled latents (b, 4, h/8, w/8) of pixels (b, 3, h, w) in -1…1: a sample, or without a generator the mean."""
        pixels = pixels.to(device_of(self.vae), dtype_of(self.vae))
        with torch.autocast(pixels.device.type, enabled=False):  # a VAE in float32 is so for a reason
            posterior = self.vae.encode(pixels).latent_dist
        drawn = posterior.mode() if generator is None else posterior.sample(generator)
        return (drawn - self.latent.shift) * self.latent.scale

    def decode_latents(self, latents: Tensor) -> Tensor:
        """Pixels (b, 3, h, w) in -1…1, float32."""
        unscaled = latents.to(device_of(self.vae)) / self.latent.scale + self.latent.shift
        with torch.autocast(unscaled.device.type, enabled=False):
            return self.vae.decode(unscaled.to(dtype_of(self.vae))).sample.float().clamp(-1, 1)

    def predict(self, noisy: Tensor, timesteps: Tensor, text: Text, sizes: Tensor | None = None) -> Tensor:
        """The U-Net's noise or velocity (b, 4, h, w)."""
        dtype = dtype_of(self.denoiser)
        return self.denoiser(noisy.to(dtype), timesteps, text.hidden.to(dtype), return_dict=False)[0]

    def blocks(self) -> Blocks:
        """The U-Net's levels; each is a kind of its own, but they run in one row."""
        return ((*self.denoiser.down_blocks, self.denoiser.mid_block, *self.denoiser.up_blocks),)

    def idle_modules(self) -> tuple[nn.Module, ...]:
        """The text encoder's layers behind the one that is used."""
        skipped = (self.settings.clip_skip or 1) - 1
        return tuple(self.text_encoders[0].encoder.layers[-skipped:]) if skipped and self.text_encoders else ()

    def set_gradient_checkpointing(self, enabled: bool) -> None:
        """Keep fewer activations for the backward pass and compute them again: less memory, more time."""
        if enabled:
            self.denoiser.enable_gradient_checkpointing()
        else:
            self.denoiser.disable_gradient_checkpointing()
        for encoder in self.text_encoders:
            _checkpoint_encoder(encoder, enabled)

    def sample(
        self,
        prompt: str,
        negative_prompt: str = "",
        *,
        width: int,
        height: int,
        steps: int,
        scale: float,
        seed: int,
        sampler: str = "ddim",
    ) -> Image.Image:
        """One picture; see `sampling.sample_picture`. Raises ConfigError for sides that `divisor` does not divide."""
        from sd_scripts.models.sampling import SampleSettings, sample_picture

        if width % self.divisor or height % self.divisor:
            raise ConfigError("sample_prompts", f"{width}x{height}", f"sides must be multiples of {self.divisor}")
        return sample_picture(self, prompt, negative_prompt, SampleSettings(width, height, steps, scale, seed, sampler))

    def save(self, path: Path, dtype: torch.dtype | None, metadata: Mapping[str, str]) -> None:
        """Write the whole model as `.safetensors`, `.ckpt` or, with any other path, as a diffusers folder."""
        from sd_scripts.models.sd_files import save_stable_diffusion

        save_stable_diffusion(self, path, dtype, metadata)


class StableDiffusion1(StableDiffusion):
    """SD 1.x: CLIP-L text encoder, eight heads in every attention."""

    name: ClassVar[str] = "sd1"
    pads = (END,)


class StableDiffusion2(StableDiffusion):
    """SD 2.x: OpenCLIP ViT-H text encoder without its last layer, heads of width 64."""

    name: ClassVar[str] = "sd2"
    pads = (0,)


def _checkpoint_encoder(encoder: CLIPTextModel, enabled: bool) -> None:
    """Switch a text encoder's checkpointing, by the name that the installed transformers has for it."""
    word = "activation" if hasattr(encoder, "activation_checkpointing_enable") else "gradient"  # renamed in 5.2x
    if not enabled:
        getattr(encoder, f"{word}_checkpointing_disable")()
        return
    getattr(encoder, f"{word}_checkpointing_enable")({"use_reentrant": False})
    # It makes the embeddings' output need a gradient, which only reentrant checkpoints want: a frozen encoder stays frozen.
    encoder.disable_input_require_grads()


def device_of(network: nn.Module) -> torch.device:
    """Where its weights are."""
    return next(network.parameters()).device


def _clip_hidden(encoder: CLIPTextModel, ids: Tensor, skip: int) -> Tensor:
    """Normalised output (n, 77, d) of the n-th last layer."""
    if skip == 1:
        return encoder(ids).last_hidden_state
    # the last entry is the last layer's output before the final norm
    hidden = encoder(ids, output_hidden_states=True).hidden_states[-skip]
    return encoder.final_layer_norm(hidden)


def join_rows(hidden: Tensor, weights: Tensor | None = None) -> Tensor:
    """Hidden states of a long caption's rows (b, rows, n, d) as one text (b, 2 + rows (n - 2), d).

    Args:
        weights: (b, rows, n) by which they are multiplied.
    """
    if weights is not None:
        hidden = hidden * weights.to(hidden.device, hidden.dtype)[..., None]
    if hidden.shape[1] == 1:
        return hidden[:, 0]
    texts = hidden[:, :, 1:-1].flatten(1, 2)
    return torch.cat([hidden[:, 0, :1], texts, hidden[:, -1, -1:]], dim=1)
