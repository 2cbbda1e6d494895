"""What the tabs of one server share."""

from __future__ import annotations

from dataclasses import dataclass, field

from kohya_gui.board import Board
from kohya_gui.drafts import Drafts
from kohya_gui.live import ViewCache
from kohya_gui.pictures import PictureShelf
from kohya_gui.presets import PresetFolder
from kohya_gui.runs import RunManager
from kohya_gui.settings import Start


@dataclass
class Context:
    """Server-wide objects; a page keeps nothing that matters."""

    manager: RunManager
    presets: dict[str, PresetFolder]  # by the name of the form
    shelf: PictureShelf
    start: Start
    drafts: Drafts
    views: ViewCache = field(default_factory=ViewCache)
    board: Board = field(default_factory=Board)
