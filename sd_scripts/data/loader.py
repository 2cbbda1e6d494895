"""Batches for the loop: made in worker processes or in this one by the same code, in an order that depends on nothing but the seed.

A batch's key says everything that decides its content, so any process can make any batch at any time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from sd_scripts.data.batch import Batch
from sd_scripts.data.buckets import Size
from sd_scripts.data.cache_files import CacheEntryProblem
from sd_scripts.data.captions import Progress, caption_for_use
from sd_scripts.data.images import UNREADABLE_REMEDY, PictureProblem, load_cv2
from sd_scripts.data.pictures import Picture, is_flipped, load_picture
from sd_scripts.data.randomness import Use
from sd_scripts.data.workers import choose_workers, usable_cores
from sd_scripts.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from sd_scripts.data.cache import LatentCache
    from sd_scripts.data.plan import DataPlan, Sample, SampleUse
    from sd_scripts.data.sources import Subset
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
        maker = BatchMaker(plan, tokenizer, cache, seed, total_steps)
        self._maker = maker
        self._keys = _Keys()
        self._loader = DataLoader(
            maker.for_workers() if self._memory is not None else maker,
            batch_size=None,
            sampler=self._keys,
            num_workers=self.workers,
            collate_fn=_as_it_is,
            pin_memory=pin_memory,
            persistent_workers=persistent and self.workers > 0,
            prefetch_factor=4 if self.workers else None,
            worker_init_fn=_prepare_worker if self.workers else None,
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
        keys = self._epoch_keys(epoch)[skip_batches:]
        self._keys.keys = keys
        asked = time.perf_counter()
        made = iter(self._loader)
        for key in keys:
            result = self._next(made)
            batch = result.batch
            if self._memory is not None:
                batch = self._maker.with_latents(batch, key)
                batch = batch.pin_memory() if self._loader.pin_memory else batch
            self.wait_seconds += time.perf_counter() - asked
            yield batch
            asked = time.perf_counter()

    def close(self) -> None:
        """End the loader processes."""
        self._loader._iterator = None  # its finalizer ends them; DataLoader has no public way

    def _epoch_keys(self, epoch: int) -> list[BatchKey]:
        batches = self._plan.epoch_uses(epoch)
        count = self.steps(epoch)
        steps_before = epoch * -(-count // self._accumulation)
        mine = [batches[(at * self._world_size + self._rank) % len(batches)] for at in range(count)]
        return [BatchKey(epoch, steps_before + at // self._accumulation, uses) for at, uses in enumerate(mine)]

    def _next(self, made: Iterator[Made]) -> Made:
        try:
            result = next(made)
        except RuntimeError as problem:
            if "DataLoader worker" not in str(problem):
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


@dataclass(frozen=True)
class BatchKey:
    """All that decides the content of a batch, given the plan and the seed."""

    epoch: int  # from 0
    step: int  # optimizer steps before it
    uses: tuple[SampleUse, ...]


@dataclass(frozen=True)
class Made:
    """What comes back from a worker: a batch, or what kept it from being made."""

    batch: Batch | None
    failure: str = ""
    skipped: dict[Path, str] | None = None

    def pin_memory(self) -> Made:
        return self if self.batch is None else replace(self, batch=self.batch.pin_memory())


class BatchMaker(Dataset):
    """Makes the batch of a key."""

    def __init__(
        self, plan: DataPlan, tokenizer: Tokenizer | None, cache: LatentCache | None, seed: int, total_steps: int
    ):
        self.samples: tuple[Sample, ...] = plan.samples
        self.subsets: tuple[Subset, ...] = plan.subsets
        self.skips_bad_pictures = plan.skips_bad_pictures
        self.tokenizer = tokenizer
        self.cache = cache
        self.seed = seed
        self.total_steps = total_steps
        self.makes_pictures = True

    def for_workers(self) -> BatchMaker:
        """A maker of everything but pictures and latents, which are put in later."""
        lean = BatchMaker.__new__(BatchMaker)
        lean.__dict__.update(self.__dict__, cache=None, makes_pictures=False)
        return lean

    def __getitem__(self, key: BatchKey) -> Made:
        skipped: dict[Path, str] = {}
        try:
            uses = [Use(self.seed, key.epoch, sample, repeat) for sample, repeat in key.uses]
            batch = self._texts(key, uses)
            if self.makes_pictures:
                batch = self._with_pictures(batch, uses, skipped)
        except (UserError, CacheEntryProblem) as problem:
            return Made(None, failure=_failure(problem))
        return Made(batch, skipped=skipped)

    def with_latents(self, batch: Batch, key: BatchKey) -> Batch:
        """The batch completed from the cache in memory."""
        return self._with_pictures(batch, [Use(self.seed, key.epoch, *use) for use in key.uses], {})

    def _texts(self, key: BatchKey, uses: list[Use]) -> Batch:
        progress = Progress(key.epoch + 1, key.step, self.total_steps)
        samples = [self.samples[use.sample] for use in uses]
        captions = tuple(
            caption_for_use(sample.lines, self.subsets[sample.subset].options, progress, use.draws("caption"))
            for sample, use in zip(samples, uses, strict=True)
        )
        return Batch(
            pixels=None,
            latents=None,
            tokens=self.tokenizer(captions) if self.tokenizer is not None else None,
            captions=captions,
            loss_weights=torch.tensor([sample.loss_weight for sample in samples]),
            masks=None,
            indices=tuple(use.repeat * len(self.samples) + use.sample for use in uses),
        )

    def _with_pictures(self, batch: Batch, uses: list[Use], skipped: dict[Path, str]) -> Batch:
        loaded = [self._load(use, skipped) for use in uses]
        contents = torch.stack([content for content, _ in loaded])
        masks = _stack_masks([mask for _, mask in loaded], self.samples[uses[0].sample].bucket)
        return replace(batch, masks=masks, **{"pixels" if self.cache is None else "latents": contents})

    def _load(self, use: Use, skipped: dict[Path, str]) -> tuple[Tensor, Tensor | None]:
        """Pixels (3, h, w) or latents of one use and its mask; of another picture of the bucket where this one is bad."""
        for number in self._candidates(use.sample):
            sample = self.samples[number]
            options = self.subsets[sample.subset].options
            if self.cache is not None:
                if sample.path not in self.cache.unreadable:
                    return self.cache.latents(number, is_flipped(options, use))
                continue
            try:
                picture = load_picture(sample, options, use)
            except PictureProblem as problem:
                if not self.skips_bad_pictures:
                    raise UserError(f"{sample.path} {problem} - {UNREADABLE_REMEDY}") from problem
                skipped[sample.path] = str(problem)
                continue
            return _as_tensors(picture.flipped() if is_flipped(options, use) else picture)
        raise UserError(f"none of the pictures like {self.samples[use.sample].path} can be read - check the folder")

    def _candidates(self, number: int) -> Iterator[int]:
        """The sample and, should it turn out to be unreadable, those that can stand in for it."""
        yield number
        if self.skips_bad_pictures:
            sample = self.samples[number]
            others = self._alike[sample.dataset, sample.bucket, sample.is_reg]
            start = others.index(number)
            yield from others[start + 1 :] + others[:start]

    @cached_property
    def _alike(self) -> dict[tuple[int, Size, bool], list[int]]:
        """Samples that can stand in for each other."""
        groups: dict[tuple[int, Size, bool], list[int]] = {}
        for number, sample in enumerate(self.samples):
            groups.setdefault((sample.dataset, sample.bucket, sample.is_reg), []).append(number)
        return groups


class _Keys(Sampler):
    """The keys of the epoch that is being read; lives in the training process."""

    def __init__(self) -> None:
        self.keys: list[BatchKey] = []

    def __iter__(self) -> Iterator[BatchKey]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)


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


def _failure(problem: Exception) -> str:
    remedy = " - start again: it will be made anew" if isinstance(problem, CacheEntryProblem) else ""
    return f"{problem}{remedy}"


def _as_tensors(picture: Picture) -> tuple[Tensor, Tensor | None]:
    import numpy as np

    pixels = torch.from_numpy(np.ascontiguousarray(picture.rgb.transpose(2, 0, 1)))
    mask = None if picture.mask is None else torch.from_numpy(np.ascontiguousarray(picture.mask)).float() / 255
    return pixels, mask


def _stack_masks(masks: list[Tensor | None], bucket: Size) -> Tensor | None:
    """(b, 1, h, w) with ones for pictures without a mask; None if none has one."""
    if all(mask is None for mask in masks):
        return None
    whole = torch.ones(bucket[::-1])
    return torch.stack([whole if mask is None else mask for mask in masks])[:, None]
