"""Batches for the loop: made in worker processes or in this one by the same code."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from sd_scripts.data.batch import Batch
from sd_scripts.data.batch_maker import BatchKey, BatchMaker, Made
from sd_scripts.data.meters import Circumstances, LoadMeter
from sd_scripts.data.pool import Pool, WorkerDeath
from sd_scripts.data.resizing import load_cv2
from sd_scripts.data.workers import choose_workers, most_workers, usable_cores
from sd_scripts.errors import UserError

if TYPE_CHECKING:
    from sd_scripts.data.cache import LatentCache
    from sd_scripts.data.plan import DataPlan, SampleUse
    from sd_scripts.data.text_cache import TextCache
    from sd_scripts.models.base import Tokenizer

logger = logging.getLogger(__name__)

FEWER = "lower max_data_loader_n_workers"


class Loader:
    """Batches of one process of a training run.

    Attributes:
        meter: what loading costs.
        workers: loader processes in use.
        skipped: pictures that could not be read during the run and what was wrong, where that does not stop it.
    """

    def __init__(
        self,
        plan: DataPlan,
        tokenizer: Tokenizer | None,
        *,
        cache: LatentCache | None = None,
        texts: TextCache | None = None,
        rank: int = 0,
        world_size: int = 1,
        seed: int,
        workers: int | Literal["auto"] = "auto",
        total_steps: int = 0,
        pin_memory: bool = False,
        accumulation: int = 1,
        persistent: bool = True,
        start_method: str | None = None,
        warn: Callable[[str], None] = logger.warning,
    ):
        """
        Args:
            plan: the data; its own seed decides the order, `seed` flips, cuts, colours and captions.
            tokenizer: None leaves `Batch.tokens` empty.
            texts: the captions encoded; batches then have these and no tokens.
            workers: loader processes at most; with cached latents there are none.
            total_steps: optimizer steps of the run, for the tag warm-up.
            accumulation: batches in an optimizer step.
            start_method: how workers are started; None is the platform's way.
            warn: told of pictures that are skipped and of processes that died.
        """
        self.skipped: dict[Path, str] = {}
        self.workers = _worker_count(workers, plan, world_size, is_cached=cache is not None)
        self.meter = LoadMeter(_circumstances(plan, cache, self.workers, world_size))
        self._plan = plan
        self._rank = rank
        self._world_size = world_size
        self._accumulation = accumulation
        self._pins = pin_memory
        self._persistent = persistent
        self._warn = warn
        # Texts in memory stay in this process and are put into the batch here; files are read by the workers.
        self._texts_in_memory = texts if texts is not None and not texts.is_on_disk else None
        texts_on_disk = texts if texts is not None and texts.is_on_disk else None
        self._maker = BatchMaker(plan, tokenizer if texts is None else None, cache, seed, total_steps, texts_on_disk)
        self._pool = self._make_pool(start_method) if self.workers else None

    @property
    def wait_seconds(self) -> float:
        """Time for which the loop had to wait for batches so far."""
        return self.meter.wait_seconds

    def steps(self, epoch: int) -> int:
        """Batches that this process gets in an epoch; the same for all processes and epochs."""
        return self._plan.batches_per_epoch(self._world_size)

    def epoch(self, epoch: int, *, skip_batches: int = 0, stop: int | None = None, stride: int = 1) -> Iterator[Batch]:
        """This process's batches of an epoch (counted from 0), without the first `skip_batches`.

        Args:
            stop: the batch to end before.
            stride: 3 for every third one.

        Raises:
            UserError: a picture or cache file cannot be read, or loader processes die again and again.
        """
        parts = self._epoch_parts(epoch)[skip_batches:stop:stride]
        asked = time.perf_counter()
        made = self._results([key for key, _ in parts])
        for _, share in parts:
            result = self._next(made)
            batch = self._completed(result)
            waited = time.perf_counter() - asked
            self.meter.add(
                images=len(batch), waited=waited, cpu_seconds=result.cpu_seconds, bytes_read=result.bytes_read
            )
            yield batch if share == 1 else replace(batch, loss_weights=batch.loss_weights * share)
            asked = time.perf_counter()
        if not self._persistent:
            self.close()

    def close(self) -> None:
        """End the loader processes; they start again when they are needed."""
        if self._pool is not None:
            self._pool.close()

    def _make_pool(self, start_method: str | None) -> Pool[BatchKey, Made]:
        return Pool(
            self._maker.make,
            self.workers,
            start_method=start_method,
            prepare=_prepare_worker,
            on_death=lambda reason: self._warn(f"a loader process {reason}; another reads its pictures again"),
            finish=_pinning() if self._pins and self._texts_in_memory is None else _as_it_is,
        )

    def _results(self, keys: list[BatchKey]) -> Iterator[Made]:
        return map(self._maker.make, keys) if self._pool is None else self._pool.results(keys)

    def _completed(self, made: Made) -> Batch:
        """The batch with what only this process has."""
        batch = made.batch
        if self._texts_in_memory is not None:
            batch = replace(batch, text=self._texts_in_memory.of(batch.captions))
        is_pinned = self._pool is not None and self._texts_in_memory is None
        return batch.pin_memory() if self._pins and not is_pinned else batch

    def _epoch_parts(self, epoch: int) -> list[tuple[BatchKey, float]]:
        """This process's part of each batch, and what it makes the losses count."""
        first_step = epoch * -(-self.steps(epoch) // self._accumulation)
        parts = []
        for at, uses in enumerate(self._plan.epoch_uses(epoch, self._world_size)):
            mine, share = part_of(uses, self._rank, self._world_size)
            parts.append((BatchKey(epoch, first_step + at // self._accumulation, mine), share))
        return parts

    def _next(self, made: Iterator[Made]) -> Made:
        try:
            result = next(made)
        except WorkerDeath as death:
            where = f" while it read {death.note}" if death.note else ""
            remedy = f"{FEWER}, or remove that picture" if death.note else FEWER
            raise UserError(f"a loader process {death}, time and again{where} - {remedy}") from death
        except OSError as problem:
            raise UserError(f"no loader process can be started: {problem.strerror or problem} - {FEWER}") from problem
        if result.failure:
            raise UserError(result.failure)
        for path, problem in result.skipped.items():
            if path not in self.skipped:
                self.skipped[path] = problem
                self._warn(f"{path} {problem} and is replaced by another picture")
        return result


def part_of(uses: Sequence[SampleUse], rank: int, world_size: int) -> tuple[tuple[SampleUse, ...], float]:
    """A process's part of a batch, and the factor for its losses with which the mean over all processes is the mean
    over the batch.

    Where a batch has fewer pictures than there are processes, those without take one that does not count, so that all
    make the same steps.
    """
    mine = tuple(uses[len(uses) * rank // world_size : len(uses) * (rank + 1) // world_size])
    return mine or tuple(uses[:1]), len(mine) * world_size / len(uses)


def _as_it_is(made: Made) -> Made:
    return made


def _pinning() -> Callable[[Made], Made]:
    """Pins batches for the device of this thread; another thread would go to the first one, and take up memory there."""
    device = torch.cuda.current_device()

    def pinned(made: Made) -> Made:
        torch.cuda.set_device(device)
        return made.pin_memory()

    return pinned


def _prepare_worker() -> None:
    torch.set_num_threads(1)
    load_cv2()


def _worker_count(wanted: int | Literal["auto"], plan: DataPlan, world_size: int, *, is_cached: bool) -> int:
    cores = usable_cores()
    if wanted == "auto" or is_cached:
        return choose_workers(cores, world_size, is_cached, len(plan.samples))
    if wanted > cores:
        logger.info("%d loader processes were asked for; %d are used, as many as there are cores", wanted, cores)
    return min(wanted, cores)


def _circumstances(plan: DataPlan, cache: LatentCache | None, workers: int, world_size: int) -> Circumstances:
    varying = ("random_crop", "color_aug", "face_crop_aug_range")
    return Circumstances(
        workers=workers,
        most_workers=most_workers(usable_cores(), world_size),
        is_cached=cache is not None,
        is_on_disk=cache is not None and cache.is_on_disk,
        varies=tuple(name for name in varying if any(getattr(subset.options, name) for subset in plan.subsets)),
    )
