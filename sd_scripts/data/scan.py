"""Which pictures and captions lie in a folder, and whether each picture can be used: found by names and headers alone.

Every picture's end is looked at too, so that a half-copied file is known before training starts. Small sets are decoded
in full within a time limit.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from sd_scripts.data.images import Header, PictureProblem, decode_fully, probe

THREADS = 8  # header reads wait for the disk most of the time
DECODE_SECONDS = 1.0

# Pictures of kinds that are not read, so that their presence can be pointed out.
UNREAD_SUFFIXES = {".gif", ".tif", ".tiff", ".heic", ".heif", ".jxl", ".psd", ".raw", ".dng"}
CAPTION_SUFFIXES = {".txt", ".caption", ".tags", ".tag", ".cap"}


@lru_cache
def picture_suffixes() -> frozenset[str]:
    """Lower-case suffixes of the files that count as pictures."""
    suffixes = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".avif"}
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
    """What lies in the folder itself; links are followed once. The folder must exist."""
    pictures, folders, others, broken = [], [], set(), []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                folders.append(Path(entry.path))
            elif Path(entry.name).suffix.lower() not in picture_suffixes() or entry.name.startswith("._"):
                others.add(entry.name)  # "._x.jpg" is what macOS leaves on foreign disks
            elif entry.is_file():
                status = entry.stat()
                pictures.append(PictureFile(Path(entry.path), status.st_size, status.st_mtime_ns))
            else:
                broken.append(Path(entry.path))
    pictures.sort(key=lambda picture: picture.path.name)
    return FolderListing(folder, tuple(pictures), tuple(sorted(folders)), frozenset(others), tuple(sorted(broken)))


@dataclass(frozen=True)
class Probed:
    """A picture's header, or what is wrong with it."""

    header: Header | None
    problem: str = ""


def probe_all(pictures: Sequence[PictureFile], deadline: float) -> list[Probed]:
    """Headers of the pictures in their order. Until the deadline (`time.monotonic`) they are also decoded in full."""
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(_probe_one, pictures, chunksize=64))
        damages = list(pool.map(partial(_damage, deadline=deadline), pictures, found))
    return [Probed(None, damage) if damage else probed for probed, damage in zip(found, damages, strict=True)]


def _probe_one(picture: PictureFile) -> Probed:
    try:
        return Probed(probe(picture.path))
    except PictureProblem as problem:
        return Probed(None, str(problem))


def _damage(picture: PictureFile, probed: Probed, *, deadline: float) -> str:
    if probed.header is None or time.monotonic() > deadline:
        return ""
    try:
        decode_fully(picture.path)
    except PictureProblem as problem:
        return str(problem)
    return ""


def name_some(items: Iterable[object], limit: int = 5) -> str:
    """A few names and the number of the others, for messages."""
    names = [str(item) for item in items]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
