"""Whether a file will fit on the disk, asked before an older one is touched."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sd_scripts.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

SLACK = 2**20  # headers, metadata, the file system's own


class CannotSave(UserError):
    """A file could not be written; what was there before is whole."""


def require_space(path: Path, needed: int) -> None:
    """Raise CannotSave if the disk of a path has less room than a file there will need."""
    place = path.absolute()
    while not place.exists() and place.parent != place:
        place = place.parent
    try:
        free = shutil.disk_usage(place).free
    except OSError:  # a drive that does not tell: writing will show
        return
    if free < needed + SLACK:
        raise CannotSave(
            f"{path}: the disk is full: {size_text(needed + SLACK)} are needed and {size_text(free)} are free; make room, "
            "or choose another output_dir"
        )


def bytes_of(content: Any) -> int:
    """Bytes of all tensors in nested dictionaries and lists."""
    if hasattr(content, "element_size"):
        return content.numel() * content.element_size()
    if isinstance(content, Mapping):
        return sum(bytes_of(value) for value in content.values())
    if isinstance(content, (list, tuple)):
        return sum(bytes_of(value) for value in content)
    return 0


def bytes_when_saved(tensors: Iterable[Tensor], width: int | None) -> int:
    """Bytes of tensors in a file, where each number takes `width` bytes; None: as it is."""
    return sum(tensor.numel() * (width or tensor.element_size()) for tensor in tensors)


def size_text(size: int) -> str:
    """Bytes as people read them."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
