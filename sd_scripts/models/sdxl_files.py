"""Reading and writing SDXL models: single files, diffusers folders, separate VAEs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sd_scripts.models.detect import CheckpointInfo
from sd_scripts.models.families.sdxl import V_MARK, ZERO_SNR_MARK
from sd_scripts.models.loading import kept_tensors, report_rest
from sd_scripts.models.saving import save_model, write_index
from sd_scripts.models.sd import SDSettings
from sd_scripts.models.sd_files import (
    CLIP_ACTIVATION,
    OPEN_CLIP_ACTIVATION,
    check_v2,
    load_clip,
    load_unet,
    load_vae,
    write_clip_tokenizer,
    write_scheduler,
)
from sd_scripts.models.sdxl import SDXL

if TYPE_CHECKING:
    from sd_scripts.models.registry import ModelOptions

logger = logging.getLogger(__name__)


def load_sdxl(cfg: ModelOptions, info: CheckpointInfo, device: torch.device | str, dtype: torch.dtype | None) -> SDXL:
    """Load SDXL; see `registry.load_architecture`."""
    check_v2(cfg, info)
    mapped = not cfg.disable_mmap_load_safetensors
    vae = load_vae(
        info.parts["vae"], info.family.latent.scale, device, _vae_dtype(cfg, dtype), mapped, sample_size=1024
    )
    vae.register_to_config(force_upcast=True)  # for other programs that read our diffusers folders
    unet = load_unet(info, device, dtype, mapped)
    clip_l = load_clip(info.parts["te1"], CLIP_ACTIVATION, device, dtype, mapped)
    clip_g = load_clip(info.parts["te2"], OPEN_CLIP_ACTIVATION, device, dtype, mapped)
    report_rest(info)
    says_v = info.predicts_v and not cfg.v_parameterization
    if says_v:
        logger.info("%s says that it predicts velocity, so it is trained to", info.path.name)
    settings = SDSettings(cfg.v_parameterization or says_v, None, cfg.max_token_length, cfg.weighted_captions)
    model = SDXL(unet, vae, clip_l, clip_g, settings, kept_tensors(info, mapped))
    if ZERO_SNR_MARK in info.tensors:
        model.schedule = model.schedule.with_zero_terminal_snr()
    return model


def _vae_dtype(cfg: ModelOptions, dtype: torch.dtype | None) -> torch.dtype | None:
    """SDXL's own VAE overflows in float16 and gives black pictures: it runs in float32 then."""
    if dtype == torch.float16 and not cfg.no_half_vae:
        logger.info("the VAE runs in float32: SDXL's overflows in float16")
    return torch.float32 if cfg.no_half_vae or dtype == torch.float16 else dtype


def save_sdxl(model: SDXL, path: Path, dtype: torch.dtype | None, metadata: Mapping[str, str]) -> None:
    """Write a model; see `Architecture.save`."""
    save_model(
        model,
        path,
        dtype,
        metadata,
        write_rest=lambda folder: _write_rest(folder, model),
        add=lambda _: model.kept | _marks(model),
    )


def _marks(model: SDXL) -> dict[str, Tensor]:
    """Empty tensors that tell other programs what the model predicts."""
    if not model.predicts_v:
        return {}
    has_zero_snr = float(model.schedule.alphas_cumprod[-1]) == 0
    return {name: torch.empty(0) for name in (V_MARK, *([ZERO_SNR_MARK] if has_zero_snr else []))}


def _write_rest(folder: Path, model: SDXL) -> None:
    write_scheduler(folder, model, "euler")
    write_clip_tokenizer(folder / "tokenizer", "<|endoftext|>")
    write_clip_tokenizer(folder / "tokenizer_2", "!")
    write_index(folder, _MODEL_INDEX)


_MODEL_INDEX = {
    "_class_name": "StableDiffusionXLPipeline",
    "feature_extractor": [None, None],
    "force_zeros_for_empty_prompt": False,  # trained on encoded empty captions
    "image_encoder": [None, None],
    "scheduler": ["diffusers", "EulerDiscreteScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "tokenizer_2": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}
