"""Weights between files and modules: memory-mapped reading onto networks without memory, and safe writing."""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor, nn

from sd_scripts.errors import UserError
from sd_scripts.models.keymaps.core import Source

# When weights are converted or copied to a device, the file is mapped anew for so many bytes of them, so that the pages
# read for one batch are free again before the next: the peak stays at the loaded weights plus this.
BATCH_BYTES = 64 * 2**20

Getter = Callable[[str], Tensor]

# number formats of safetensors files by their names there
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "BOOL": torch.bool,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8,
}  # fmt: skip
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def build_on_meta(make: Callable[[], nn.Module]) -> nn.Module:
    """A network without memory, to be filled by `fill`."""
    with torch.device("meta"):
        return make()


def fill(module: nn.Module, tensors: Mapping[str, Tensor], what: str) -> None:
    """Give a network exactly these tensors, without copying.

    Args:
        module: a network, on the meta device or not.
        tensors: every tensor of its state dict, of the right shape.
        what: what it is and where from, for the error.

    Raises:
        UserError: tensors are missing or have another shape.
    """
    expected = module.state_dict()
    if missing := [name for name in expected if name not in tensors]:
        raise UserError(f"{what} lacks {_named(missing)}: the file is incomplete, get it again")
    wrong = [name for name, tensor in expected.items() if tensor.shape != tensors[name].shape]
    if wrong:
        shapes = f"{tuple(tensors[wrong[0]].shape)}, expected {tuple(expected[wrong[0]].shape)}"
        raise UserError(
            f"{what} has {_named(wrong)} of another shape ({shapes}): it is not of the supposed architecture"
        )
    module.load_state_dict({name: tensors[name] for name in expected}, strict=True, assign=True)


def read_tensors(
    file: Path,
    sources: Mapping[str, Source],
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    foreign: tuple[str, ...] = (),
    mapped: bool = True,
) -> dict[str, Tensor]:
    """Read library tensors from a model file.

    On the CPU and without conversion they are views of the memory-mapped file: nothing is read until used, and writing
    to them does not reach the file.

    Args:
        file: `.safetensors`, or pickled by torch (read with `weights_only`).
        sources: library name to its place in the file.
        dtype: number format for floating-point tensors; None keeps the file's.
        device: where to put them.
        foreign: classes the pickle mentions besides torch's (`Header.foreign`); inert stand-ins take their place.
        mapped: False reads `.safetensors` without mapping it, tensor by tensor.
    """
    tensors: dict[str, Tensor] = {}
    waiting = list(sources.items())
    while waiting:
        taken = 0
        with _open(file, foreign, mapped) as get:
            while waiting and taken < BATCH_BYTES:
                name, source = waiting.pop()
                stored = source.take(get(source.key))
                tensors[name] = _converted(stored, dtype, device)
                taken += stored.nbytes if tensors[name] is not stored else 0
    return {name: tensors[name] for name in sources}


def read_raw(
    file: Path, names: tuple[str, ...], foreign: tuple[str, ...] = (), mapped: bool = True
) -> dict[str, Tensor]:
    """Tensors of a file under their own names, memory-mapped unless told otherwise."""
    return read_tensors(file, {name: Source(name) for name in names}, foreign=foreign, mapped=mapped)


def _converted(tensor: Tensor, dtype: torch.dtype | None, device: torch.device | str) -> Tensor:
    """The same object if nothing has to change."""
    wanted = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    if tensor.dtype == wanted and torch.device(device).type == "cpu":
        return tensor
    return tensor.to(device=device, dtype=wanted)


@contextmanager
def _open(file: Path, foreign: tuple[str, ...], mapped: bool) -> Iterator[Getter]:
    with file.open("rb") as start:
        is_safetensors = start.read(9)[8:9] == b"{"
    if is_safetensors and not mapped:
        with file.open("rb") as opened:
            yield _plain_reader(opened)
    elif is_safetensors:
        from safetensors import safe_open

        with safe_open(file, framework="pt") as opened:
            yield opened.get_tensor
    else:
        yield _load_pickled(file, foreign).__getitem__


