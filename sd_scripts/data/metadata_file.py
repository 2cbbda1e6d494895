"""Metadata files: one JSON (or JSONL) file with the captions of many pictures, as the captioning tools write it.

    {"cats/a.png": {"caption": "a cat", "tags": "red, blue", "image_size": [640, 480]}, "b": {"tags": "green"}}

A key is a picture's path, absolute or relative to the picture folder, with or without suffix.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sd_scripts.data.captions import caption_lines
from sd_scripts.data.words import counted, name_some, shown
from sd_scripts.errors import UserError
from sd_scripts.options.dataset import Captions
from sd_scripts.options.problems import Problem, error, note, warning

MOST_NAMED = 20  # wrong entries that get a message of their own


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of a metadata file. `size` is what it says of the picture's size."""

    key: str
    caption: str
    tags: str
    size: tuple[int, int] | None


def read_records(path: Path, option: str) -> tuple[list[Record], list[Problem]]:
    """The entries of a metadata file in its order, and what is wrong with others.

    Raises:
        UserError: it cannot be read, or is not JSON.
    """
    records, problems = [], []
    for where, key, values in _items(path):
        wrong = _wrong(key, values)
        if wrong:
            problems.append(error(option, f"{shown(path)}: {where}: {wrong[0]}", wrong[1]))
        else:
            caption, tags = ((values.get(name) or "").replace("\r\n", "\n").strip() for name in ("caption", "tags"))
            records.append(Record(key, caption, tags, _size(values)))
    if len(problems) > MOST_NAMED:
        text = f"{shown(path)}: {len(problems) - MOST_NAMED} more entries like these"
        problems[MOST_NAMED:] = [error(option, text, "mend them all")]
    return records, problems


def record_lines(record: Record, options: Captions) -> tuple[str, ...]:
    """The caption lines of an entry: caption and tags joined; with wildcards the tags belong to every line."""
    separator = options.caption_separator
    tags = separator.join(caption_lines(record.tags)) if options.enable_wildcard else record.tags
    if not options.enable_wildcard:
        return caption_lines(separator.join(part for part in (record.caption, tags) if part))
    lines = caption_lines(record.caption)
    if not tags:
        return lines
    return tuple(f"{line}{separator}{tags}" for line in lines) or (tags,)


def count_tags(records: list[Record], separator: str) -> dict[str, int]:
    """How many entries have each tag; what stands in captions is not counted."""
    counts: Counter[str] = Counter()
    for record in records:
        counts.update(list(dict.fromkeys(tag.strip().lower() for tag in record.tags.split(separator) if tag.strip())))
    return dict(counts)


class Finder:
    """Finds the pictures that keys name."""

    def __init__(self, folder: Path, names_in: Callable[[str], Collection[str]]):
        """
        Args:
            folder: holds the pictures of relative keys.
            names_in: names of the pictures in a folder; none if it does not exist.
        """
        self._base = str(folder)
        self._names_in = names_in
        self._normal: dict[str, str] = {}  # folders as they are written → without . and ..
        self._stems: dict[str, dict[str, str]] = {}  # of each folder that a name without suffix was looked for in

    def find(self, key: str) -> tuple[str, str] | None:
        """Folder and name of a key's picture, None if there is none."""
        for text in (key, key.replace("\\", "/")) if "\\" in key else (key,):  # keys written on Windows
            folder, name = os.path.split(os.path.join(self._base, text))  # noqa: PTH118 - 100,000 keys
            if not name:
                continue
            folder = self._normal.get(folder) or self._normal.setdefault(folder, os.path.normpath(folder))
            if name in self._names_in(folder):
                return folder, name
            stems = self._by_stem(folder)
            if found := stems.get(name) or stems.get(_stem(name)):
                return folder, found
        return None

    def _by_stem(self, folder: str) -> dict[str, str]:
        """Pictures of a folder by their name without suffix; of several the first in the alphabet."""
        if folder not in self._stems:
            self._stems[folder] = {_stem(name): name for name in sorted(self._names_in(folder), reverse=True)}
        return self._stems[folder]


