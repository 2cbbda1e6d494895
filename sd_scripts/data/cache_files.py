"""Cached tensors on disk: many in one file, so that reading them costs no file system work and a folder stays a folder.

A part of a store is one writer's work: `<name>.data` holds the tensors one after another, `<name>.index` a record of
fixed size for each. A tensor is appended before its record, so a writer that is killed leaves nothing half valid. A
finished part gets a seal, its size and date: only parts without one, or changed since, have their checksums verified.
`<name>.files` says which content the picture files had that were looked at.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

HEAD = b"tensor cache  1\n"  # both files start with it
RECORD = np.dtype(
    [
        ("key", "V16"),  # what the tensor is made from, all of it
        ("source", "V16"),  # content of the picture or text alone
        ("offset", "<u8"),
        ("bytes", "<u8"),
        ("checksum", "<u4"),  # of the stored bytes
        ("dtype", "u1"),
        ("codec", "u1"),
        ("flags", "<u2"),
        ("shape", "<u4", 4),  # unused places are 0
        ("check", "<u4"),  # of the record's bytes before it
    ]
)
DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.bool, torch.int64, torch.int32)
PLAIN, PACKED = 0, 1  # codecs
LARGEST = 2_000_000_000  # bytes of a part: some file systems end at 4 GB
MOST_OPEN = 32


class CacheEntryProblem(Exception):
    """Why an entry cannot be read; the text names the file."""


@dataclass(frozen=True)
class FileContent:
    """A picture file as it was when its content was looked at."""

    name: str  # relative to the folder of the store
    bytes: int
    mtime_ns: int
    content: bytes


@dataclass(frozen=True)
class Part:
    """One writer's work, as far as it is whole."""

    data: Path
    records: np.ndarray  # of RECORD
    damaged: frozenset[bytes]  # keys of records that were dropped
    is_index_damaged: bool = False

    @property
    def is_damaged(self) -> bool:
        return self.is_index_damaged or bool(self.damaged)


class PartWriter:
    """Appends to a part of its own; files appear with the first entry. No file stays open."""

    def __init__(self, folder: Path, *, packs: bool = False):
        self.folder = folder
        self._packs = packs
        self._begin()

    def _begin(self) -> None:
        self._stem = f"{time.time_ns():016x}-{secrets.token_hex(4)}"
        self._end = 0  # of the data
        self._files: list[FileContent] = []

    @property
    def data(self) -> Path:
        return self.folder / f"{self._stem}.data"

    def put(self, key: bytes, source: bytes, tensor: Tensor, *, flags: int = 0, packs: bool | None = None) -> None:
        """Store a tensor of at most four dimensions, none of them empty."""
        content = _content(tensor)
        codec = PACKED if (self._packs if packs is None else packs) else PLAIN
        stored = pack(content, tensor.element_size()) if codec == PACKED else content
        self.put_stored(key, source, stored, DTYPES.index(tensor.dtype), codec, flags, tuple(tensor.shape))

    def put_stored(
        self, key: bytes, source: bytes, stored: bytes, dtype: int, codec: int, flags: int, shape: Sequence[int]
    ) -> None:
        """Store what is encoded already."""
        if self._end and self._end + len(stored) > LARGEST:
            self.close()
            self._begin()
        if not self._end:
            self.folder.mkdir(parents=True, exist_ok=True)
            _append(self.data, HEAD, 0)
            _append(self.data.with_suffix(".index"), HEAD, 0)
            self._end = len(HEAD)
            self._records = 0
        _append(self.data, stored, self._end)
        record = np.zeros(1, RECORD)
        record[0] = (key, source, self._end, len(stored), zlib.crc32(stored), dtype, codec, flags, (0, 0, 0, 0), 0)
        record["shape"][0, : len(shape)] = shape
        record["check"] = zlib.crc32(record.tobytes()[:-4])
        _append(self.data.with_suffix(".index"), record.tobytes(), len(HEAD) + self._records * RECORD.itemsize)
        self._end += len(stored)
        self._records += 1

    def know(self, file: FileContent) -> None:
        """Remember a picture's content."""
        self._files.append(file)
        if len(self._files) >= 100:
            self._write_files()

    def close(self) -> None:
        """The part is complete."""
        self._write_files()
        if self._end:
            for suffix in (".data", ".index"):
                with self.data.with_suffix(suffix).open("rb+") as file:
                    os.fsync(file.fileno())
            seal(self.data, self._records)

    def _write_files(self) -> None:
        if not self._files:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.data.with_suffix(".files").open("a", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{json.dumps([f.name, f.bytes, f.mtime_ns, f.content.hex()])}\n" for f in self._files)
        self._files.clear()


Check = Literal["none", "changed", "all"]


def read_part(data: Path, check: Check) -> Part:
    """A part without what is damaged in it.

    Args:
        check: whose checksums are verified: of parts without a seal or changed since, of all parts, of none.
    """
    try:
        records, is_damaged = _read_index(data.with_suffix(".index"))
        size = data.stat().st_size if data.exists() else 0
    except OSError as problem:
        raise CacheEntryProblem(
            f"{data.with_suffix('.index')} cannot be read: {problem.strerror or problem}"
        ) from problem
    whole = records["offset"] + records["bytes"] <= size
    sealed_records = _sealed_records(data)
    is_damaged |= sealed_records is not None and len(records) < sealed_records
    if check == "all" or (check == "changed" and sealed_records is None):
        whole &= _checksums_fit(data, records, whole)
    part = Part(data, records[whole], frozenset(_keys(records[~whole])), is_damaged)
    if check != "none" and (part.is_damaged or sealed_records is None):
        _mend(part)
    return part


def read_files(path: Path) -> Iterator[FileContent]:
    """What a part knows of pictures; a line that was cut off is left out."""
    lines = path.read_bytes().split(b"\n")
    try:
        rows = json.loads(b"[" + b",".join(lines[:-1]) + b"]")
    except ValueError:
        rows = list(_readable_rows(lines))
    for row in rows:
        try:
            name, size, mtime_ns, content = row
            yield FileContent(name, size, mtime_ns, bytes.fromhex(content))
        except (ValueError, TypeError):
            continue


def seal(data: Path, records: int) -> None:
    """Note that a part is whole as it is now."""
    status = data.stat()
    temporary = data.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps([status.st_size, status.st_mtime_ns, records]), encoding="ascii")
    temporary.replace(data.with_suffix(".seal"))