def _plain_reader(file: BinaryIO) -> Getter:
    """Reads tensors of a safetensors file by seeking, for drives on which mapping is slow."""
    length = int.from_bytes(file.read(8), "little")
    entries = json.loads(file.read(length))

    def get(name: str) -> Tensor:
        entry = entries[name]
        start = entry["data_offsets"][0]
        tensor = torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]])
        if math.prod(entry["shape"]):  # a tensor without numbers has no memory to read into
            file.seek(8 + length + start)
            file.readinto(memoryview(tensor.view(-1).view(torch.uint8).numpy()))
        return tensor

    return get


def _load_pickled(file: Path, foreign: tuple[str, ...]) -> dict[str, Tensor]:
    stand_ins = torch.serialization.safe_globals([(_StandIn, name) for name in foreign]) if foreign else nullcontext()
    with file.open("rb") as start:
        is_zip = start.read(2) == b"PK"  # older files cannot be mapped
    try:
        with stand_ins:
            content = torch.load(file, map_location="cpu", weights_only=True, mmap=True if is_zip else None)
    except pickle.UnpicklingError as error:
        raise UserError(f"{file} holds more than weights ({', '.join(foreign)}): get it as .safetensors") from error
    return content.get("state_dict", content)


class _StandIn:
    """Takes the place of a class that a training checkpoint mentions and that no weight needs."""

    def __new__(cls, *_args: object) -> _StandIn:
        return super().__new__(cls)

    def __init__(self, *_args: object):
        pass

    def __setstate__(self, _state: object) -> None:
        pass


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], dtype: torch.dtype | None, metadata: Mapping[str, str]
) -> None:
    """Write a `.safetensors` file, or with any other suffix a torch file with a `state_dict`.

    Written under a temporary name, flushed to the disk, then renamed: a file of this name is always whole.

    Args:
        path: the file; its folder is made.
        tensors: what to write; floating-point ones are cast to `dtype` unless it is None.
        metadata: text pairs for a safetensors file; a torch file has no place for them.
    """
    with replacing(path) as temporary:
        if path.suffix == ".safetensors":
            _write_safetensors(temporary, tensors, dtype, metadata)
        else:
            torch.save({"state_dict": {name: _for_file(tensor, dtype) for name, tensor in tensors.items()}}, temporary)


def _write_safetensors(
    path: Path, tensors: Mapping[str, Tensor], dtype: torch.dtype | None, metadata: Mapping[str, str]
) -> None:
    """Tensor by tensor, so that no second copy of the model is in memory; the package's own writer makes one."""
    formats = {name: _dtype_for_file(tensor, dtype) for name, tensor in tensors.items()}
    # wide formats first, as the package does, so that every tensor lies at a multiple of its width
    order = sorted(tensors, key=lambda name: (-formats[name].itemsize, name))
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in order:
        start, end = end, end + tensors[name].numel() * formats[name].itemsize
        header[name] = {
            "dtype": DTYPE_NAMES[formats[name]], "shape": list(tensors[name].shape), "data_offsets": [start, end]
        }  # fmt: skip
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(_for_file(tensors[name], dtype).reshape(-1).view(torch.uint8).numpy().data)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`; what was written there (a file or a folder) takes its place at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        if temporary.is_dir():
            _replace_folder(temporary, path)
        else:
            _flush(temporary)
            temporary.chmod(_usual_mode(path.parent))
            temporary.replace(path)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        else:
            temporary.unlink(missing_ok=True)


def _usual_mode(folder: Path) -> int:
    """Permissions of a new file here: safetensors makes its own readable for the owner only."""
    probe = folder / f".{uuid.uuid4().hex[:8]}.tmp"
    probe.touch()
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    return mode


def _replace_folder(temporary: Path, path: Path) -> None:
    for file in temporary.rglob("*"):
        if file.is_file():
            _flush(file)
    old = temporary.with_suffix(".old")
    if path.exists():
        path.replace(old)
    temporary.replace(path)
    if old.exists():
        shutil.rmtree(old)


def _flush(file: Path) -> None:
    with file.open("r+b") as opened:
        os.fsync(opened.fileno())


def _for_file(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor.detach().to(device="cpu", dtype=_dtype_for_file(tensor, dtype)).contiguous()


def _dtype_for_file(tensor: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    return dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype


def _named(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{len(names)} tensor{'s' if len(names) > 1 else ''} ({', '.join(names[:3])}{more})"
