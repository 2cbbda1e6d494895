"""What loading costs and whether training waits for it: rates of the last seconds, and what to change where it does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

NOTICEABLE = 0.15  # share of the time spent waiting from which on it is worth a word
SECONDS_TO_JUDGE = 20.0
IDLE = 0.5  # loader processes that compute less than so much of their time wait for the disk themselves


@dataclass(frozen=True)
class Circumstances:
    """What there is to change about loading."""

    workers: int
    most_workers: int  # that this process may have
    is_cached: bool
    is_on_disk: bool = False
    varies: tuple[str, ...] = ()  # options that keep latents from being cached


@dataclass(frozen=True)
class Loading:
    """Rates over a span of time."""

    data_wait: float  # share of the time in which training waited for data
    images_per_second: float
    worker_cpu: float  # share of the loader processes' time in which they computed
    mb_per_second: float  # read from files
    advice: str = ""

    def numbers(self) -> dict[str, float]:
        """The rates by name, rounded."""
        return {name: round(value, 4) for name, value in asdict(self).items() if name != "advice"}


@dataclass(frozen=True)
class _Counts:
    time: float
    images: int = 0
    wait_seconds: float = 0.0
    cpu_seconds: float = 0.0
    bytes_read: int = 0


class LoadMeter:
    """Counts what the loader does.

    Args:
        circumstances: what there is to change.
        clock: gives seconds.
    """

    def __init__(self, circumstances: Circumstances, clock: Callable[[], float] = time.perf_counter):
        self._circumstances = circumstances
        self._clock = clock
        self._now = self._last = _Counts(clock())
        self._settled: _Counts | None = None  # after the first span, in which processes start and files are cold

    @property
    def wait_seconds(self) -> float:
        """Time for which training had to wait for batches so far."""
        return self._now.wait_seconds

    def add(self, *, images: int, waited: float, cpu_seconds: float, bytes_read: int) -> None:
        """A batch was delivered."""
        now = self._now
        self._now = _Counts(
            now.time,
            now.images + images,
            now.wait_seconds + waited,
            now.cpu_seconds + cpu_seconds,
            now.bytes_read + bytes_read,
        )

    def since_last(self) -> Loading:
        """Rates since this was last asked for, with advice once there was time to judge."""
        now = replace(self._now, time=self._clock())
        loading = _rates(self._last, now, self._circumstances.workers)
        self._last = now
        if self._settled is None:
            self._settled = now
        elif now.time - self._settled.time >= SECONDS_TO_JUDGE:
            so_far = _rates(self._settled, now, self._circumstances.workers)
            loading = replace(loading, advice=advice(so_far, self._circumstances))
        return loading


def advice(loading: Loading, circumstances: Circumstances) -> str:
    """What to change, in a sentence; "" where training hardly waits or nothing can be done."""
    if loading.data_wait < NOTICEABLE:
        return ""
    remedies = []
    workers = _workers_needed(loading, circumstances)
    if workers > circumstances.workers:
        remedies.append(f"raise max_data_loader_n_workers to {workers}")
    if not circumstances.is_cached:
        off = f" and leave {' and '.join(circumstances.varies)} off" if circumstances.varies else ""
        remedies.append(f"set cache_latents = true{off}")
        if circumstances.workers and loading.worker_cpu < IDLE:
            remedies.append(f"keep the pictures on a faster disk (this one gives {loading.mb_per_second:.0f} MB/s)")
    elif circumstances.is_on_disk:
        remedies.append("set cache_latents_to_disk = false to keep the latents in memory")
    if not remedies:
        return ""
    return f"waiting for data {loading.data_wait:.0%} of the time: {', or '.join(remedies)}".replace("%", " %")


def _workers_needed(loading: Loading, circumstances: Circumstances) -> int:
    """Processes with which training would not wait, as far as there are cores."""
    if circumstances.is_cached:
        return 0
    share = max(1 - loading.data_wait, 0.05)
    needed = max(math.ceil(max(circumstances.workers, 1) / share), circumstances.workers + 1)
    return min(needed, circumstances.most_workers)


def _rates(before: _Counts, after: _Counts, workers: int) -> Loading:
    seconds = max(after.time - before.time, 1e-9)
    return Loading(
        data_wait=min(1.0, (after.wait_seconds - before.wait_seconds) / seconds),
        images_per_second=(after.images - before.images) / seconds,
        worker_cpu=min(1.0, (after.cpu_seconds - before.cpu_seconds) / (seconds * max(workers, 1))),
        mb_per_second=(after.bytes_read - before.bytes_read) / 1e6 / seconds,
    )
