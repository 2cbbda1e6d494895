"""What a run tells the world: events, status, TensorBoard, and lines on the console that also read well in a log
file."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sd_scripts.errors import UserError
from sd_scripts.training.events import EventWriter
from sd_scripts.training.loss_average import LossAverage
from sd_scripts.training.run_folder import RunFolder, State, Status

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from sd_scripts.training.steps import Steps

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_FETCHES = 0.5  # losses leave the device in bulk: waiting for one in every step would idle a GPU
SECONDS_BETWEEN_LINES = 5.0


@dataclass
class _Pending:
    step: int
    epoch: int
    loss: Tensor
    rates: dict[str, float]
    finished: float  # time.monotonic()
    waited: float  # seconds spent waiting for data, in all


class Report:
    """Takes what happens and passes it on. Processes other than the first hold one without a folder, which says nothing.

    Args:
        board: TensorBoard's writer.
    """

    def __init__(self, folder: RunFolder | None, status: Status, board: SummaryWriter | None = None):
        self.folder = folder
        self.status = status
        self._board = board
        self._events = EventWriter(folder.events) if folder else None
        self._pending: list[_Pending] = []
        self._extras: list[tuple[int, dict[str, Tensor]]] = []
        self._last_fetch = self._last_line = self._last_step_time = time.monotonic()
        self._last_waited = 0.0
        self._average = LossAverage(1)
        self._steps: Steps | None = None
        self._waited: Callable[[], float] = float

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """Something is being prepared; with numbers: how far it is."""
        self.fetch()
        counted = {} if done is None else {"done": done, "total": total}
        self._write("phase", phase=name, **counted)
        if name != self.status.phase:
            logger.info("%s", name)
        self._set_status(phase=name)
        self._last_step_time = time.monotonic()  # what is not training does not count as a step's time

    def measures(self, steps: Steps, waited: Callable[[], float]) -> None:
        """The length of the run, and where to ask for the time spent waiting for data."""
        self._steps, self._waited = steps, waited
        self._average = LossAverage(steps.per_epoch)

    def started(self, first_step: int) -> None:
        assert self._steps is not None
        self._last_step_time = self._last_fetch = time.monotonic()
        self._write("start", total_steps=self._steps.total, total_epochs=self._steps.epochs, first_step=first_step)
        self._set_status(
            state="running", phase="training", step=first_step,
            total_steps=self._steps.total, total_epochs=self._steps.epochs,
        )  # fmt: skip

    def step(self, step: int, epoch: int, loss: Tensor, rates: Mapping[str, float]) -> None:
        """A step is done; its loss is still on the device and is fetched with others later."""
        now = time.monotonic()
        self._pending.append(_Pending(step, epoch, loss, dict(rates), now, self._waited()))
        is_last = self._steps is not None and step == self._steps.total
        if is_last or now - self._last_fetch >= SECONDS_BETWEEN_FETCHES:
            self.fetch()

    def extra(self, values: Mapping[str, Tensor]) -> None:
        """More scalars of the step under way, for TensorBoard."""
        if values and self._board:
            self._extras.append((self.status.step + len(self._pending) + 1, dict(values)))

    def fetch(self) -> None:
        """Fetch all pending losses at once and report them.

        Raises:
            UserError: a loss is not a number.
        """
        if not self._pending:
            return
        losses = torch.stack([pending.loss for pending in self._pending]).tolist()
        for pending, loss in zip(self._pending, losses, strict=True):
            if not math.isfinite(loss):
                raise UserError(
                    f"the loss of step {pending.step} is {loss}: training stopped; lower the learning rate, use "
                    f"bf16 instead of "
                    "fp16, or go on from an earlier file"
                )
            self._report_step(pending, loss)
        self._set_status(step=self._pending[-1].step, epoch=self._pending[-1].epoch)
        self._pending.clear()
        for number, values in self._extras:
            for name, value in values.items():
                self._board.add_scalar(name, value.item(), number)
        self._extras.clear()
        self._last_fetch = time.monotonic()

    def _report_step(self, pending: _Pending, loss: float) -> None:
        average = self._average.add(loss)
        seconds = max(pending.finished - self._last_step_time, 1e-9)
        wait = min(1.0, max(0.0, pending.waited - self._last_waited) / seconds)
        self._last_step_time, self._last_waited = pending.finished, pending.waited
        self._write(
            "step", step=pending.step, epoch=pending.epoch, loss=loss, average_loss=average, lr=pending.rates,
            data_wait=round(wait, 4), seconds_per_step=round(seconds, 4),
        )  # fmt: skip
        if self._board:
            self._board.add_scalar("loss/current", loss, pending.step)
            self._board.add_scalar("loss/average", average, pending.step)
            for name, rate in pending.rates.items():
                self._board.add_scalar(f"lr/{name}", rate, pending.step)
        self._line(pending, average, seconds)

    def _line(self, pending: _Pending, average: float, seconds: float) -> None:
        total = self._steps.total if self._steps else 0
        if pending.step != total and pending.finished - self._last_line < SECONDS_BETWEEN_LINES:
            return
        self._last_line = pending.finished
        rates = ", ".join(f"{name} {rate:.3g}" for name, rate in pending.rates.items())
        logger.info(
            "step %d/%d, epoch %d/%d, average loss %.4f, %.3g s/step, lr %s",
            pending.step, total, pending.epoch, self._steps.epochs if self._steps else 0, average, seconds, rates,
        )  # fmt: skip

    def sample(self, step: int, epoch: int, index: int, prompt: str, seed: int, path: Path) -> None:
        self._write("sample", step=step, epoch=epoch, index=index, prompt=prompt, seed=seed, path=str(path.resolve()))

    def checkpoint(self, kind: str, step: int, epoch: int, path: Path) -> None:
        size = sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size
        logger.info("saved %s (%.1f MB)", path, size / 1e6)
        self._write("checkpoint", kind=kind, step=step, epoch=epoch, path=str(path.resolve()), bytes=size)

    def warning(self, message: str) -> None:
        logger.warning("%s", message)
        self._write("warning", message=message)

    def ended(self, state: State, message: str = "") -> None:
        self._write("end", state=state, message=message, step=self.status.step)
        self._set_status(state=state, phase="", message=message)
        if self._events:
            self._events.close()
            self._events = None
        if self._board:
            self._board.close()

    def _write(self, type: str, **fields: object) -> None:
        if self._events:
            self._events.write(type, **fields)

    def _set_status(self, **changes: object) -> None:
        self.status = replace(self.status, **changes)
        if self.folder:
            self.folder.write_status(self.status)
