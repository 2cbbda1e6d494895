"""The run folder: one folder a run, through which trainer and GUI speak to each other.

<time>-<name>/  config.toml  command.txt  versions.txt  launch.json  plan.json  status.json  events.jsonl  log.txt
                control/  samples/
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

State = Literal["queued", "starting", "running", "saving", "done", "stopped", "failed"]
Request = Literal["stop", "stop_after_save", "save", "sample"]


@dataclass(frozen=True)
class Status:
    """Where a run stands; what `status.json` holds. `created` is the process's start time, which tells pids apart."""

    state: State
    phase: str = ""
    pid: int | None = None
    created: float | None = None
    step: int = 0
    total_steps: int = 0
    epoch: int = 0
    total_epochs: int = 0
    message: str = ""
    updated: float = 0.0


@dataclass(frozen=True)
class RunFolder:
    """Paths of a run folder, and the small files in it."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def command(self) -> Path:
        return self.path / "command.txt"

    @property
    def versions(self) -> Path:
        return self.path / "versions.txt"

    @property
    def launch(self) -> Path:
        return self.path / "launch.json"

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def status_file(self) -> Path:
        return self.path / "status.json"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def control(self) -> Path:
        return self.path / "control"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    def make(self) -> RunFolder:
        """Create the folder and what lies in it."""
        self.control.mkdir(parents=True, exist_ok=True)
        return self

    def read_status(self) -> Status | None:
        """The last status written, None before the first. Unknown keys of a newer program are left out."""
        try:
            content = json.loads(self.status_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        known = Status.__dataclass_fields__
        return Status(**{name: value for name, value in content.items() if name in known})

    def write_status(self, status: Status) -> None:
        write_json(self.status_file, asdict(replace(status, updated=time.time())))

    def request(self, what: Request) -> None:
        """Ask the running trainer for something; it looks between steps."""
        self.control.mkdir(parents=True, exist_ok=True)
        (self.control / what).touch()

    def take_request(self, what: Request) -> bool:
        """Whether that was asked for since the last look; the request is used up."""
        try:
            (self.control / what).unlink()
        except FileNotFoundError:
            return False
        return True


def new_run_path(parent: Path, name: str) -> Path:
    """A run folder's path that does not exist yet: time, name without what file systems refuse, a number if taken."""
    safe = re.sub(r'[\x00-\x1f<>:"/\\|?*]', "_", name).strip(". ") or "run"
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{safe[:80]}"
    path, number = parent / stem, 2
    while path.exists():
        path, number = parent / f"{stem}-{number}", number + 1
    return path


def write_json(path: Path, content: object) -> None:
    """Write JSON under a temporary name and rename it: a reader never sees half a file."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
    temporary.replace(path)
