"""Reading the small files in which settings stand, whatever a path leads to."""

from __future__ import annotations

import codecs
from pathlib import Path

from sd_scripts.errors import UserError

MAX_BYTES = 32 * 2**20  # settings are a few kB; image metadata of this size is read elsewhere
_JSON_SUFFIXES = (".json", ".jsonc", ".json5")


def read_bytes(path: Path) -> bytes:
    """The content of a settings file.

    Raises:
        UserError: missing, unreadable, no ordinary file (reading a pipe or a device may never end), too large.
    """
    try:
        size = path.stat().st_size
        if not (path.is_file() or path.is_dir()):
            raise UserError(f"{path}: cannot be read: it is no ordinary file")
        if size > MAX_BYTES:
            raise UserError(f"{path}: {size // 2**20} MB are too much for a settings file")
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path of the settings file") from None
    except (OSError, ValueError) as failure:  # ValueError: a name that no file can have
        raise UserError(f"{path}: cannot be read: {getattr(failure, 'strerror', None) or failure}") from None


def is_json(path: Path) -> bool:
    """By its name, or because it begins with a brace, which no TOML does."""
    if path.suffix.lower() in _JSON_SUFFIXES:
        return True
    try:
        if not path.is_file():  # said by the reader
            return False
        with path.open("rb") as file:
            return file.read(64).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")
    except (OSError, ValueError):
        return False
