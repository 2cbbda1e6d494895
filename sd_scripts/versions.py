"""Which program and libraries a run was made with."""

from __future__ import annotations

import platform
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

UNKNOWN = "(unknown)"
LIBRARIES = (
    "torch",
    "accelerate",
    "diffusers",
    "transformers",
    "safetensors",
    "bitsandbytes",
    "gradio",
    "numpy",
    "pillow",
)
"""Those whose version can change a result or explain a fault."""


def version_lines() -> list[str]:
    """`name version`, a line each: Python, the system, then the libraries that are installed."""
    lines = [f"python {platform.python_version()}", f"system {platform.platform()}"]
    for name in LIBRARIES:
        try:
            lines.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return lines


@lru_cache(maxsize=1)
def commit() -> str:
    """The commit of this program when it runs from a git checkout, else "(unknown)"."""
    root = Path(__file__).resolve().parent.parent / ".git"
    try:
        head = (root / "HEAD").read_text(encoding="ascii").strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        loose = root / name
        if loose.is_file():
            return loose.read_text(encoding="ascii").strip()
        packed = (root / "packed-refs").read_text(encoding="ascii").splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), UNKNOWN)
    except (OSError, UnicodeDecodeError):
        return UNKNOWN
