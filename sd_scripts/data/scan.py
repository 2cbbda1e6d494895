"""Which pictures and captions lie in a folder, and whether each picture can be used: found by names and headers alone.

Every picture's end is looked at too, so that a half-copied file is known before training starts. Small sets are decoded
in full within a time limit.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from sd_scripts.data.images import Header, PictureProblem, decode_fully, probe
from sd_scripts.errors import UserError

THREADS = 8  # header reads wait for the disk most of the time
DECODE_SECONDS = 1.0

# Pictures of kinds that are not read, so that their presence can be pointed out.
UNREAD_SUFFIXES = {".gif", ".tif", ".tiff", ".heic", ".heif", ".jxl", ".avif", ".psd", ".raw", ".dng"}
CAPTION_SUFFIXES = {".txt", ".caption", ".tags", ".tag", ".cap"}


@lru_cache
def picture_suffixes() -> frozenset[str]:
    """Lower-case suffixes of the files that count as pictures."""
    suffixes = {".png", ".jpg", ".jpeg", ".webp", ".bmp"}
    if importlib.util.find_spec("PIL._avif"):  # from Pillow 11.3 on
        suffixes.add(".avif")
    if importlib.util.find_spec("pillow_jxl"):
        suffixes.add(".jxl")
    return frozenset(suffixes)


@dataclass(frozen=True, slots=True)
class PictureFile:
    """A picture file as its folder lists it."""

    path: Path
    bytes: int
    mtime_ns: int


@dataclass(frozen=True)
class FolderListing:
    """What lies directly in one folder. Names are sorted."""

    path: Path
    pictures: tuple[PictureFile, ...]
    folders: tuple[Path, ...]
    others: frozenset[str]  # names of all other files
    broken_links: tuple[Path, ...] = ()

    def same_stems(self) -> list[tuple[str, ...]]:
        """Names of pictures that differ in the suffix alone; they would share captions and caches."""
        by_stem: dict[str, list[str]] = {}
        for picture in self.pictures:
            by_stem.setdefault(picture.path.stem, []).append(picture.path.name)
        return [tuple(names) for names in by_stem.values() if len(names) > 1]

    def unread_pictures(self) -> list[str]:
        """Names of files that are pictures of a kind that is not read."""
        return sorted(name for name in self.others if Path(name).suffix.lower() in UNREAD_SUFFIXES - picture_suffixes())


def list_folder(folder: Path) -> FolderListing:
    """What lies in the folder itself; links are followed once, hidden folders left out.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return _list_folder(folder)
    except OSError as problem:
        raise UserError(f"folder {folder} cannot be read: {problem.strerror or problem} - check it") from problem


def _list_folder(folder: Path) -> FolderListing:
    pictures, folders, others, broken = [], [], set(), []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                folders += [] if entry.name.startswith(".") else [Path(entry.path)]
            elif not _is_picture_name(entry.name):
                others.add(entry.name)
            elif entry.is_file():
                status = entry.stat()
                pictures.append(PictureFile(Path(entry.path), status.st_size, status.st_mtime_ns))
            else:
                broken.append(Path(entry.path))
    pictures.sort(key=lambda picture: picture.path.name)
    return FolderListing(folder, tuple(pictures), tuple(sorted(folders)), frozenset(others), tuple(sorted(broken)))


def _is_picture_name(name: str) -> bool:
    # "._x.jpg" is what macOS leaves on foreign disks. Names are split by hand: a Path for each costs more than the rest.
    stem, dot, suffix = name.rpartition(".")
    return bool(stem and dot) and f".{suffix.lower()}" in picture_suffixes() and not name.startswith("._")


@dataclass(frozen=True)
class Probed:
    """A picture's header, or what is wrong with it."""

    header: Header | None
    problem: str = ""


def probe_all(pictures: Sequence[PictureFile], deadline: float) -> list[Probed]:
    """Headers of the pictures in their order. Until the deadline (`time.monotonic`) they are also decoded in full."""
    with ThreadPoolExecutor(THREADS) as pool:
        found = _in_parallel(pool, _probe_one, pictures)
        readable = [picture for picture, probed in zip(pictures, found, strict=True) if probed.header is not None]
        damages = _in_parallel(pool, lambda picture: _damage(picture, deadline), readable)
    damaged = {picture: damage for picture, damage in zip(readable, damages, strict=True) if damage}
    return [
        Probed(None, damaged[picture]) if picture in damaged else probed
        for picture, probed in zip(pictures, found, strict=True)
    ]


T = TypeVar("T")


def _in_parallel(
    pool: ThreadPoolExecutor, function: Callable[[PictureFile], T], items: Sequence[PictureFile]
) -> list[T]:
    """`function` of each item; in parts, because a task for every item costs as much as the work itself."""
    size = max(1, min(64, len(items) // (4 * THREADS)))
    parts = [items[at : at + size] for at in range(0, len(items), size)]
    return [result for results in pool.map(lambda part: [function(item) for item in part], parts) for result in results]


def _probe_one(picture: PictureFile) -> Probed:
    try:
        return Probed(probe(picture.path))
    except PictureProblem as problem:
        return Probed(None, str(problem))


def _damage(picture: PictureFile, deadline: float) -> str:
    if time.monotonic() > deadline:
        return ""
    try:
        decode_fully(picture.path)
    except PictureProblem as problem:
        return str(problem)
    return ""
