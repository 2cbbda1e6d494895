"""The folders of the machine that the server runs on, for the page's own file dialog."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kohya_gui.paths import PROJECT_ROOT

MODEL_SUFFIXES = frozenset({".safetensors", ".ckpt", ".pt"})
MOST_ENTRIES = 2000


def list_for_page(asked: dict[str, str]) -> dict[str, Any]:
    """`list_folder` as the page calls it: with one object, {path, kind}."""
    return list_folder(str(asked["path"]), str(asked["kind"]))


def list_folder(path: str, kind: str) -> dict[str, Any]:
    """What a folder holds, for the dialog. A file's path shows the folder it lies in, a missing one the nearest above.

    Args:
        path: what stands in the field; empty for the project's folder.
        kind: what is looked for: "folder", "output_folder", "file" or "model".

    Returns:
        folder, parent (None at the top), entries [{name, path, folder}], message.
    """
    place = _nearest_folder(at_home(path.strip()) if path.strip() else PROJECT_ROOT)
    parent = str(place.parent) if place.parent != place else None
    answer = {"folder": str(place), "parent": parent, "entries": [], "drives": _drives(), "message": ""}
    try:
        entries = [entry for entry in os.scandir(place) if not entry.name.startswith(".")]
    except OSError as failure:
        return answer | {"message": f"cannot be opened: {failure.strerror or failure}"}
    folders = sorted((e for e in entries if _is_folder(e)), key=lambda e: e.name.casefold())
    files = sorted((e for e in entries if not _is_folder(e) and _fits(e.name, kind)), key=lambda e: e.name.casefold())
    listed = folders + files
    if len(listed) > MOST_ENTRIES:
        answer["message"] = f"{len(listed)} entries; the first {MOST_ENTRIES} are shown"
    return answer | {
        "entries": [{"name": e.name, "path": e.path, "folder": _is_folder(e)} for e in listed[:MOST_ENTRIES]]
    }


def at_home(text: str) -> Path:
    """A path whose "~" is the home folder, that of an unknown user left as it is."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - for an unknown user Path.expanduser raises


def _nearest_folder(path: Path) -> Path:
    place = path.absolute()
    while not os.path.isdir(place) and place.parent != place:  # noqa: PTH112 - for odd texts Path.is_dir raises
        place = place.parent
    return place


def _fits(name: str, kind: str) -> bool:
    if kind == "model":
        return Path(name).suffix.lower() in MODEL_SUFFIXES
    return kind == "file"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to somewhere that may not be looked at
        return False


def _drives() -> list[str]:
    """Drive letters on Windows, where "/" is not the top of everything."""
    return list(os.listdrives()) if hasattr(os, "listdrives") else []
