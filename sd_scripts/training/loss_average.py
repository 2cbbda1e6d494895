"""The average of the loss that the progress bar shows."""

from __future__ import annotations

from collections import deque


class LossAverage:
    """Mean of the losses of the last epoch's worth of steps; before one epoch is full, of all so far.

    After a resume it averages what came since, so skipped steps never count as zeros.
    """

    def __init__(self, steps_per_epoch: int):
        self._losses: deque[float] = deque(maxlen=max(1, steps_per_epoch))

    def add(self, loss: float) -> float:
        """Take one more step's loss; the average with it."""
        self._losses.append(loss)
        return self.value

    @property
    def value(self) -> float:
        """The average now; NaN before the first loss, and as long as a NaN is among them."""
        return sum(self._losses) / len(self._losses) if self._losses else float("nan")
