"""Reading and writing SD 1.x and 2.x models: single files, diffusers folders, separate VAEs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sd_scripts.errors import ConfigError
from sd_scripts.models.configs import clip_config, unet_config, vae_config
from sd_scripts.models.detect import CheckpointInfo
from sd_scripts.models.families.sd import OPEN_CLIP
from sd_scripts.models.keymaps.core import count_indices
from sd_scripts.models.loading import kept_tensors, load_network, report_rest
from sd_scripts.models.part_files import PartFile
from sd_scripts.models.saving import save_model, write_configs, write_index
from sd_scripts.models.sd import SDSettings, StableDiffusion, StableDiffusion1, StableDiffusion2

if TYPE_CHECKING:
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextModel, CLIPTextModelWithProjection

    from sd_scripts.models.registry import ModelOptions


# nothing in the weights tells which of the two an encoder was made with
CLIP_ACTIVATION, OPEN_CLIP_ACTIVATION = "quick_gelu", "gelu"


def load_stable_diffusion(
    cfg: ModelOptions, info: CheckpointInfo, device: torch.device | str, dtype: torch.dtype | None
) -> StableDiffusion:
    """Load SD 1.x or 2.x; see `registry.load_architecture`."""
    check_v2(cfg, info)
    layers = count_indices(info.shapes["te1"], "encoder.layers.")
    if cfg.clip_skip is not None and not 1 <= cfg.clip_skip <= layers:
        raise ConfigError("clip_skip", cfg.clip_skip, f"must be 1 to {layers}, the layers of the text encoder")
    cls = StableDiffusion2 if info.architecture == "sd2" else StableDiffusion1
    mapped = not cfg.disable_mmap_load_safetensors
    vae = load_vae(
        info.parts["vae"], info.family.latent.scale, device, torch.float32 if cfg.no_half_vae else dtype, mapped
    )
    unet = load_unet(info, device, dtype, mapped)
    activation = OPEN_CLIP_ACTIVATION if info.architecture == "sd2" else CLIP_ACTIVATION
    text_encoder = load_clip(info.parts["te1"], activation, device, dtype, mapped)
    report_rest(info)
    settings = SDSettings(cfg.v_parameterization, cfg.clip_skip, cfg.max_token_length, cfg.weighted_captions)
    return cls(unet, vae, text_encoder, settings, kept_tensors(info, mapped))


def check_v2(cfg: ModelOptions, info: CheckpointInfo) -> None:
    """Raise ConfigError where `v2` is set for a model that is none."""
    if cfg.v2 and info.architecture != "sd2":
        raise ConfigError("v2", cfg.v2, f"{info.path.name} is {info.label}: leave v2 out")


def load_unet(
    info: CheckpointInfo, device: torch.device | str, dtype: torch.dtype | None, mapped: bool
) -> UNet2DConditionModel:
    """The U-Net, frozen."""
    from diffusers import UNet2DConditionModel

    part = info.parts["unet"]
    config = part.config or unet_config(part.shapes, info.architecture)
    return load_network(part, lambda: UNet2DConditionModel.from_config(config), device, dtype, mapped)


def load_vae(
    part: PartFile,
    scale: float,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    mapped: bool = True,
    sample_size: int = 512,
) -> AutoencoderKL:
    """The VAE, frozen."""
    from diffusers import AutoencoderKL

    config = part.config or vae_config(part.shapes, scale, sample_size)
    return load_network(part, lambda: AutoencoderKL.from_config(config), device, dtype, mapped)


def load_clip(
    part: PartFile, activation: str, device: torch.device | str, dtype: torch.dtype | None, mapped: bool
) -> CLIPTextModel | CLIPTextModelWithProjection:
    """A CLIP text encoder, frozen; with a projection if its file holds one. `activation`: see `configs.clip_config`."""
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = CLIPTextConfig.from_dict(part.config or clip_config(part.shapes, activation))
    cls = CLIPTextModelWithProjection if "text_projection.weight" in part.shapes else CLIPTextModel
    network = load_network(part, lambda: cls(config), device, dtype, mapped)
    restore_position_ids(network, device)
    return network


def restore_position_ids(encoder: nn.Module, device: torch.device | str) -> None:
    """The one buffer of a CLIP text encoder that no file holds; it was made on the meta device."""
    length = encoder.config.max_position_embeddings
    model = getattr(encoder, "text_model", encoder)
    model.embeddings.position_ids = torch.arange(length, device=device).expand((1, -1))


def save_stable_diffusion(
    model: StableDiffusion, path: Path, dtype: torch.dtype | None, metadata: Mapping[str, str]
) -> None:
    """Write a model; see `Architecture.save`."""
    save_model(
        model,
        path,
        dtype,
        metadata,
        write_rest=lambda folder: write_rest(folder, model),
        add=lambda tensors: _open_clip_rest(tensors, model.kept) if model.name == "sd2" else {},
    )


def _open_clip_rest(tensors: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The unused last block and the head of SD 2.x's text encoder: the source file's, else neutral ones."""
    blocks = OPEN_CLIP + "transformer.resblocks."
    numbers = {int(name.removeprefix(blocks).split(".")[0]) for name in tensors if name.startswith(blocks)}
    last = max(numbers)
    rest = {
        name.replace(f"{blocks}{last}.", f"{blocks}{last + 1}."): tensor.clone()
        for name, tensor in tensors.items()
        if name.startswith(f"{blocks}{last}.")
    }
    width = tensors[OPEN_CLIP + "ln_final.weight"].shape[0]
    rest[OPEN_CLIP + "text_projection"] = torch.ones(width, width, dtype=tensors[OPEN_CLIP + "ln_final.weight"].dtype)
    rest[OPEN_CLIP + "logit_scale"] = torch.tensor(1)
    return rest | dict(kept)


def write_all_but_weights(folder: Path, model: StableDiffusion) -> None:
    """Everything of a diffusers folder but the weights: configurations, tokenizer, scheduler, index."""
    write_configs(folder, model)
    write_rest(folder, model)


def write_rest(folder: Path, model: StableDiffusion) -> None:
    """Everything of a diffusers folder but the networks."""
    write_scheduler(folder, model)
    write_clip_tokenizer(folder / "tokenizer", "<|endoftext|>" if model.name == "sd1" else "!")
    write_index(folder, _MODEL_INDEX)


def write_scheduler(folder: Path, model: StableDiffusion, sampler: str = "ddim") -> None:
    """The scheduler that makes pictures from the model as it was trained."""
    from sd_scripts.models.sampling import make_scheduler

    make_scheduler(sampler, model.schedule).save_config(folder / "scheduler")


def write_clip_tokenizer(folder: Path, pad: str) -> None:
    """CLIP's tokenizer, as transformers reads it."""
    from transformers import CLIPTokenizer

    from sd_scripts.models.tokenizers.clip import clip_vocabulary

    vocabulary, merges = clip_vocabulary()
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=merges, pad_token=pad, model_max_length=77)
    tokenizer.save_pretrained(folder)


_MODEL_INDEX = {
    "_class_name": "StableDiffusionPipeline",
    "feature_extractor": [None, None],
    "image_encoder": [None, None],
    "requires_safety_checker": False,
    "safety_checker": [None, None],
    "scheduler": ["diffusers", "DDIMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}
