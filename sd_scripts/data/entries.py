"""Pictures before they are planned: what a folder, a metadata file or a dataset class says of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sd_scripts.options.problems import Problem

if TYPE_CHECKING:
    from sd_scripts.data.images import Header


@dataclass(frozen=True, slots=True)
class Entry:
    """What a source says of one picture."""

    path: Path
    lines: tuple[str, ...] = ()
    caption_source: str = "none"  # "file", "folder" (class tokens) or "none"
    mask: Path | None = None
    control: Path | None = None
    tags: str | None = None  # those of a metadata file, for the statistics


@dataclass(frozen=True, slots=True)
class Found:
    """A picture of a subset that can be read."""

    path: Path
    bytes: int
    mtime_ns: int
    header: Header
    lines: tuple[str, ...]
    caption_source: str
    mask: Path | None = None
    control: Path | None = None


@dataclass
class SubsetContent:
    """All that a subset's source gave."""

    found: list[Found] = field(default_factory=list)
    bad: dict[Path, str] = field(default_factory=dict)  # pictures that cannot be used, with the reason
    problems: list[Problem] = field(default_factory=list)
    extension: str = ""  # of the caption files; a metadata file's own
    empty: int = 0  # captions without text
    missing: int = 0  # pictures without caption
    tag_counts: dict[str, int] | None = None  # where the statistics count other text than the captions
