"""Whether a picture file ends where its format says it ends: finds half-copied files without decoding them."""

from __future__ import annotations

import os
from typing import BinaryIO

_TAIL = 64 * 1024  # cameras and editors append data after the end mark; it is looked for in so many last bytes


def missing_end(file: BinaryIO, format_name: str) -> str:
    """What is missing at the end of a file of Pillow's format name, in words; "" if nothing or not known."""
    match format_name:
        case "JPEG" | "MPO":
            return "" if b"\xff\xd9" in tail(file) else "is cut off: the end of the JPEG data is missing"
        case "PNG":
            return "" if b"IEND\xaeB`\x82" in tail(file) else "is cut off: the end of the PNG data is missing"
        case "WEBP":
            return _shorter_than(file, 4, "little", extra=8)
        case "BMP":
            return _shorter_than(file, 2, "little", extra=0)
    return ""


def tail(file: BinaryIO) -> bytes:
    """The last bytes of a file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL))
    return file.read()


def _shorter_than(file: BinaryIO, offset: int, order: str, extra: int) -> str:
    """Compares the file's size with the 4-byte size that its header states at `offset`."""
    size = file.seek(0, os.SEEK_END)
    file.seek(offset)
    stated = int.from_bytes(file.read(4), order) + extra
    return f"is cut off: {size:,} of {stated:,} bytes are there" if size < stated else ""
