"""Network files on disk: written whole or not at all, read without running code from them."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from sd_scripts.adapters.hashes import network_hashes
from sd_scripts.errors import UserError
from sd_scripts.models.checkpoints import replacing

SAFETENSORS = ".safetensors"
PICKLES = (".pt", ".ckpt", ".pth", ".bin")
# what torch's readers raise for a file that is no pickle, or a broken one
PICKLE_ERRORS = (
    pickle.UnpicklingError, EOFError, zipfile.BadZipFile, LookupError, ValueError, TypeError, AttributeError,
)  # fmt: skip
DTYPES = {"float": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def save_network(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], precision: str | None = None
) -> Path:
    """Write a network file with its hashes; the suffix decides the format. `.pt` and `.ckpt` carry no metadata.

    Args:
        precision: "float", "fp16", "bf16", or None to keep each tensor's.
    """
    ready = _ready(tensors, precision)
    if path.suffix == SAFETENSORS:
        metadata = {**metadata, **network_hashes(ready, metadata)}
    return write_tensors(path, ready, metadata)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> Path:
    """Write tensors as `.safetensors`, `.ckpt` or `.pt`. UserError when that fails; an older file is then untouched."""
    ready = _ready(tensors, None)
    if path.suffix == SAFETENSORS:
        text = dict(metadata) if metadata else None
        return replace_file(path, lambda temporary: safetensors.torch.save_file(ready, temporary, metadata=text))
    if path.suffix in PICKLES:
        return replace_file(path, lambda temporary: torch.save(ready, temporary))
    raise UserError(f"{path.name}: cannot write files of this kind; use .safetensors, .ckpt or .pt")


def replace_file(path: Path, write: Callable[[Path], None]) -> Path:
    """Let `write` make a temporary file, which then takes the place of `path`. UserError when that fails."""
    try:
        with replacing(path) as temporary:
            write(temporary)
    except (
        OSError,
        RuntimeError,
        safetensors.SafetensorError,
    ) as error:  # torch and safetensors wrap the system's error
        raise UserError(
            f"{path}: could not be written ({_first_line(error)}); free some space or choose another output_dir; "
            "a file of that name from before is unchanged"
        ) from error
    return path


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors (on the CPU) and metadata of a network file. Raises UserError that names a file it cannot read."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        return _read_safetensors(path) if path.suffix == SAFETENSORS else (_read_pickle(path), {})
    except (OSError, RuntimeError, safetensors.SafetensorError, *PICKLE_ERRORS) as error:
        raise UserError(f"{path}: cannot be read as a network file ({_first_line(error)})") from error


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    with safetensors.safe_open(path, framework="pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118


def _read_pickle(path: Path) -> dict[str, Tensor]:
    content = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise UserError(f"{path}: holds no table of tensors, so it is no network file")
    return content


def _ready(tensors: Mapping[str, Tensor], precision: str | None) -> dict[str, Tensor]:
    """On the CPU, contiguous, in the format asked for."""
    dtype = DTYPES[precision] if precision else None
    return {
        key: tensor.detach().to("cpu", dtype if tensor.is_floating_point() else None).contiguous()
        for key, tensor in tensors.items()
    }


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
