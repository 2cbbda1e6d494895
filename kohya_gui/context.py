"""What the tabs of one server share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kohya_gui.board import Board
from kohya_gui.live import ViewCache
from kohya_gui.pictures import PictureShelf
from kohya_gui.presets import PresetFolder
from kohya_gui.runs import RunManager


@dataclass
class Context:
    """Server-wide objects; a page keeps nothing that matters."""

    manager: RunManager
    presets: PresetFolder
    shelf: PictureShelf
    start_values: dict[str, Any]
    start_notes: tuple[str, ...] = ()
    views: ViewCache = field(default_factory=ViewCache)
    board: Board = field(default_factory=Board)
