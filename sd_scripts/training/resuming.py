"""Going on from a state: where the run begins, and what has changed since."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from sd_scripts.errors import ConfigError, UserError
from sd_scripts.training.hub import fetch_state, make_client
from sd_scripts.training.schedulers import load_schedule, use_rates
from sd_scripts.training.state import Trained, read_state
from sd_scripts.training.state_folder import Position, find_state, read_position
from sd_scripts.training.state_record import Record, changes, read_record
from sd_scripts.training.steps import first_step_of

if TYPE_CHECKING:
    from sd_scripts.options.recipes import TrainingOptions
    from sd_scripts.training.processes import Processes
    from sd_scripts.training.run import Run

logger = logging.getLogger(__name__)

MOST_CHANGES = 12  # that are named


def state_to_resume(options: TrainingOptions, processes: Processes) -> Path | None:
    """The folder of the state to go on from; from the hub it is fetched by the first process, then found by the others."""
    if options.resume is None:
        return None
    if not options.resume_from_huggingface:
        return Path(options.resume)
    folder = Path()
    for turn in (True, False):
        if processes.is_first is turn:
            token = options.huggingface_token
            folder = fetch_state(options.resume, token, make_client(token))
        processes.wait()
    return folder


def begin(run: Run, trained: Trained, folder: Path | None, record: Record) -> None:
    """Put the run where it begins: at the start, after a state, or where the options say.

    Raises:
        UserError: the state belongs to another run, or the run would be over before it begins.
    """
    position = read_position(folder) if folder is not None else None
    first = first_step_of(run.options, run.steps.per_epoch, position.step if position else 0)
    if first >= run.steps.total:
        raise _is_over(run, folder, first)
    if folder is not None and position is not None:
        _resume(run, trained, folder, position, record)
    if first != (position.step if position else 0):
        rates = list(run.learning_rates_at_full().values())
        load_schedule(run.scheduler, {"last_epoch": first})
        use_rates(run.scheduler, rates)
        logger.info("beginning after step %d", first)
    run.step = run.first_step = first


def _resume(run: Run, trained: Trained, folder: Path, position: Position, record: Record) -> None:
    _tell_changes(run, folder, position, record)
    wanted = run.learning_rates_at_full()
    read_state(folder, trained)
    run.skipped_steps = position.skipped_steps
    if run.options.resume_learning_rate == "settings":
        use_rates(run.scheduler, list(wanted.values()))
    elif run.learning_rates_at_full() != wanted:
        kept = ", ".join(f"{name} {rate:g}" for name, rate in run.learning_rates_at_full().items())
        run.report.warning(f"the learning rates of the state are kept ({kept}), not those of the settings")
    logger.info("resumed from %s after step %d", folder, position.step)


def _tell_changes(run: Run, folder: Path, position: Position, record: Record) -> None:
    found = [
        f"{name} was {before}, is {now}"
        for name, before, now in (
            ("the seed", position.seed, run.seed),
            ("batches per epoch", position.batches_per_epoch, run.steps.batches_per_epoch),
            ("gradient_accumulation_steps", position.accumulation, run.steps.accumulation),
        )
        if before != now
    ]
    before = read_record(find_state(folder) or folder)
    if before is not None:
        named = {"seed", "gradient_accumulation_steps"}  # said above
        found += [text for text in changes(before, record, type(run.options)) if text.split(" ")[0] not in named]
    if not found:
        return
    shown = "; ".join(found[:MOST_CHANGES]) + (
        f"; and {len(found) - MOST_CHANGES} more" if len(found) > MOST_CHANGES else ""
    )
    run.report.warning(f"resuming with changes, so the result differs from an unbroken run: {shown}")


def _is_over(run: Run, folder: Path | None, first: int) -> UserError:
    total = run.steps.total
    if folder is None:
        return ConfigError("initial_step", first, f"is not before the end of the run, step {total}; lower it")
    return UserError(
        f"{folder}: was saved after step {first}, and this run ends at step {total}; raise max_train_epochs or "
        'max_train_steps (they count from the start), or set resume_length = "additional" to train so many more'
    )
