"""The end of a log, as a terminal would show it: progress bars overwrite themselves, colours are left out."""

from __future__ import annotations

import re
from pathlib import Path

TAIL_BYTES = 64_000
LONGEST_LINE = 1_000
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")


def tail(path: Path, lines: int = 300) -> str:
    """The last lines of a log. Reads a fixed amount however large the file is; a missing file is empty."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            content = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    if size > TAIL_BYTES:
        content = content[content.find("\n") + 1 :]
    return "\n".join([_shown(line) for line in content.replace("\r\n", "\n").split("\n")][-lines:]).rstrip()


def last_message(path: Path) -> str:
    """The last line that says something; what failed is said there."""
    shown = [line for line in tail(path, 50).split("\n") if line.strip()]
    return shown[-1].strip() if shown else ""


def _shown(line: str) -> str:
    """A line after its last carriage return that something follows, without colours, cut when endless."""
    pieces = [piece for piece in line.split("\r") if piece]
    line = _ESCAPES.sub("", pieces[-1] if pieces else "")
    return line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + " …"
