"""What a folder's pictures and captions were found to be, kept from one start to the next.

One JSON file a folder, in the user's cache folder. What it says of a file counts only while the file's size and time are
the same, so it can be deleted, damaged or missing at any time: the folder is then looked through again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sd_scripts.models.hashes import cache_file

logger = logging.getLogger(__name__)

VERSION = 1
# A file written in the same moment as it is looked at may change again without its time changing (FAT counts in 2 s).
SETTLED_NS = 2_000_000_000
# Many names in one text are read several times faster than each on its own.
BETWEEN_NAMES = "/"  # is in no name
BETWEEN_TEXTS = "\n\n"  # is in no caption: their lines hold text
MOST_INDEXES = 300  # beyond so many folders the index that was not written for the longest time goes


# Plain tuples: a hundred thousand of them are read from a file in one go, several times faster than objects.
# Of a usable picture: bytes, mtime_ns, upright width and height, has transparency, was decoded to the end without damage.
KnownPicture = tuple[int, int, int, int, int, int]
# Of a caption file: bytes, mtime_ns, text.
KnownText = tuple[int, int, str]


@dataclass
class FolderIndex:
    """All that is known of one folder. `folder_mtime_ns` 0: its list of files must be read again."""

    folder_mtime_ns: int = 0
    pictures: dict[str, KnownPicture] = field(default_factory=dict)
    texts: dict[str, KnownText] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    contents: dict[str, str] = field(default_factory=dict)  # hashes of pictures, where they were asked for


def index_path(folder: Path) -> Path:
    """Where a folder's index lies."""
    name = hashlib.blake2b(os.fsencode(folder.absolute()), digest_size=16).hexdigest()
    return cache_file().with_name("pictures") / f"{name}.json"


def load_index(folder: Path) -> FolderIndex:
    """The folder's index; an empty one where there is none that can be read."""
    try:
        return _from_json(json.loads(index_path(folder).read_bytes()))
    except FileNotFoundError:
        return FolderIndex()
    except (OSError, ValueError, KeyError, TypeError) as problem:
        logger.debug("index of %s is not used: %s", folder, problem)
        return FolderIndex()


def save_index(folder: Path, index: FolderIndex) -> None:
    """Keep an index, without files that changed just now. Without a writable cache folder there is none."""
    path = index_path(folder)
    temporary = path.with_name(f"{path.stem}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(_as_json(index)), encoding="utf-8")
        temporary.replace(path)
        _forget_oldest(path.parent)
    except OSError as problem:
        logger.debug("index of %s is not kept: %s", folder, problem)
        with suppress(OSError):
            temporary.unlink()


def _forget_oldest(place: Path) -> None:
    with os.scandir(place) as entries:
        indexes = [(entry.stat().st_mtime_ns, entry.path) for entry in entries if entry.name.endswith(".json")]
    for _, path in sorted(indexes)[:-MOST_INDEXES]:
        Path(path).unlink()


def _as_json(index: FolderIndex) -> dict[str, Any]:
    """Column by column, which is read and written several times faster than row by row."""
    settled = time.time_ns() - SETTLED_NS
    pictures = {name: known for name, known in sorted(index.pictures.items()) if known[1] < settled}
    texts = {name: known for name, known in index.texts.items() if known[1] < settled}
    is_whole = len(pictures) == len(index.pictures) and len(texts) == len(index.texts)
    return {
        "version": VERSION,
        "folder_mtime_ns": index.folder_mtime_ns if is_whole and index.folder_mtime_ns < settled else 0,
        "pictures": _columns(pictures, 6),
        "texts": _columns({name: known[:2] for name, known in texts.items()}, 2),
        "lines": BETWEEN_TEXTS.join(known[2] for known in texts.values()),
        "others": BETWEEN_NAMES.join(index.others),
        "folders": BETWEEN_NAMES.join(index.folders),
        "broken": BETWEEN_NAMES.join(index.broken),
        "contents": {name: known for name, known in index.contents.items() if name in pictures},
    }


def _columns(rows: Mapping[str, tuple[int, ...]], width: int) -> list[Any]:
    """All names, then the numbers column by column."""
    columns = zip(*rows.values(), strict=True) if rows else [()] * width
    return [BETWEEN_NAMES.join(rows), *columns]


def _from_json(content: Mapping[str, Any]) -> FolderIndex:
    if content["version"] != VERSION:
        raise ValueError("another version")
    names, *columns = content["pictures"]
    text_names, *text_columns = content["texts"]
    texts = content["lines"].split(BETWEEN_TEXTS) if text_names else []
    return FolderIndex(
        content["folder_mtime_ns"],
        dict(zip(_names(names), zip(*columns, strict=True), strict=True)),
        dict(zip(_names(text_names), zip(*text_columns, texts, strict=True), strict=True)),
        _names(content["others"]),
        _names(content["folders"]),
        _names(content["broken"]),
        content["contents"],
    )


def _names(joined: str) -> tuple[str, ...]:
    return tuple(joined.split(BETWEEN_NAMES)) if joined else ()
