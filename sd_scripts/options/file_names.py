"""Names that users give to files, on any system."""

from __future__ import annotations

import os
import re

LONGEST = 200  # bytes; file systems take 255, of which suffixes such as "-step00001000-state" need some
_FORBIDDEN = re.compile(r'[\x00-\x1f<>:"/\\|?*]')
_WINDOWS_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)\s*(\..*)?", re.IGNORECASE)


def why_no_file_name(name: str, *, on_windows: bool = os.name == "nt") -> tuple[str, str] | None:
    """Why no file can be named so, and what to do about it; None if it can."""
    if _FORBIDDEN.search(name) or name.strip() in (".", ".."):
        return f"{name[:LONGEST]!r} cannot be a file name", 'leave out / \\ : * ? " < > |, line breaks and tabs'
    if on_windows and _WINDOWS_DEVICES.fullmatch(name.strip()):
        return f"Windows takes no file of the name {name!r}", "choose another one"
    if (length := len(name.encode("utf-8", "surrogatepass"))) > LONGEST:
        return f"a name of {length} bytes is too long for a file", f"take at most {LONGEST}"
    return None
