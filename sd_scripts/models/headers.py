"""Names, shapes and number formats of the tensors in a model file, without reading a weight or running its pickle."""

from __future__ import annotations

import json
import math
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sd_scripts.errors import UserError
from sd_scripts.models.keymaps.core import Shape

_BITS = {"F64": 64, "I64": 64, "F32": 32, "I32": 32, "F16": 16, "BF16": 16, "I16": 16}  # all others take a byte
_STORAGES = {
    **{"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"},
    **{"LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8"},
    "BoolStorage": "BOOL",
}
_OLD_TORCH_MAGIC = 0x1950A86A20F9469CFC6C  # files written before torch 1.6 are a row of pickles that starts with it


@dataclass(frozen=True)
class TensorInfo:
    """Shape and number format ("F16", "F32", …) of a stored tensor."""

    shape: Shape
    dtype: str

    @property
    def numbers(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its size in the file."""
        return self.numbers * _BITS.get(self.dtype, 8) // 8


@dataclass(frozen=True)
class Header:
    """What a file says about its tensors.

    Attributes:
        format: "safetensors" or "ckpt" (pickled), whatever the file's suffix says.
        tensors: name to shape and format.
        metadata: the text pairs of a safetensors file.
        foreign: dotted names of classes that a pickle mentions besides torch's own; none is ever imported.
    """

    format: str
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    foreign: tuple[str, ...] = ()


def read_header(path: Path) -> Header:
    """Header of a `.safetensors` file, or of a pickled one (`.ckpt`, `.pt`, `.pth`, `.bin`), told apart by its content.

    Raises:
        UserError: the file is no model, or damaged.
    """
    size = path.stat().st_size
    if size == 0:
        raise UserError(f"{path} is empty (0 bytes): the download failed, get the file again")
    with path.open("rb") as file:
        start = file.read(512)
        file.seek(0)
        if start[8:9] == b"{":  # safetensors: eight bytes of length, then JSON
            _reject_text(path, start)
            return _read_safetensors(path, file, size)
        if start[:2] == b"PK" or start[:1] == b"\x80":  # a zip archive, or a bare pickle
            return _read_pickled(path, file)
    _reject_text(path, start)
    if path.suffix == ".safetensors":
        raise UserError(f"{path} is damaged or no safetensors file: it does not start with a header, get it again")
    raise UserError(f"{path} is no model file: expected .safetensors, or .ckpt/.pt written by torch")


def _reject_text(path: Path, start: bytes) -> None:
    if start.startswith(b"version https://git-lfs"):
        raise UserError(f"{path} is a Git LFS pointer, not the model itself: fetch the file with 'git lfs pull'")
    if start.lstrip()[:1] == b"<":
        raise UserError(f"{path} is a web page, not a model: the download failed, get the file again")
    text = start[:64].decode("utf-8", errors="replace")[:-3]  # the cut may have split a character
    if text and all((c.isprintable() and c != "\ufffd") or c.isspace() for c in text):
        raise UserError(f"{path} is a text file, not a model: give a .safetensors or .ckpt file or a diffusers folder")


def _read_safetensors(path: Path, file: BinaryIO, size: int) -> Header:
    length = int.from_bytes(file.read(8), "little")
    if length + 8 > size:
        raise UserError(f"{path} is damaged or no safetensors file: its header would be longer than the file")
    try:
        entries: dict[str, Any] = json.loads(file.read(length))
        metadata = entries.pop("__metadata__", {})
        tensors = {name: TensorInfo(tuple(e["shape"]), e["dtype"]) for name, e in entries.items()}
        end = max((e["data_offsets"][1] for e in entries.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(f"{path} is damaged: its safetensors header cannot be read ({error})") from error
    missing = length + 8 + end - size
    if missing > 0:
        raise UserError(f"{path} is truncated: {missing:,} of {size + missing:,} bytes are missing, get the file again")
    return Header("safetensors", tensors, metadata)


def _read_pickled(path: Path, file: BinaryIO) -> Header:
    try:
        content, foreign = _scan_zip(path, file) if file.read(2) == b"PK" else _scan_old(file)
    except (pickle.UnpicklingError, zipfile.BadZipFile, EOFError, ValueError, TypeError, KeyError, IndexError) as error:
        raise UserError(f"{path} is damaged or truncated ({type(error).__name__}): get the file again") from error
    return Header("ckpt", dict(_tensors(content)), {}, tuple(sorted(foreign)))


def _scan_zip(path: Path, file: BinaryIO) -> tuple[Any, set[str]]:
    with zipfile.ZipFile(file) as archive:
        name = next((n for n in archive.namelist() if n.rpartition("/")[2] == "data.pkl"), None)
        if name is None:
            raise UserError(f"{path} is a zip archive, not a torch file: unpack it and give the model inside")
        with archive.open(name) as stream:
            scan = _Scan(stream)
            return scan.load(), scan.foreign


def _scan_old(file: BinaryIO) -> tuple[Any, set[str]]:
    """Before torch 1.6: pickles of a magic number, a version, the system, the content, the storages' names."""
    file.seek(0)
    content = _Scan(file).load()
    if content != _OLD_TORCH_MAGIC:
        return content, set()
    for _ in range(2):
        _Scan(file).load()
    scan = _Scan(file)
    return scan.load(), scan.foreign


def _tensors(content: Any) -> list[tuple[str, TensorInfo]]:
    """Tensors of a state dict, or of the one inside a training checkpoint."""
    if not isinstance(content, dict):
        return []
    if isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    return [(name, value) for name, value in content.items() if isinstance(value, TensorInfo)]


class _Scan(pickle.Unpickler):
    """Reads the structure of a torch pickle. Every class in it is replaced by one of ours, so nothing of it can run."""

    foreign: set[str]

    def __init__(self, file: Any):
        super().__init__(file, encoding="utf-8", errors="replace")
        self.foreign = set()

    def find_class(self, module: str, name: str) -> Any:
        if module == "collections" and name == "OrderedDict":
            return _Dict
        if module == "torch._utils":
            known = {"_rebuild_tensor_v2": _tensor, "_rebuild_tensor": _tensor, "_rebuild_parameter": _parameter}
            return known.get(name, _Inert)
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if not module.startswith("torch"):
            self.foreign.add(f"{module}.{name}")
        return _Inert

    def persistent_load(self, pid: Any) -> Any:
        return pid[1]  # ("storage", number format, key, device, length)


class _Dict(dict):
    """Stands for OrderedDict; takes the attributes that pickles of state dicts set."""


class _Inert:
    """Stands for any other class: takes every argument and state, and does nothing."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> _Inert:
        return super().__new__(cls)

    def __init__(self, *_args: Any, **_kwargs: Any):
        pass

    def __setstate__(self, _state: Any) -> None:
        pass

    def __setitem__(self, _key: Any, _value: Any) -> None:
        pass

    def append(self, _value: Any) -> None:
        """As a list subclass would."""

    def extend(self, _values: Any) -> None:
        """As a list subclass would."""


def _tensor(storage: Any, _offset: int, shape: Shape, *_rest: Any) -> TensorInfo:
    return TensorInfo(tuple(shape), storage if isinstance(storage, str) else "F32")


def _parameter(tensor: Any, *_rest: Any) -> Any:
    return tensor