class Reader:
    """Reads entries of parts. Opens files when first asked, in every process its own, and keeps a few open."""

    def __init__(self, parts: Sequence[Path]):
        self.parts = tuple(parts)
        self._forget_parent()

    def _forget_parent(self) -> None:
        """A forked process shares neither the parent's lock, which may be held, nor its handles."""
        self._open: OrderedDict[int, io.FileIO] = OrderedDict()
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __getstate__(self) -> dict:
        return {"parts": self.parts}

    def __setstate__(self, state: dict) -> None:
        self.__init__(state["parts"])

    def read(self, part: int, record: np.void) -> Tensor:
        """The tensor of a record.

        Raises:
            CacheEntryProblem: the file is gone or damaged.
        """
        _, _, offset, size, checksum, dtype, codec, _, shape, _ = record.item()
        shape = tuple(int(side) for side in shape if side)
        tensor = torch.empty(shape, dtype=DTYPES[dtype])
        into = memoryview(tensor.flatten().view(torch.uint8).numpy())
        if codec == PLAIN:
            self._read(part, offset, into, checksum)
            return tensor
        packed = memoryview(bytearray(size))
        self._read(part, offset, packed, checksum)
        into[:] = unpack(packed, tensor.element_size())
        return tensor

    def read_stored(self, part: int, record: np.void) -> bytes:
        """The bytes of a record as they lie there."""
        stored = bytearray(int(record["bytes"]))
        self._read(part, int(record["offset"]), memoryview(stored), int(record["checksum"]))
        return bytes(stored)

    def close(self) -> None:
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()

    def _read(self, part: int, offset: int, into: memoryview, checksum: int) -> None:
        path = self.parts[part]
        if self._process != os.getpid():
            self._forget_parent()
        try:
            with self._lock:
                done = _read_at(self._handle(part), offset, into)
        except FileNotFoundError as problem:
            raise CacheEntryProblem(f"{path} has disappeared") from problem
        except OSError as problem:
            raise CacheEntryProblem(f"{path} cannot be read: {problem.strerror or problem}") from problem
        if done < len(into) or zlib.crc32(into) != checksum:
            raise CacheEntryProblem(f"{path} is damaged")

    def _handle(self, part: int) -> int:
        file = self._open.pop(part, None)
        if file is None:
            if len(self._open) >= MOST_OPEN:
                self._open.popitem(last=False)[1].close()
            file = io.FileIO(self.parts[part])
        self._open[part] = file
        return file.fileno()


