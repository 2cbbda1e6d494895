"""What lies in a folder, by names alone: pictures, captions, folders, and names that look odd."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from sd_scripts.data.words import shown
from sd_scripts.errors import UserError

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


class PictureFile(NamedTuple):
    """A picture file as its folder lists it."""

    name: str
    bytes: int
    mtime_ns: int


@dataclass(frozen=True)
class FolderListing:
    """What lies directly in one folder. Names are sorted."""

    path: Path
    pictures: tuple[PictureFile, ...]
    folders: tuple[Path, ...] = ()
    others: frozenset[str] = frozenset()  # names of all other files
    broken_links: tuple[Path, ...] = ()
    mtime_ns: int = 0

    def same_stems(self) -> list[tuple[str, ...]]:
        """Names of pictures that differ in the suffix alone; they would share captions and masks."""
        stems = [picture.name.rpartition(".")[0] for picture in self.pictures]
        if len(set(stems)) == len(stems):
            return []
        by_stem: dict[str, list[str]] = {}
        for picture, stem in zip(self.pictures, stems, strict=True):
            by_stem.setdefault(stem, []).append(picture.name)
        return [tuple(names) for names in by_stem.values() if len(names) > 1]

    def unread_pictures(self) -> list[str]:
        """Names of files that are pictures of a kind that is not read."""
        return self._others_with(UNREAD_SUFFIXES - picture_suffixes())

    def hidden_pictures(self) -> list[str]:
        """Names of pictures that are hidden; macOS leaves `._x.jpg` on foreign disks, which are none."""
        names = [name for name in self.others if name[0] == "." and name[1:2] != "_"]
        return sorted(name for name in names if _suffix(name) in picture_suffixes() and name.count(".") > 1)

    def blank_suffixes(self) -> list[str]:
        """Names of pictures whose suffix has blanks behind it, as "a.png "."""
        return sorted(
            name for name in self.others if name != name.strip() and _suffix(name.strip()) in picture_suffixes()
        )

    def _others_with(self, suffixes: set[str]) -> list[str]:
        return sorted(name for name in self.others if _suffix(name) in suffixes and name[0] != ".")

    @cached_property
    def others_by_lower_suffix(self) -> dict[str, str]:
        """Other files under their name with the suffix in lower case: `a.TXT` is a caption too."""
        split = ((name, *name.rpartition(".")) for name in sorted(self.others))
        return {f"{stem}{dot}{suffix.lower()}": name for name, stem, dot, suffix in split}


def _suffix(name: str) -> str:
    return f".{name.rpartition('.')[2].lower()}"


def list_folder(folder: Path) -> FolderListing:
    """What lies in the folder itself; links are followed once, hidden folders and files left out.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return _list_folder(folder)
    except OSError as problem:
        raise UserError(f"folder {shown(folder)} cannot be read: {problem.strerror or problem} - check it") from problem


def _list_folder(folder: Path) -> FolderListing:
    suffixes = {suffix[1:] for suffix in picture_suffixes()}
    pictures, folders, others, broken = [], [], [], []
    mtime_ns = folder.stat().st_mtime_ns
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            # Names are split by hand: a Path for each costs more than all the rest.
            stem, _, suffix = name.rpartition(".")
            is_picture = suffix.lower() in suffixes and stem and stem[0] != "."
            try:
                is_file = entry.is_file()
                is_folder = not is_file and entry.is_dir()
            except OSError:  # links in a circle
                is_file = is_folder = False
            if is_folder:
                folders += [] if name[0] == "." else [folder / name]
            elif not is_picture:
                others.append(name)
            elif is_file:
                status = entry.stat()
                pictures.append(PictureFile(name, status.st_size, status.st_mtime_ns))
            else:
                broken.append(folder / name)
    pictures.sort()
    folders.sort()
    return FolderListing(folder, tuple(pictures), tuple(folders), frozenset(others), tuple(sorted(broken)), mtime_ns)
