"""Networks filled from their files."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import nn

from sd_scripts.models.checkpoints import build_on_meta, fill, read_raw, read_tensors
from sd_scripts.models.detect import CheckpointInfo
from sd_scripts.models.part_files import PartFile

logger = logging.getLogger(__name__)


def load_network(
    file: PartFile,
    make: Callable[[], nn.Module],
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    mapped: bool = True,
) -> nn.Module:
    """A network with the weights of its file, frozen. What no file holds (position numbers, …) is still to be made.

    Args:
        file: where the weights lie.
        make: builds the network; it is called where nothing takes memory.
        device: where it goes.
        dtype: number format of its weights; None keeps the file's.
        mapped: read `.safetensors` by mapping them into memory.
    """
    network = build_on_meta(make)
    tensors = {}
    for path, sources in file.files.items():
        tensors |= read_tensors(path, sources, dtype, device, file.foreign, mapped)
    fill(network, tensors, f"{file.path} ({file.part.name})")
    return network.eval().requires_grad_(False)


def kept_tensors(info: CheckpointInfo, mapped: bool) -> dict[str, torch.Tensor]:
    """Tensors of the file that no network uses but that belong in it."""
    return read_raw(info.path, info.plan.kept, info.foreign, mapped) if info.plan.kept else {}


def report_rest(info: CheckpointInfo) -> None:
    """Say what of the files is not used."""
    unknown = {info.path: info.plan.unknown} | {part.path: part.unknown for part in info.separate.values()}
    for path, names in unknown.items():
        if names:
            logger.warning("%s: %d unknown tensors are not used: %s", path.name, len(names), ", ".join(names[:50]))
    if info.plan.dropped:
        logger.info("%s: left out are averages and constants: %s", info.path.name, ", ".join(info.plan.dropped))
