"""From the options to a loaded architecture: the one place that knows which class reads which model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sd_scripts.errors import UserError
from sd_scripts.models.detect import CheckpointInfo, require_architecture

if TYPE_CHECKING:
    import torch

    from sd_scripts.models.base import Architecture

SUPPORTED = ("sd1", "sd2")


class ModelOptions(Protocol):
    """The options that loading a model reads, named as users know them."""

    vae: Path | str | None
    v2: bool
    v_parameterization: bool
    clip_skip: int | None
    max_token_length: int | None
    no_half_vae: bool
    disable_mmap_load_safetensors: bool


def load_architecture(
    cfg: ModelOptions, info: CheckpointInfo, device: torch.device | str, dtype: torch.dtype | None
) -> Architecture:
    """Load the model that `detect.inspect` described.

    Args:
        cfg: the options.
        info: the model on disk.
        device: where its networks go.
        dtype: number format of its weights; None keeps the file's. `no_half_vae` keeps the VAE in float32.

    Raises:
        UserError: not an architecture we have, or tensors are missing.
    """
    require_architecture(info, SUPPORTED)
    if info.architecture in ("sd1", "sd2"):
        from sd_scripts.models.sd_files import load_stable_diffusion

        return load_stable_diffusion(cfg, info, device, dtype)
    raise UserError(f"{info.path} is {info.label}, which cannot be loaded")