def pack(content: bytes, width: int) -> bytes:
    """Compressed, first bytes of all numbers first: those of latents repeat, the last ones are noise."""
    grouped = np.frombuffer(content, np.uint8).reshape(-1, width).T.tobytes() if width > 1 else content
    return zlib.compress(grouped, 1)


def unpack(packed: bytes | memoryview, width: int) -> bytes:
    grouped = zlib.decompress(packed)
    return np.frombuffer(grouped, np.uint8).reshape(width, -1).T.tobytes() if width > 1 else grouped


def _keys(records: np.ndarray) -> list[bytes]:
    raw = records["key"].tobytes()
    return [raw[at : at + 16] for at in range(0, len(raw), 16)]


def _content(tensor: Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def _append(path: Path, content: bytes, at: int) -> None:
    """Write at the end, which lies at `at`; what a full disk cut off is taken back, so that the next try is not misled."""
    with path.open("ab") as file:
        try:
            file.write(content)
            file.flush()
        except OSError:
            os.truncate(path, at)
            raise


def _read_index(path: Path) -> tuple[np.ndarray, bool]:
    """The records that are whole, and whether there are others."""
    content = path.read_bytes()
    if content[: len(HEAD)] != HEAD:
        return np.zeros(0, RECORD), True
    body = content[len(HEAD) :]
    count = len(body) // RECORD.itemsize
    records = np.frombuffer(body, RECORD, count)
    size, checks = RECORD.itemsize, records["check"].tolist()
    view = memoryview(body)
    good = [zlib.crc32(view[at * size : (at + 1) * size - 4]) == checks[at] for at in range(count)]
    known = (records["dtype"] < len(DTYPES)) & (records["codec"] <= PACKED)
    good = np.array(good, bool) & known
    return records[good], count * size < len(body) or not good.all()


def _mend(part: Part) -> None:
    """Leave what is whole, and note that it is; nothing, where nothing is. Without the right to write all stays as it is."""
    index = part.data.with_suffix(".index")
    try:
        if part.is_damaged and not len(part.records):
            for path in (index, part.data, part.data.with_suffix(".seal")):
                path.unlink(missing_ok=True)
            return
        if part.is_damaged:
            temporary = part.data.with_suffix(f".{os.getpid()}.tmp")
            temporary.write_bytes(HEAD + part.records.tobytes())
            temporary.replace(index)
        seal(part.data, len(part.records))
    except OSError:
        return  # a folder for reading only: the damage is found, and said, again next time


def _sealed_records(data: Path) -> int | None:
    """Records that the seal speaks of; None if there is none or the part has changed since."""
    try:
        size, mtime_ns, records = json.loads(data.with_suffix(".seal").read_text(encoding="ascii"))
        status = data.stat()
    except (OSError, ValueError, TypeError):
        return None
    return records if (status.st_size, status.st_mtime_ns) == (size, mtime_ns) else None


def _checksums_fit(data: Path, records: np.ndarray, inside: np.ndarray) -> np.ndarray:
    fits = np.zeros(len(records), bool)
    if not inside.any():
        return fits
    with data.open("rb") as file:
        for at in np.flatnonzero(inside).tolist():
            file.seek(int(records["offset"][at]))
            fits[at] = zlib.crc32(file.read(int(records["bytes"][at]))) == records["checksum"][at]
    return fits


def _readable_rows(lines: Iterable[bytes]) -> Iterator[object]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue


if hasattr(os, "preadv"):

    def _read_at(handle: int, offset: int, into: memoryview) -> int:
        done = 0
        while done < len(into) and (count := os.preadv(handle, [into[done:]], offset + done)):
            done += count
        return done

else:  # Windows, where processes never share a handle; the caller holds a lock

    def _read_at(handle: int, offset: int, into: memoryview) -> int:
        os.lseek(handle, offset, os.SEEK_SET)
        done = 0
        while done < len(into) and (content := os.read(handle, len(into) - done)):
            into[done : done + len(content)] = content
            done += len(content)
        return done
