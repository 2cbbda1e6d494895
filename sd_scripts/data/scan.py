"""Which pictures and captions lie in a folder, and whether each picture can be used: found by names and headers alone.

Every picture's end is looked at too, so that a half-copied file is known before training starts. Small sets are decoded
in full within a time limit. What was found is kept in an index, so that the next start looks only at what changed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from sd_scripts.data.cache_keys import content_hash
from sd_scripts.data.captions import caption_lines, decode_caption
from sd_scripts.data.images import Header, PictureProblem, decode_fully, probe
from sd_scripts.data.listing import FolderListing, PictureFile, list_folder
from sd_scripts.data.parallel import in_parts
from sd_scripts.data.picture_headers import read_header
from sd_scripts.data.scan_index import FolderIndex, KnownPicture, load_index, save_index
from sd_scripts.data.words import shown

logger = logging.getLogger(__name__)

PROGRESS_SECONDS = 5.0  # between two messages
LARGE_PIXELS = 80_000_000  # larger pictures are looked at closely: Pillow refuses the largest
DECODE_SECONDS = 1.0
DECODERS = 8  # threads
DECODE_MOST = 1000  # pictures; larger sets are not decoded to the end before the cache does it


class FolderScan:
    """A folder's listing, the headers of its pictures and, on demand, its texts."""

    def __init__(self, folder: Path, *, trusts_index: bool = False):
        """
        Args:
            trusts_index: do not look at the files of a folder whose list of names has not changed.
        """
        self._index = load_index(folder)
        self._prefix = os.path.join(folder, "")  # noqa: PTH118 - joined 100,000 times
        self.is_trusted = trusts_index and self._is_unchanged(folder)
        self.listing = self._listing_from_index(folder) if self.is_trusted else list_folder(folder)
        self.was_indexed = self.is_trusted
        self.problems: dict[str, str] = {}  # what is wrong with pictures that cannot be used, by name
        self._looked_up: dict[str, KnownPicture] = {}
        self._is_changed = False

    def look(self, deadline: float) -> None:
        """Read the headers of all pictures; small sets are decoded in full until the deadline (`time.monotonic`)."""
        if self.is_trusted:
            self._looked_up = self._index.pictures
            return
        known, found, new = self._index.pictures, {}, []
        for picture in self.listing.pictures:
            entry = known.get(picture.name)
            if entry is not None and (entry[0] == picture[1] and entry[1] == picture[2]):
                found[picture.name] = entry
            else:
                new.append(picture)
        self.was_indexed = not new and bool(found)
        for picture, result in zip(new, self._probe_all(new), strict=True):
            self._index.contents.pop(picture.name, None)
            self._is_changed = True
            if isinstance(result, str):
                self.problems[picture.name] = result
            else:
                found[picture.name] = result
        self._looked_up = found
        if len(found) <= DECODE_MOST:
            self._decode(deadline)

    @cached_property
    def headers(self) -> dict[str, Header]:
        """Headers of the pictures that can be used, by name."""
        kinds = {known[2:5] for known in self._looked_up.values()}
        headers = {kind: Header(kind[:2], bool(kind[2])) for kind in kinds}
        return {name: headers[known[2:5]] for name, known in self._looked_up.items()}

    def lines(self, name: str) -> tuple[str, ...]:
        """The lines of a caption file.

        Raises:
            UserError: it is not text.
            OSError: it cannot be read.
        """
        known = self._index.texts.get(name)
        if not (self.is_trusted and known):
            path = self._prefix + name
            status = os.stat(path)  # noqa: PTH116 - of 100,000 files
            if known is None or known[0] != status.st_size or known[1] != status.st_mtime_ns:
                known = (status.st_size, status.st_mtime_ns, _read_text(path))
                self._index.texts[name] = known
                self._is_changed = True
        text = known[2]
        return tuple(text.split("\n")) if text else ()

    def content(self, name: str) -> str:
        """A hash of a picture's bytes, made only if it is not known.

        Raises:
            OSError: it cannot be read.
        """
        contents = self._index.contents
        if name not in contents:
            contents[name] = content_hash(self.listing.path / name).hex()
            self._is_changed = True
        return contents[name]

    def close(self) -> None:
        """Keep what was found for the next start."""
        listing = self.listing
        is_same = (
            listing.mtime_ns == self._index.folder_mtime_ns and self._index.pictures.keys() == self._looked_up.keys()
        )
        if is_same and not self._is_changed:
            return
        names = {picture.name for picture in listing.pictures}
        save_index(
            listing.path,
            FolderIndex(
                0 if self.problems else listing.mtime_ns,  # bad pictures are looked at each time
                self._looked_up,
                {name: text for name, text in self._index.texts.items() if name in listing.others},
                tuple(listing.others),
                tuple(folder.name for folder in listing.folders),
                tuple(link.name for link in listing.broken_links),
                {name: content for name, content in self._index.contents.items() if name in names},
            ),
        )

    def _is_unchanged(self, folder: Path) -> bool:
        try:
            return self._index.folder_mtime_ns == folder.stat().st_mtime_ns
        except OSError:
            return False

    def _listing_from_index(self, folder: Path) -> FolderListing:
        index = self._index
        return FolderListing(
            folder,
            tuple(PictureFile(name, known[0], known[1]) for name, known in index.pictures.items()),
            tuple(folder / name for name in index.folders),
            frozenset(index.others),
            tuple(folder / name for name in index.broken),
            index.folder_mtime_ns,
        )

    def _probe_all(self, pictures: Sequence[PictureFile]) -> list[KnownPicture | str]:
        results: list[KnownPicture | str] = []
        said = time.monotonic()
        for part in in_parts(self._probe, pictures):
            results += part
            if time.monotonic() - said > PROGRESS_SECONDS:
                said = time.monotonic()
                folder = shown(self.listing.path)
                logger.info("%s: looked at %d of %d pictures", folder, len(results), len(pictures))
        return results

    def _probe(self, picture: PictureFile) -> KnownPicture | str:
        """The picture's header, or what is wrong with it."""
        name, size, mtime_ns = picture
        path = self._prefix + name
        try:
            plain = read_header(path, size)
        except OSError as problem:
            return f"cannot be opened: {problem.strerror or problem}"
        if plain is not None and plain[0] * plain[1] < LARGE_PIXELS:
            return (size, mtime_ns, *plain, 0)
        try:
            header = probe(Path(path))
        except PictureProblem as problem:
            return str(problem)
        return (size, mtime_ns, *header.size, header.has_alpha, 0)

    def _decode(self, deadline: float) -> None:
        new = [name for name, known in self._looked_up.items() if not known[5]]
        if not new or time.monotonic() > deadline:
            return
        with ThreadPoolExecutor(DECODERS) as pool:
            damages = list(pool.map(lambda name: _damage(Path(self._prefix + name), deadline), new))
        for name, damage in zip(new, damages, strict=True):
            if damage is None:  # no time left
                continue
            self._is_changed = True
            if damage:
                self.problems[name] = damage
                del self._looked_up[name]
            else:
                self._looked_up[name] = (*self._looked_up[name][:5], 1)


