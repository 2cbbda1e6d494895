"""Whole models on disk: single files in the original layout, diffusers folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sd_scripts.models.checkpoints import replacing, write_tensors
from sd_scripts.models.layouts import stored_tensors

if TYPE_CHECKING:
    from sd_scripts.models.base import Architecture

FILE_SUFFIXES = (".safetensors", ".ckpt", ".pt")


def single_file_tensors(model: Architecture) -> dict[str, Tensor]:
    """All networks' tensors under the names of the original's single file."""
    tensors: dict[str, Tensor] = {}
    for part in model.family.parts:
        tensors |= stored_tensors(part.layouts[0], model.networks[part.name].state_dict())
    return tensors


def save_model(
    model: Architecture,
    path: Path,
    dtype: torch.dtype | None,
    metadata: Mapping[str, str],
    *,
    write_rest: Callable[[Path], None],
    add: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] = lambda tensors: {},
) -> None:
    """Write a model; see `Architecture.save`.

    Args:
        write_rest: writes what a diffusers folder holds besides networks: tokenizers, scheduler, index.
        add: what a single file holds besides the networks' tensors, from these.
    """
    if path.suffix in FILE_SUFFIXES:
        tensors = single_file_tensors(model)
        write_tensors(path, tensors | dict(add(tensors)), dtype, metadata)
        return
    with replacing(path) as folder:
        for part in model.family.parts:
            network = model.networks[part.name]
            stem = "model" if part.is_text_encoder else "diffusion_pytorch_model"
            file = folder / part.folder / f"{stem}.safetensors"
            write_tensors(file, stored_tensors(part.layouts[-1], network.state_dict(), ""), dtype, {"format": "pt"})
        write_configs(folder, model)
        write_rest(folder)


def write_configs(folder: Path, model: Architecture) -> None:
    """The configuration of every network."""
    for part in model.family.parts:
        network = model.networks[part.name]
        if part.is_text_encoder:
            network.config.save_pretrained(folder / part.folder)
        else:
            network.save_config(folder / part.folder)


def write_index(folder: Path, content: Mapping[str, object]) -> None:
    """`model_index.json`, which says which class each subfolder is for."""
    text = json.dumps(content, indent=2, sort_keys=True)
    (folder / "model_index.json").write_text(text + "\n", encoding="utf-8")
