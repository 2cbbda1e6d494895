"""Batches for the loop: made in worker processes or in this one by the same code."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch.utils.data import DataLoader, Sampler

from sd_scripts.data.batch import Batch
from sd_scripts.data.batch_maker import BatchKey, BatchMaker, Made
from sd_scripts.data.images import load_cv2
from sd_scripts.data.workers import choose_workers, usable_cores
from sd_scripts.errors import UserError

if TYPE_CHECKING:
    from sd_scripts.data.cache import LatentCache
    from sd_scripts.data.plan import DataPlan, SampleUse
    from sd_scripts.data.text_cache import TextCache
    from sd_scripts.models.base import Tokenizer

logger = logging.getLogger(__name__)


class Loader:
    """Batches of one process of a training run.

    Attributes:
        wait_seconds: time for which the loop had to wait for batches so far.
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
    ):
        """
        Args:
            plan: the data; its own seed decides the order, `seed` flips, cuts, colours and captions.
            tokenizer: None leaves `Batch.tokens` empty.
            texts: the captions encoded; batches then have these and no tokens.
            total_steps: optimizer steps of the run, for the tag warm-up.
            accumulation: batches in an optimizer step.
            start_method: how workers are started; None is the platform's way.
        """
        self.wait_seconds = 0.0
        self.skipped: dict[Path, str] = {}
        self._plan = plan
        self._rank = rank
        self._world_size = world_size
        self._accumulation = accumulation
        # Latents in memory stay in this process and are put into the batch here; files are read by the workers.
        self._memory = cache if cache is not None and not cache.is_on_disk else None
        self.workers = _worker_count(workers, plan, world_size, is_in_memory=self._memory is not None)
        self._texts_in_memory = texts if texts is not None and not texts.is_on_disk else None
        texts_on_disk = texts if texts is not None and texts.is_on_disk else None
        maker = BatchMaker(plan, tokenizer if texts is None else None, cache, seed, total_steps, texts_on_disk)
        self._maker = maker
        self._keys = _Keys()
        self._loader = DataLoader(
            maker.texts_only() if self._memory is not None else maker,
            batch_size=None,
            sampler=self._keys,
            num_workers=self.workers,
            collate_fn=_as_it_is,
            pin_memory=pin_memory,
            persistent_workers=persistent and self.workers > 0,
            prefetch_factor=4 if self.workers else None,
            worker_init_fn=_prepare_worker if self.workers else None,
            generator=torch.Generator(),  # its own, so that the global one is left as it is
            multiprocessing_context=start_method if self.workers else None,
        )

    def steps(self, epoch: int) -> int:
        """Batches that this process gets in an epoch; the same for all processes and epochs."""
        return self._plan.batches_per_epoch(self._world_size)

    def epoch(self, epoch: int, *, skip_batches: int = 0) -> Iterator[Batch]:
        """This process's batches of an epoch (counted from 0), without the first `skip_batches`.

        Raises:
            UserError: a picture or cache file cannot be read, or a loader process died.
        """
        parts = self._epoch_parts(epoch)[skip_batches:]
        self._keys.keys = [key for key, _ in parts]
        asked = time.perf_counter()
        made = iter(self._loader)
        for key, share in parts:
            result = self._next(made)
            batch = result.batch
            if self._memory is not None:
                batch = self._maker.with_latents(batch, key)
            if self._texts_in_memory is not None:
                batch = replace(batch, text=self._texts_in_memory.of(batch.captions))
            if self._loader.pin_memory and (self._memory is not None or self._texts_in_memory is not None):
                batch = batch.pin_memory()
            self.wait_seconds += time.perf_counter() - asked
            yield batch if share == 1 else replace(batch, loss_weights=batch.loss_weights * share)
            asked = time.perf_counter()

    def close(self) -> None:
        """End the loader processes."""
        # DataLoader has no public way; its finalizer would do it, but whenever a traceback lets go of the iterator.
        shut_down = getattr(self._loader._iterator, "_shutdown_workers", None)
        self._loader._iterator = None
        if shut_down is None:
            return
        try:
            shut_down()
        except RuntimeError as problem:
            if not _is_dead_worker(problem):  # one that died before is as good as ended
                raise

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
        except RuntimeError as problem:
            if not _is_dead_worker(problem):
                raise
            text = "a loader process died, most likely because memory ran out - lower max_data_loader_n_workers"
            raise UserError(text) from problem
        if result.failure:
            raise UserError(result.failure)
        for path, problem in result.skipped.items():
            if path not in self.skipped:
                self.skipped[path] = problem
                logger.warning("%s %s and is replaced by another picture", path, problem)
        return result


def part_of(uses: Sequence[SampleUse], rank: int, world_size: int) -> tuple[tuple[SampleUse, ...], float]:
    """A process's part of a batch, and the factor for its losses with which the mean over all processes is the mean
    over the batch.

    Where a batch has fewer pictures than there are processes, those without take one that does not count, so that all
    make the same steps.
    """
    mine = tuple(uses[len(uses) * rank // world_size : len(uses) * (rank + 1) // world_size])
    return mine or tuple(uses[:1]), len(mine) * world_size / len(uses)


class _Keys(Sampler):
    """The keys of the epoch that is being read; lives in the training process."""

    def __init__(self) -> None:
        self.keys: list[BatchKey] = []

    def __iter__(self) -> Iterator[BatchKey]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)


def _is_dead_worker(problem: RuntimeError) -> bool:
    return "DataLoader worker" in str(problem)


def _as_it_is(made: Made) -> Made:
    return made


def _prepare_worker(_: int) -> None:
    torch.set_num_threads(1)
    load_cv2()


def _worker_count(wanted: int | Literal["auto"], plan: DataPlan, world_size: int, *, is_in_memory: bool) -> int:
    cores = usable_cores()
    if wanted == "auto":
        return choose_workers(cores, world_size, is_in_memory, len(plan.samples))
    if wanted > cores:
        logger.info("%d loader processes were asked for; %d are used, as many as there are cores", wanted, cores)
    return min(wanted, cores)
