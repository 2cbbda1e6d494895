"""What a run tells the world: events, status, curves, and lines on the console that also read well in a log file."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import torch
from torch import Tensor

from sd_scripts.training.disk import size_text
from sd_scripts.training.events import EventWriter
from sd_scripts.training.guards import NotFinite, what_is_wrong
from sd_scripts.training.loss_average import LossAverage
from sd_scripts.training.progress import FIELD, Progress
from sd_scripts.training.run_folder import RunFolder, State, Status
from sd_scripts.training.tracking import Boards

if TYPE_CHECKING:
    from sd_scripts.data.meters import Loading
    from sd_scripts.training.steps import Steps

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_FETCHES = 0.5  # losses leave the device in bulk: waiting for one in every step would idle a GPU
SECONDS_BETWEEN_LOADINGS = 5.0
SECONDS_BETWEEN_STATUS = 2.0  # of a run in its steps: replacing a file takes milliseconds on a busy disk
NOT_KNOWN = math.nan


@dataclass
class StepNumbers:
    """What a step left behind; tensors are still on their device.

    Attributes:
        gradient_norm: before it is cut to length; None where nobody works it out.
        latents_are_finite: of pictures encoded in this step; None where they come from a cache.
        pictures: names of the step's pictures in this process.
        rates: as they acted, by group. `own_rates`: those of the settings, where the optimizer finds its own.
    """

    step: int
    epoch: int
    loss: Tensor
    gradient_norm: Tensor | None = None
    latents_are_finite: Tensor | None = None
    pictures: tuple[str, ...] = ()
    rates: dict[str, float] = field(default_factory=dict)
    own_rates: dict[str, float] | None = None

    def stacked(self) -> Tensor:
        """Loss, gradient norm, and 1 where the latents are finite, as one tensor."""
        unknown = torch.full_like(self.loss, NOT_KNOWN)
        norm = unknown if self.gradient_norm is None else self.gradient_norm.to(self.loss)
        finite = unknown if self.latents_are_finite is None else self.latents_are_finite.to(self.loss)
        return torch.stack([self.loss, norm, finite])


@dataclass
class _Pending:
    numbers: StepNumbers
    finished: float  # time.monotonic()
    waited: float  # seconds spent waiting for data, in all


class Report:
    """Takes what happens and passes it on. Processes other than the first hold one without a folder, which says nothing.

    Attributes:
        last_checkpoint: the newest file with weights.
    """

    def __init__(self, folder: RunFolder | None, status: Status, boards: Boards | None = None):
        self.folder = folder
        self.status = status
        self.last_checkpoint: Path | None = None
        self._boards = boards or Boards()
        self._events = EventWriter(folder.events) if folder else None
        self._pending: list[_Pending] = []
        self._extras: list[tuple[int, dict[str, Tensor]]] = []
        self._last_fetch = self._last_step_time = time.monotonic()
        self._last_status = 0.0
        self._last_waited = 0.0
        self._average = LossAverage(1)
        self._steps: Steps | None = None
        self._waited: Callable[[], float] = float
        self._loading: Callable[[], Loading] | None = None
        self._last_loading = time.monotonic()
        self._advised: set[str] = set()
        self._seconds = 0.0  # of a step, smoothed

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """Something is being prepared; with numbers: how far it is."""
        self.fetch()
        counted = {} if done is None else {"done": done, "total": total}
        self._write("phase", phase=name, **counted)
        if name != self.status.phase:
            logger.info("%s", name)
        self._set_status(phase=name)
        self._last_step_time = time.monotonic()  # what is not training does not count as a step's time

    def measures(self, steps: Steps, waited: Callable[[], float], loading: Callable[[], Loading] | None = None) -> None:
        """The length of the run, and where to ask for the time spent waiting for data and for what loading costs."""
        self._steps, self._waited, self._loading = steps, waited, loading
        self._average = LossAverage(steps.per_epoch)

    def started(self, first_step: int) -> None:
        assert self._steps is not None
        self._last_step_time = self._last_fetch = time.monotonic()
        self._write("start", total_steps=self._steps.total, total_epochs=self._steps.epochs, first_step=first_step)
        self._set_status(
            state="running", phase="training", step=first_step,
            total_steps=self._steps.total, total_epochs=self._steps.epochs,
        )  # fmt: skip

    def step(self, numbers: StepNumbers) -> None:
        """A step is done; its numbers are still on the device and are fetched with others later."""
        now = time.monotonic()
        self._pending.append(_Pending(numbers, now, self._waited()))
        is_last = self._steps is not None and numbers.step == self._steps.total
        if is_last or now - self._last_fetch >= SECONDS_BETWEEN_FETCHES:
            self.fetch()

    def extra(self, values: Mapping[str, Tensor]) -> None:
        """More scalars of the step under way, for the curves."""
        if values and self._boards:
            self._extras.append((self.status.step + len(self._pending) + 1, dict(values)))

    def fetch(self) -> None:
        """Fetch all pending numbers at once and report them.

        Raises:
            NotFinite: a loss, or latents, are no numbers.
        """
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        rows = torch.stack([one.numbers.stacked() for one in pending]).tolist()
        for one, (loss, norm, finite) in zip(pending, rows, strict=True):
            if not math.isfinite(loss) or finite == 0:
                raise NotFinite(what_is_wrong(one.numbers))
            self._report_step(one, loss, norm)
        last = pending[-1].numbers
        self.status = replace(self.status, step=last.step, epoch=last.epoch)
        if time.monotonic() - self._last_status >= SECONDS_BETWEEN_STATUS:
            self._set_status()
        for number, values in self._extras:
            self._boards.scalars({name: value.item() for name, value in values.items()}, number)
        self._extras.clear()
        self._last_fetch = time.monotonic()
        if self._loading is not None and self._last_fetch - self._last_loading >= SECONDS_BETWEEN_LOADINGS:
            self._last_loading = self._last_fetch
            self._report_loading(self._loading(), pending[-1].numbers.step)

    def _report_loading(self, loading: Loading, step: int) -> None:
        self._write("data", step=step, **loading.numbers(), advice=loading.advice)
        if self._boards:
            self._boards.scalars({f"data/{name}": value for name, value in loading.numbers().items()}, step)
        subject = loading.advice.partition(":")[2]  # without the share, which is never twice the same
        if subject and subject not in self._advised:
            self._advised.add(subject)
            self.warning(loading.advice)

    def _report_step(self, pending: _Pending, loss: float, norm: float) -> None:
        numbers = pending.numbers
        average = self._average.add(loss)
        seconds = max(pending.finished - self._last_step_time, 1e-9)
        wait = min(1.0, max(0.0, pending.waited - self._last_waited) / seconds)
        self._last_step_time, self._last_waited = pending.finished, pending.waited
        self._seconds = seconds if not self._seconds else 0.9 * self._seconds + 0.1 * seconds
        more = {} if math.isnan(norm) else {"gradient_norm": norm}
        memory = memory_in_use() if self.folder is not None else None
        self._write(
            "step", step=numbers.step, epoch=numbers.epoch, loss=loss, average_loss=average, lr=numbers.rates,
            data_wait=round(wait, 4), seconds_per_step=round(seconds, 4), memory_bytes=memory, **more,
        )  # fmt: skip
        if self._boards:
            self._boards.scalars(curves(numbers, loss, average, norm, seconds, wait, memory), numbers.step)
        self._line(numbers, average, wait, memory)

    def _line(self, numbers: StepNumbers, average: float, wait: float, memory: int | None) -> None:
        if self._steps is None or self.folder is None:
            return
        progress = Progress(
            numbers.step, self._steps.total, numbers.epoch, self._steps.epochs, average, self._seconds, wait,
            numbers.rates, memory,
        )  # fmt: skip
        logger.info("%s", progress, extra={FIELD: progress})

    def validation(self, step: int, epoch: int, loss: float, by_timestep: Mapping[int, float]) -> None:
        """The loss on held-out pictures was measured."""
        logger.info("validation after step %d: loss %.4f", step, loss)
        self._write(
            "validation", step=step, epoch=epoch, loss=loss, by_timestep={str(t): one for t, one in by_timestep.items()}
        )
        curve = {"loss/validation/average": loss}
        curve |= {f"loss/validation/timestep_{timestep}": one for timestep, one in by_timestep.items()}
        if not math.isnan(self._average.value):
            curve["loss/validation/divergence"] = loss - self._average.value
        self._boards.scalars(curve, step)

    def sample(self, step: int, epoch: int, index: int, prompt: str, seed: int, path: Path) -> None:
        self._write("sample", step=step, epoch=epoch, index=index, prompt=prompt, seed=seed, path=str(path.resolve()))

    def checkpoint(self, kind: str, step: int, epoch: int, path: Path) -> None:
        size = sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size
        logger.info("saved %s (%s)", path, size_text(size))
        self._write("checkpoint", kind=kind, step=step, epoch=epoch, path=str(path.resolve()), bytes=size)
        if kind == "model":
            self.last_checkpoint = path

    def uploaded(self, path: Path, repository: str) -> None:
        logger.info("uploaded %s to %s", path.name, repository)
        self._write("upload", path=str(path.resolve()), repository=repository)

    def warning(self, message: str) -> None:
        logger.warning("%s", message)
        self._write("warning", message=message)

    def ended(self, state: State, message: str = "") -> None:
        self._write("end", state=state, message=message, step=self.status.step)
        self._set_status(state=state, phase="", message=message)
        if self._events:
            self._events.close()
            self._events = None
        self._boards.close()

    def _write(self, type: str, **fields: object) -> None:
        if self._events:
            self._events.write(type, **fields)

    def _set_status(self, **changes: object) -> None:
        self.status = replace(self.status, **changes)
        if self.folder:
            self.folder.write_status(self.status)
            self._last_status = time.monotonic()


def curves(
    numbers: StepNumbers, loss: float, average: float, norm: float, seconds: float, wait: float, memory: int | None
) -> dict[str, float]:
    """A step's numbers under the names of curves."""
    found = {"loss/current": loss, "loss/average": average}
    found |= {f"lr/{name}": rate for name, rate in (numbers.own_rates or numbers.rates).items()}
    if numbers.own_rates is not None:
        found |= {f"lr/d*lr/{name}": rate for name, rate in numbers.rates.items()}
    if not math.isnan(norm):
        found["norm/gradient"] = norm
    found |= {"speed/steps_per_second": 1 / seconds, "speed/data_wait": wait}
    if memory is not None:
        found["memory/GiB"] = memory / 2**30
    return found


def memory_in_use() -> int:
    """Bytes: the most that the GPU held since the start, or without one what this process holds in main memory."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return psutil.Process().memory_info().rss
