"""State folders by name: which one to read, and where the run stood that wrote it. Needs no torch: the plan asks too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from sd_scripts.errors import UserError

POSITION_FILE = "train_state.json"
SET_ASIDE = ".old"  # ends the name of a state while a new one takes its place


@dataclass(frozen=True)
class Position:
    """Where a run stands, and what its future depends on."""

    step: int
    epoch: int
    seed: int
    batches_per_epoch: int
    accumulation: int
    skipped_steps: int = 0  # whose numbers were not finite


def find_state(folder: Path) -> Path | None:
    """The state of that name: the folder, or the one before it if the program died while it was replaced; None if there
    is none."""
    for candidate in (folder, folder.with_name(folder.name + SET_ASIDE)):
        if (candidate / POSITION_FILE).is_file():
            return candidate
    return None


def write_position(folder: Path, position: Position) -> None:
    content = {
        "current_epoch": position.epoch,
        "current_step": position.step,
        "seed": position.seed,
        "batches_per_epoch": position.batches_per_epoch,
        "gradient_accumulation_steps": position.accumulation,
        "skipped_steps": position.skipped_steps,
    }
    (folder / POSITION_FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")


def read_position(folder: Path) -> Position:
    """Where the state was taken.

    Raises:
        UserError: the folder is no state of ours.
    """
    found = find_state(folder)
    try:
        if found is None:
            raise FileNotFoundError(f"there is no {POSITION_FILE} in it")
        content = json.loads((found / POSITION_FILE).read_text(encoding="utf-8"))
        return Position(
            step=int(content["current_step"]),
            epoch=int(content["current_epoch"]),
            seed=int(content["seed"]),
            batches_per_epoch=int(content["batches_per_epoch"]),
            accumulation=int(content["gradient_accumulation_steps"]),
            skipped_steps=int(content.get("skipped_steps", 0)),
        )
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise UserError(
            f"{folder}: not a training state that can be read ({failure}); name a folder that ends in -state"
        ) from failure
