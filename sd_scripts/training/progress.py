"""How far a run is, as one line: a bar that is drawn over itself in a terminal, a plain line now and then in a file."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

SECONDS_BETWEEN_LINES = 5.0  # in files, for the first minutes
SECONDS_BETWEEN_LATER_LINES = 30.0  # of a long run, whose log should stay readable
MANY_LINES = 120
BAR_WIDTH = 20
FIELD = "progress"  # of a log record that is one of these lines


@dataclass(frozen=True)
class Progress:
    """Where a run stands.

    Attributes:
        seconds: of a step, smoothed.
        data_wait: share of the time spent waiting for data.
        memory: bytes in use at most, None where it is not known.
    """

    step: int
    total: int
    epoch: int
    epochs: int
    loss: float
    seconds: float
    data_wait: float
    rates: dict[str, float]
    memory: int | None = None

    @property
    def is_last(self) -> bool:
        return self.step >= self.total

    def __str__(self) -> str:
        """The line: `step 120/1600 (7%), epoch 1/10, loss 0.0921, 2.31 it/s, 0:10:41 left, lr unet 0.0001`."""
        share = 100 * self.step // max(1, self.total)
        parts = [f"step {self.step}/{self.total} ({share}%)", f"epoch {self.epoch}/{self.epochs}"]
        parts += [f"loss {self.loss:.4f}", speed(self.seconds)]
        if not self.is_last:
            parts.append(f"{duration((self.total - self.step) * self.seconds)} left")
        parts.append("lr " + ", ".join(f"{name} {rate:.3g}" for name, rate in self.rates.items()))
        if self.data_wait >= 0.05:
            parts.append(f"waits for data {self.data_wait:.0%}")
        if self.memory is not None:
            parts.append(f"{self.memory / 2**30:.1f} GiB")
        return ", ".join(parts)

    def bar(self) -> str:
        """The share that is done, drawn: `######--------------`."""
        filled = BAR_WIDTH * self.step // max(1, self.total)
        return "#" * filled + "-" * (BAR_WIDTH - filled)


def speed(seconds: float) -> str:
    """Steps a second, or seconds a step, whichever is above one."""
    return f"{1 / seconds:.2f} it/s" if 0 < seconds < 1 else f"{seconds:.2f} s/it"


def duration(seconds: float) -> str:
    """h:mm:ss, with days before it when there are any."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days} d " if days else "") + f"{hours}:{minutes:02d}:{rest:02d}"


class NowAndThen(logging.Filter):
    """Lets only some of the progress lines through, and the last one always: for files, and for output that goes into one."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0
        self._lines = 0

    def filter(self, record: logging.LogRecord) -> bool:
        progress: Progress | None = getattr(record, FIELD, None)
        if progress is None:
            return True
        now = time.monotonic()
        if now < self._next and not progress.is_last:
            return False
        self._lines += 1
        self._next = now + (SECONDS_BETWEEN_LINES if self._lines < MANY_LINES else SECONDS_BETWEEN_LATER_LINES)
        return True


class BarHandler(logging.StreamHandler):
    """For a terminal: progress is one line that is drawn over itself; messages stand above it."""

    def __init__(self, stream) -> None:
        super().__init__(stream)
        self._bar = ""

    def emit(self, record: logging.LogRecord) -> None:
        progress: Progress | None = getattr(record, FIELD, None)
        try:
            if progress is None:
                self._over(f"{self.format(record)}\n")
                if self._bar:
                    self.stream.write(self._bar)
            else:
                self._over(line := f"{progress.bar()} {progress}")
                self._bar = "" if progress.is_last else line
                if progress.is_last:
                    self.stream.write("\n")
            self.flush()
        except (OSError, ValueError):  # the terminal is gone
            self.handleError(record)

    def close(self) -> None:
        """Leave the cursor below the bar."""
        if self._bar:
            self._bar = ""
            self.stream.write("\n")
            self.flush()
        super().close()

    def _over(self, text: str) -> None:
        self.stream.write(f"\r{' ' * len(self._bar)}\r{text}" if self._bar else text)
