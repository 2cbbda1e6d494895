"""Reading and writing SD 1.x and 2.x models: single files, diffusers folders, separate VAEs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sd_scripts.errors import ConfigError, UserError
from sd_scripts.models.checkpoints import build_on_meta, fill, read_raw, read_tensors, replacing, write_tensors
from sd_scripts.models.configs import clip_config, unet_config, vae_config
from sd_scripts.models.detect import CheckpointInfo
from sd_scripts.models.keymaps.core import count_indices
from sd_scripts.models.keymaps.sd import FOLDERS, OPEN_CLIP, single_file_tensors
from sd_scripts.models.sd import SDSettings, StableDiffusion, StableDiffusion1, StableDiffusion2
from sd_scripts.models.vae_files import inspect_vae

if TYPE_CHECKING:
    from diffusers import AutoencoderKL
    from transformers import CLIPTextModel

    from sd_scripts.models.registry import ModelOptions

logger = logging.getLogger(__name__)

FILE_SUFFIXES = (".safetensors", ".ckpt", ".pt")


def load_stable_diffusion(
    cfg: ModelOptions, info: CheckpointInfo, device: torch.device | str, dtype: torch.dtype | None
) -> StableDiffusion:
    """Load the model that `detect.inspect` described; see `registry.load_architecture`."""
    _check_options(cfg, info)
    cls = StableDiffusion2 if info.architecture == "sd2" else StableDiffusion1
    vae_dtype = torch.float32 if cfg.no_half_vae else dtype
    mapped = not cfg.disable_mmap_load_safetensors
    if cfg.vae is None:
        vae = _load_part(info, "vae", cls.latent.scale, device, vae_dtype, mapped)
    else:
        vae = load_vae(Path(cfg.vae), cls.latent.scale, device, vae_dtype, mapped)
    unet = _load_part(info, "unet", cls.latent.scale, device, dtype, mapped)
    text_encoder = _load_part(info, "te1", cls.latent.scale, device, dtype, mapped)
    _report_rest(info.path, info.plan.unknown, info.plan.dropped)
    settings = SDSettings(cfg.v_parameterization, cfg.clip_skip, cfg.max_token_length)
    kept = read_raw(info.path, info.plan.kept, info.foreign, mapped) if info.plan.kept else {}
    return cls(unet, vae, text_encoder, settings, kept)


def _check_options(cfg: ModelOptions, info: CheckpointInfo) -> None:
    if cfg.v2 and info.architecture != "sd2":
        raise ConfigError("v2", cfg.v2, f"{info.path.name} is {info.label}: leave v2 out")
    layers = count_indices(info.shapes["te1"], "encoder.layers.")
    if cfg.clip_skip is not None and not 1 <= cfg.clip_skip <= layers:
        raise ConfigError("clip_skip", cfg.clip_skip, f"must be 1 to {layers}, the layers of the text encoder")
    if cfg.vae is None and not info.shapes["vae"]:
        raise ConfigError("vae", None, f"{info.path.name} holds no VAE: name a VAE file here")


def _report_rest(path: Path, unknown: Sequence[str], dropped: Sequence[str]) -> None:
    if unknown:
        logger.warning("%s: %d unknown tensors are not used: %s", path.name, len(unknown), ", ".join(unknown))
    if dropped:
        logger.info("%s: left out are averages and constants: %s", path.name, ", ".join(dropped))


def load_vae(
    path: Path,
    scale: float,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    mapped: bool = True,
) -> AutoencoderKL:
    """The separate VAE that `vae_files.inspect_vae` accepts, frozen."""
    from diffusers import AutoencoderKL

    info = inspect_vae(path)
    config = vae_config(info.shapes, scale) if info.folder is None else _folder_config(info.folder)
    vae = build_on_meta(lambda: AutoencoderKL.from_config(config))
    fill(vae, read_tensors(info.file, info.sources, dtype, device, info.foreign, mapped), f"the VAE {path}")
    _report_rest(path, info.unknown, ())
    return vae.eval().requires_grad_(False)


def _load_part(
    info: CheckpointInfo, part: str, scale: float, device: torch.device | str, dtype: torch.dtype | None, mapped: bool
) -> Any:
    """One network of the model, frozen."""
    network = _network(info, part, scale)
    file = info.path if info.files is None else info.files[FOLDERS[part]][0]
    folder = "" if info.files is None else FOLDERS[part] + "/"
    sources = {n: replace(s, key=s.key.removeprefix(folder)) for n, s in info.plan.parts[part].items()}
    fill(network, read_tensors(file, sources, dtype, device, info.foreign, mapped), f"{info.path} ({part})")
    if part == "te1":
        _restore_position_ids(network, device)
    return network.eval().requires_grad_(False)


def _network(info: CheckpointInfo, part: str, scale: float) -> nn.Module:
    """A network of the right shape, without memory."""
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    if info.format == "diffusers":
        config: dict[str, Any] = _folder_config(info.path / FOLDERS[part])
    else:
        infer: Mapping[str, Callable[[], dict[str, Any]]] = {
            "unet": lambda: unet_config(info.shapes["unet"], info.architecture),
            "vae": lambda: vae_config(info.shapes["vae"], scale),
            "te1": lambda: clip_config(info.shapes["te1"], info.architecture),
        }
        config = infer[part]()
    if part == "te1":
        return build_on_meta(lambda: CLIPTextModel(CLIPTextConfig.from_dict(config)))
    cls = UNet2DConditionModel if part == "unet" else AutoencoderKL
    return build_on_meta(lambda: cls.from_config(config))


def _restore_position_ids(encoder: CLIPTextModel, device: torch.device | str) -> None:
    """The one buffer that no file holds; it was made on the meta device."""
    length = encoder.config.max_position_embeddings
    encoder.embeddings.position_ids = torch.arange(length, device=device).expand((1, -1))


def _folder_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise UserError(f"{folder} has no config.json: the diffusers folder is incomplete, get it again")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged: no valid JSON ({error})") from error


def save_stable_diffusion(
    model: StableDiffusion, path: Path, dtype: torch.dtype | None, metadata: Mapping[str, str]
) -> None:
    """Write a model; see `Architecture.save`."""
    networks = {"unet": model.denoiser, "vae": model.vae, "te1": model.text_encoders[0]}
    parts = {part: dict(network.state_dict()) for part, network in networks.items()}
    if path.suffix in FILE_SUFFIXES:
        tensors = single_file_tensors(parts, open_clip=model.name == "sd2")
        if model.name == "sd2":
            tensors |= _open_clip_rest(tensors, model.kept)
        write_tensors(path, tensors, dtype, metadata)
        return
    with replacing(path) as folder:
        _write_folder(folder, model, parts, dtype)


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


def _write_folder(
    folder: Path, model: StableDiffusion, parts: Mapping[str, Mapping[str, Tensor]], dtype: torch.dtype | None
) -> None:
    text = {
        f"text_model.{name}": tensor for name, tensor in parts["te1"].items()
    }  # the level that other readers expect
    write_tensors(folder / "unet" / "diffusion_pytorch_model.safetensors", parts["unet"], dtype, {"format": "pt"})
    write_tensors(folder / "vae" / "diffusion_pytorch_model.safetensors", parts["vae"], dtype, {"format": "pt"})
    write_tensors(folder / "text_encoder" / "model.safetensors", text, dtype, {"format": "pt"})
    write_configs(folder, model)


def write_configs(folder: Path, model: StableDiffusion) -> None:
    """Everything of a diffusers folder but the weights: configurations, tokenizer, scheduler, index."""
    from transformers import CLIPTokenizer

    from sd_scripts.models.sampling import make_scheduler
    from sd_scripts.models.tokenizers.clip import clip_vocabulary

    model.denoiser.save_config(folder / "unet")
    model.vae.save_config(folder / "vae")
    model.text_encoders[0].config.save_pretrained(folder / "text_encoder")
    make_scheduler("ddim", model.schedule).save_config(folder / "scheduler")
    vocabulary, merges = clip_vocabulary()
    pad = "<|endoftext|>" if model.name == "sd1" else "!"
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=merges, pad_token=pad, model_max_length=77)
    tokenizer.save_pretrained(folder / "tokenizer")
    index = json.dumps(_MODEL_INDEX, indent=2, sort_keys=True)
    (folder / "model_index.json").write_text(index + "\n", encoding="utf-8")


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