def check_sizes(found: Sequence[tuple[Record, tuple[int, int] | None]], path: Path) -> list[Problem]:
    """Entries that state another size than their picture has (None: it cannot be read)."""
    others = [record.key for record, size in found if record.size and size and record.size != size]
    if not others:
        return []
    text = f"{shown(path)}: image_size is wrong for {counted(len(others), 'picture')}: {name_some(others)}"
    return [note("image_size", text, "the size that the picture has is used")]


def missing_captions(keys: Sequence[str], total: int, path: Path, option: str) -> list[Problem]:
    """Entries without any text."""
    if not keys:
        return []
    text = f"{shown(path)}: neither caption nor tags in {len(keys)} of {total} entries: {name_some(keys)}"
    return [warning(option, text, "write captions; without, they are trained with an empty one")]


def missing_pictures(keys: list[str], total: int, path: Path, *, are_skipped: bool, option: str) -> list[Problem]:
    """Entries without a picture."""
    if not keys:
        return []
    text = f"{shown(path)}: no picture for {len(keys)} of {total} entries: {name_some(keys)}"
    if are_skipped:
        return [warning(option, text, "they are left out")]
    return [error(option, text, 'mend image_dir or the keys, or set on_bad_image = "skip" to leave them out')]


def unlisted_pictures(names: list[str], path: Path, option: str) -> list[Problem]:
    """Pictures beside the listed ones that have no entry."""
    if not names:
        return []
    text = f"{counted(len(names), 'picture')} without an entry in {shown(path)} not used: {name_some(names)}"
    return [note(option, text, "add entries for them to use them")]


def _stem(name: str) -> str:
    return os.path.splitext(name)[0]  # noqa: PTH122


def _items(path: Path) -> Iterator[tuple[str, Any, Any]]:
    """(where it stands, key, values) of every entry."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as failure:
        raise UserError(f"{shown(path)} cannot be read: {failure.strerror or failure} - check the path") from failure
    except UnicodeDecodeError as failure:
        raise UserError(f"{shown(path)} is not UTF-8 text: save it as UTF-8") from failure
    if path.suffix.lower() == ".jsonl":
        yield from _lines(path, text)
        return
    content = _parse(path, text)
    if not isinstance(content, dict):
        raise UserError(f"{shown(path)} holds a {type(content).__name__}, not an object with an entry for each picture")
    for key, values in content.items():
        yield f"entry {shown(repr(key))}", key, values


def _lines(path: Path, text: str) -> Iterator[tuple[str, Any, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            values = _parse(path, line, f", line {number}")
            key = values.get("image_path") if isinstance(values, dict) else None
            yield f"line {number}", key, values


def _parse(path: Path, text: str, where: str = "") -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as failure:
        raise UserError(
            f"{shown(path)}{where}: not valid JSON: {failure} - mend it, or write the file anew"
        ) from failure


def _wrong(key: Any, values: Any) -> tuple[str, str] | None:
    """What is wrong with an entry, and the way out."""
    if not isinstance(values, dict):
        return f"holds a {_kind(values)}", 'write an object such as {"caption": "a cat"}'
    if not isinstance(key, str) or not key or "\0" in key:
        return "image_path is missing or no text", "write the picture's path there"
    for name in ("caption", "tags"):
        value = values.get(name)
        if value is not None and not isinstance(value, str):
            return f"{name} holds a {_kind(value)}", "write it as text, tags separated by commas"
    for name in ("image_size", "train_resolution"):
        if values.get(name) is not None and not _is_size(values[name]):
            return f"{name} is {shown(repr(values[name])[:60])}", "write two whole numbers above 0, [width, height]"
    return None


def _kind(value: Any) -> str:
    names = {dict: "object", list: "list", bool: "true or false", int: "number", float: "number", str: "text"}
    return names.get(type(value), "null")


def _is_size(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(side) is int and side > 0 for side in value)


def _size(values: Mapping[str, Any]) -> tuple[int, int] | None:
    """`width` and `height` win over `image_size`, as newer tools write both."""
    sides = [values.get("width"), values.get("height")]
    if _is_size(sides):
        return sides[0], sides[1]
    return tuple(values["image_size"]) if values.get("image_size") else None
