"""All cached tensors that lie in the folders of a run: found by key, whichever folder and part they are in.

Each picture folder has its store, a hidden folder beside the pictures. It moves with them and can be deleted at any time.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch import Tensor

from sd_scripts.data.cache_files import (
    RECORD,
    Check,
    FileContent,
    PartWriter,
    Reader,
    read_files,
    read_part,
)
from sd_scripts.errors import UserError

STORE = ".training_cache"
SUFFIXES = (".data", ".index", ".files", ".seal", ".tmp")


def store_folder(pictures: Path) -> Path:
    """Where the cache of a picture folder lies."""
    return pictures / STORE


class Store:
    """What the stores of some picture folders hold. Read at once; what is added later is seen after `load`."""

    def __init__(self, folders: Iterable[Path]):
        self.folders = tuple(dict.fromkeys(folders))
        self.damaged_keys: set[bytes] = set()
        self.damaged_parts: list[Path] = []
        self._clear()

    def _clear(self) -> None:
        self.records = np.zeros(0, RECORD)
        self.part_of = np.zeros(0, np.int32)
        self.reader = Reader(())
        self._rows: dict[bytes, int] = {}
        self._files: dict[Path, dict[str, FileContent]] = {}

    def load(self, check: Check = "changed") -> Store:
        """Read all indexes. Where entries are damaged they are dropped, and `damaged_keys` and `damaged_parts` say so."""
        self.reader.close()
        self._clear()
        parts, records = [], []
        for folder in self.folders:
            known = self._files[folder] = {}
            if not store_folder(folder).is_dir():
                continue
            for path in sorted(store_folder(folder).glob("*.files")):
                known.update((file.name, file) for file in read_files(path))
            for path in sorted(store_folder(folder).glob("*.index")):
                part = read_part(path.with_suffix(".data"), check)
                self.damaged_keys |= part.damaged
                if part.is_damaged:
                    self.damaged_parts.append(part.data)
                parts.append(part.data)
                records.append(part.records)
        self.reader = Reader(parts)
        if records:
            self.records = np.concatenate(records)
            self.part_of = np.repeat(np.arange(len(parts), dtype=np.int32), [len(some) for some in records])
        keys = self.records["key"].tobytes()
        self._rows = {keys[at * 16 : at * 16 + 16]: at for at in range(len(self.records))}
        return self

    def row(self, key: bytes | None) -> int | None:
        """Where the tensor of a key is; None if it is not there."""
        return None if key is None else self._rows.get(key)

    def __contains__(self, key: bytes) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, row: int) -> Tensor:
        """The tensor of a row."""
        return self.reader.read(int(self.part_of[row]), self.records[row])

    def content(self, folder: Path, path: Path, size: int, mtime_ns: int, *, trusts: bool = False) -> bytes | None:
        """Content of a picture file if it was looked at since it last changed; with `trusts`, whenever that was."""
        file = self._files[folder].get(relative_name(folder, path))
        if file is None or not (trusts or (file.bytes, file.mtime_ns) == (size, mtime_ns)):
            return None
        return file.content

    def purge(self, sources: set[bytes]) -> Purged:
        """Drop what comes from no picture or caption of these, and write the rest of each folder as one part.

        Raises:
            UserError: files cannot be written or removed.
        """
        purged = Purged()
        for folder in self.folders:
            if store_folder(folder).is_dir():
                try:
                    self._purge_folder(folder, sources, purged)
                except OSError as problem:
                    text = f"cannot purge {store_folder(folder)}: {problem.strerror or problem}"
                    raise UserError(f"{text} - end the runs that use it") from problem
        self.load()
        return purged

    def _purge_folder(self, folder: Path, sources: set[bytes], purged: Purged) -> None:
        place = store_folder(folder)
        rows = [row for row in sorted(self._rows.values()) if self.reader.parts[self.part_of[row]].parent == place]
        kept = [row for row in rows if self.records[row]["source"].tobytes() in sources]
        purged.kept += len(kept)
        purged.dropped += len(rows) - len(kept)
        old = [path for path in place.iterdir() if path.suffix in SUFFIXES]
        before = sum(path.stat().st_size for path in old)
        if len(kept) == len(rows) and sum(path.suffix == ".index" for path in old) < 2:
            return
        writer = PartWriter(place)
        for row in kept:
            key, source, _, _, _, dtype, codec, flags, shape, _ = self.records[row].item()
            stored = self.reader.read_stored(int(self.part_of[row]), self.records[row])
            writer.put_stored(key, source, stored, dtype, codec, flags, [side for side in shape.tolist() if side])
        for file in self._files[folder].values():
            if file.content in sources and (folder / file.name).exists():
                writer.know(file)
        writer.close()
        self.reader.close()
        for path in sorted(old, key=lambda path: path.suffix != ".index"):  # without its index a part is not there
            path.unlink(missing_ok=True)
        left = list(place.iterdir())
        purged.bytes_freed += before - sum(path.stat().st_size for path in left)
        if not left:
            place.rmdir()


@dataclass
class Purged:
    """What a purge did."""

    kept: int = 0
    dropped: int = 0
    bytes_freed: int = 0


@dataclass
class Writers:
    """One process's writers, a part in each picture folder where something is added."""

    packs: bool = False
    _writers: dict[Path, PartWriter] = field(default_factory=dict)

    def of(self, folder: Path) -> PartWriter:
        """The writer for a picture folder's store."""
        if folder not in self._writers:
            self._writers[folder] = PartWriter(store_folder(folder), packs=self.packs)
        return self._writers[folder]

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


def relative_name(folder: Path, path: Path) -> str:
    """A picture's name as the store of its folder has it."""
    return path.as_posix().removeprefix(f"{folder.as_posix()}/")


@dataclass(frozen=True)
class StoredRows:
    """Some entries of a store by number, small enough to travel to loader processes."""

    records: np.ndarray
    part_of: np.ndarray
    reader: Reader

    @classmethod
    def of(cls, store: Store, rows: Sequence[int]) -> StoredRows:
        chosen = np.array(rows, np.int64)
        used, part_of = np.unique(store.part_of[chosen], return_inverse=True)
        reader = Reader([store.reader.parts[part] for part in used.tolist()])
        return cls(store.records[chosen], part_of.astype(np.int32), reader)

    def read(self, at: int) -> Tensor:
        return self.reader.read(int(self.part_of[at]), self.records[at])


@contextmanager
def first_process_first(rank: int, wait_for_all: Callable[[], None]) -> Iterator[None]:
    """Within it the first process goes ahead and the others follow: what it mends they need not."""
    if rank:
        wait_for_all()
    yield
    if not rank:
        wait_for_all()


@contextmanager
def writing_problems(folders: Sequence[Path], option: str) -> Iterator[None]:
    """Turns what goes wrong in writing into words.

    Args:
        option: the one that asked for it.
    """
    try:
        yield
    except OSError as problem:
        place = store_folder(folders[0])
        if problem.errno == errno.ENOSPC:
            text = f"no space left to write {place} - free some, or set {option} = false"
        else:
            text = (
                f"cannot write {place}: {problem.strerror or problem} - make the folder writable,"
                f" or set {option} = false to keep the cache in memory"
            )
        raise UserError(text) from problem
