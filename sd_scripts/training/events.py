"""Events of a run, one JSON object a line in `events.jsonl`. The GUI's live view and every other reader use these.

phase       phase, done?, total?              what is being prepared, and how far it is
start       total_steps, total_epochs, first_step
step        step, epoch, loss, average_loss, lr {part: rate}, data_wait (share of time), seconds_per_step, memory_bytes,
            gradient_norm?
data        step, data_wait (share of time), images_per_second, worker_cpu (share of time), mb_per_second, advice (""
            or a sentence)
validation  step, epoch, loss (on held-out pictures), by_timestep {timestep: loss}
sample      step, epoch, index, prompt, seed, path
checkpoint  kind ("model" | "state"), step, epoch, path, bytes
upload      path, repository
warning     message
end         state ("done" | "stopped" | "failed"), message, step
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any


class EventWriter:
    """Appends events to a file. A line is written whole and flushed at once, so that readers can follow."""

    def __init__(self, path: Path):
        self._file = path.open("a", encoding="utf-8", newline="\n")

    def write(self, type: str, **fields: Any) -> None:
        line = json.dumps({"time": round(time.time(), 3), "type": type, **fields}, ensure_ascii=False, allow_nan=True)
        self._file.write(line + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_events(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Events from a byte offset on, and the offset to go on from. A last line still being written is left for next time.

    A line that is no JSON (a machine that lost power) is skipped.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read()
    except FileNotFoundError:
        return [], offset
    whole = content[: content.rfind(b"\n") + 1]
    events = []
    for line in whole.splitlines():
        try:
            events.append(json.loads(line))
        except (json.JSONDecodeError, UnicodeDecodeError):
            continue
    return events, offset + len(whole)