def _damage(path: Path, deadline: float) -> str | None:
    """What is damaged in a picture, "" if nothing; None if there was no time to look."""
    if time.monotonic() > deadline:
        return None
    try:
        decode_fully(path)
    except PictureProblem as problem:
        return str(problem)
    return ""


_OPEN = os.O_RDONLY | getattr(os, "O_BINARY", 0)


def _read_text(path: str) -> str:
    """The lines of a caption file that hold text, without blanks around them, as one text."""
    file = os.open(path, _OPEN)
    try:
        data = os.read(file, 1 << 20)
        while len(data) and len(data) % (1 << 20) == 0 and (more := os.read(file, 1 << 20)):
            data += more
    finally:
        os.close(file)
    return "\n".join(caption_lines(decode_caption(data, path)))


class Scanner:
    """Looks at folders, at each once."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + DECODE_SECONDS
        self._scans: dict[Path, FolderScan] = {}

    def folder(self, path: Path, *, trusts_index: bool = False) -> FolderScan:
        """The folder with the headers of its pictures.

        Args:
            trusts_index: do not look at the files of a folder whose list of names has not changed.

        Raises:
            UserError: it cannot be read.
        """
        if path not in self._scans:
            scan = FolderScan(path, trusts_index=trusts_index)
            scan.look(self._deadline)
            self._scans[path] = scan
        return self._scans[path]

    def content(self, path: Path) -> str:
        """A hash of a picture's bytes, remembered in the index of its folder.

        Raises:
            OSError: it cannot be read.
        """
        return self.folder(path.parent).content(path.name)

    @property
    def was_indexed(self) -> bool:
        """Whether nothing had to be read anew."""
        return bool(self._scans) and all(scan.was_indexed for scan in self._scans.values())

    def close(self) -> None:
        """Keep what was found for the next start."""
        for scan in self._scans.values():
            scan.close()
