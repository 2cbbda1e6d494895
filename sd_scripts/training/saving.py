"""What is written when, under which name, and which older file goes: the names and rules that users know."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sd_scripts.errors import UserError
from sd_scripts.options.output import Saving
from sd_scripts.training.guards import NotFinite
from sd_scripts.training.steps import Steps, save_interval_epochs


@dataclass(frozen=True)
class FileNames:
    """Names of what a run writes into its output folder."""

    folder: Path
    name: str | None
    suffix: str  # ".safetensors"

    def final(self) -> Path:
        return self.folder / f"{self.name or 'last'}{self.suffix}"

    def epoch(self, epoch: int) -> Path:
        return self.folder / f"{self.name or 'epoch'}-{epoch:06d}{self.suffix}"

    def step(self, step: int) -> Path:
        return self.folder / f"{self.name or 'at'}-step{step:08d}{self.suffix}"

    def final_state(self) -> Path:
        return self.folder / f"{self.name or 'last'}-state"

    def epoch_state(self, epoch: int) -> Path:
        return self.folder / f"{self.name or 'epoch'}-{epoch:06d}-state"

    def step_state(self, step: int) -> Path:
        return self.folder / f"{self.name or 'at'}-step{step:08d}-state"

    def sample(self, mark: str, index: int, timestamp: str, seed: int | None) -> Path:
        """`mark` is `e000002` after an epoch, `000120` after a step."""
        name = f"{self.name}_" if self.name else ""
        tail = "" if seed is None else f"_{seed}"
        return self.folder / "sample" / f"{name}{mark}_{index:02d}_{timestamp}{tail}.png"


class Saver:
    """Decides at every step what to write, and removes what has become too old.

    Args:
        write_model: writes the weights to a path.
        write_state: writes all that a resume needs to a folder.
        write_final_model: the same for the last file of all.
        on_failure: is told what could not be written before the end, where the run is to go on without it.
        before_removal: is told what will be removed.
    """

    def __init__(
        self,
        options: Saving,
        steps: Steps,
        names: FileNames,
        write_model: Callable[[Path], None],
        write_state: Callable[[Path], None],
        *,
        write_final_model: Callable[[Path], None] | None = None,
        on_failure: Callable[[str], None] = lambda message: None,
        before_removal: Callable[[Path], None] = lambda path: None,
    ):
        self._options = options
        self._steps = steps
        self._names = names
        self._write_model = write_model
        self._write_state = write_state
        self._write_final_model = write_final_model or write_model
        self._on_failure = on_failure
        self._before_removal = before_removal
        self._every_epochs = save_interval_epochs(options, steps.epochs)
        self.keeps_state_at_end = options.save_state or options.save_state_on_train_end

    def after_step(self, step: int) -> None:
        """`step` optimizer steps have been made, and more will come."""
        options = self._options
        if not options.save_every_n_steps or step % options.save_every_n_steps or step >= self._steps.total:
            return
        if self._write(self._names.step(step), self._names.step_state(step) if options.save_state else None):
            self._remove_old_steps(step)

    def after_epoch(self, epoch: int) -> None:
        """`epoch` epochs have been made."""
        if not self._every_epochs or epoch % self._every_epochs or epoch >= self._steps.epochs:
            return
        state = self._names.epoch_state(epoch) if self._options.save_state else None
        if self._write(self._names.epoch(epoch), state):
            self._remove_old_epochs(epoch)

    def at_end(self) -> None:
        """The run is over or was stopped: the weights are always written.

        Raises:
            UserError: they could not be.
        """
        self._write_final_model(self._names.final())
        if self.keeps_state_at_end:
            self._write_state(self._names.final_state())

    def now(self, step: int) -> None:
        """Someone asked for the weights and the state as they are."""
        self._write(self._names.step(step), self._names.step_state(step))

    def rescue(self, step: int) -> Path:
        """The run has failed: write the weights of its last step; where they are."""
        self._write_model(path := self._names.step(step))
        return path

    def _write(self, model: Path, state: Path | None) -> bool:
        """Whether all was written. If not, the run goes on or ends, as chosen; what is older stays."""
        try:
            self._write_model(model)
            if state is not None:
                self._write_state(state)
        except NotFinite:  # found while the last losses were fetched for the file: no fault of the disk's
            raise
        except UserError as failure:
            if self._options.on_save_error == "stop":
                raise
            self._on_failure(f"{failure}; training goes on without it")
            return False
        return True

    def _remove_old_epochs(self, epoch: int) -> None:
        options, every = self._options, self._every_epochs
        if options.save_last_n_epochs and every:
            old = epoch - every * options.save_last_n_epochs
            if old > 0:
                self._remove(self._names.epoch(old))
        last_states = options.save_last_n_epochs_state or options.save_last_n_epochs
        if options.save_state and last_states and every:
            old = epoch - every * last_states
            if old > 0:
                self._remove(self._names.epoch_state(old))

    def _remove_old_steps(self, step: int) -> None:
        options = self._options
        if options.save_last_n_steps:
            old = oldest_step_to_remove(step, options.save_last_n_steps, options.save_every_n_steps or 1)
            if old > 0:
                self._remove(self._names.step(old))
        last_states = options.save_last_n_steps_state or options.save_last_n_steps
        if options.save_state and last_states:
            old = oldest_step_to_remove(step, last_states, options.save_every_n_steps or 1)
            if old > 0:
                self._remove(self._names.step_state(old))

    def _remove(self, path: Path) -> None:
        self._before_removal(path)
        remove(path)


def oldest_step_to_remove(step: int, keep_steps: int, every: int) -> int:
    """The save that lies just outside the last `keep_steps` steps; 0 or less if there is none."""
    beyond = step - keep_steps - 1
    return beyond - beyond % every


def remove(path: Path) -> None:
    """Delete a file or folder that may be gone already."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
