"""What a page shows of a run, kept up to date by reading only what was appended to its events since the last look."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sd_scripts.training.events import read_events
from sd_scripts.training.run_folder import RunFolder

MOST_STEPS = 4000  # a longer run keeps every second of its older points, then every fourth …


@dataclass
class RunView:
    """The events of a run, sorted by what they are for."""

    folder: RunFolder
    offset: int = 0
    steps: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    phase: dict[str, Any] | None = None
    end: dict[str, Any] | None = None

    def update(self) -> bool:
        """Read what is new; whether there was anything."""
        events, self.offset = read_events(self.folder.events, self.offset)
        for event in events:
            self._take(event)
        if len(self.steps) > MOST_STEPS:
            self.steps = [*self.steps[:-1:2], self.steps[-1]]
        return bool(events)

    def _take(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "step":
                self.steps.append(event)
            case "sample":
                self.samples.append(event)
            case "checkpoint":
                self.files = [f for f in self.files if f.get("path") != event.get("path")] + [event]
            case "warning":
                self.warnings.append(str(event.get("message", "")))
            case "phase":
                self.phase = event
            case "end":
                self.end = event

    @property
    def last(self) -> dict[str, Any] | None:
        return self.steps[-1] if self.steps else None

    def seconds_left(self, total_steps: int) -> float | None:
        """Time to the end at the recent pace (the last fifth of the run so far); None before the second step."""
        if len(self.steps) < 2 or not total_steps:
            return None
        recent = self.steps[-max(2, len(self.steps) // 5) :]
        steps = recent[-1]["step"] - recent[0]["step"]
        seconds = recent[-1]["time"] - recent[0]["time"]
        return max(0.0, (total_steps - recent[-1]["step"]) * seconds / steps) if steps > 0 else None

    def curve(self, key: str) -> list[tuple[float, float]]:
        return [(step["step"], step[key]) for step in self.steps if key in step]

    def rates(self) -> dict[str, list[tuple[float, float]]]:
        """Learning rates by part."""
        found: dict[str, list[tuple[float, float]]] = {}
        for step in self.steps:
            for part, rate in (step.get("lr") or {}).items():
                found.setdefault(part, []).append((step["step"], rate))
        return found

    def wall(self) -> tuple[list[int], dict[int, tuple[str, dict[int, Path]]]]:
        """The samples as a table: the steps, and per prompt number its text and its pictures by step."""
        rows: dict[int, tuple[str, dict[int, Path]]] = {}
        for sample in self.samples:
            _, pictures = rows.setdefault(int(sample.get("index", 0)), (str(sample.get("prompt", "")), {}))
            pictures[int(sample["step"])] = self._absolute(sample["path"])
        steps = sorted({step for _, pictures in rows.values() for step in pictures})
        return steps, dict(sorted(rows.items()))

    def _absolute(self, path: str) -> Path:
        return Path(path) if Path(path).is_absolute() else self.folder.path / path
