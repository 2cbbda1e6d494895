"""From the options to a loaded architecture, by the family of the model's file."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sd_scripts.errors import UserError
from sd_scripts.models.detect import CheckpointInfo, require_architecture, with_separate_files
from sd_scripts.models.families import all_families

if TYPE_CHECKING:
    import torch

    from sd_scripts.models.base import Architecture


class ModelOptions(Protocol):
    """The options that loading reads for every family; a family's own loader reads more."""

    vae: Path | str | None
    v_parameterization: bool
    clip_skip: int | None
    max_token_length: int | None
    weighted_captions: bool
    no_half_vae: bool
    disable_mmap_load_safetensors: bool


class Loader(Protocol):
    """What a family's `loader` is."""

    def __call__(
        self, cfg: ModelOptions, info: CheckpointInfo, device: torch.device | str, dtype: torch.dtype | None
    ) -> Architecture: ...


def load_architecture(
    cfg: ModelOptions, info: CheckpointInfo, device: torch.device | str, dtype: torch.dtype | None
) -> Architecture:
    """Load the model that `detect.inspect` described, with the separate files that options name.

    Args:
        cfg: the options.
        info: the model on disk.
        device: where its networks go.
        dtype: number format of its weights; None keeps the file's. `no_half_vae` keeps the VAE in float32.

    Raises:
        UserError: not an architecture we have, or tensors are missing.
    """
    require_architecture(info, [family.name for family in all_families().values() if family.loader])
    return _loader(info)(cfg, with_separate_files(info, cfg), device, dtype)


def _loader(info: CheckpointInfo) -> Loader:
    if info.family.loader is None:
        raise UserError(f"{info.path} is {info.label}, which cannot be loaded yet")
    module, _, function = info.family.loader.partition(":")
    return getattr(import_module(module), function)
