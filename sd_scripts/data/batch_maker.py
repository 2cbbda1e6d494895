"""Makes batches from keys. A key says all that decides a batch, so any process can make any batch at any time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.data import Dataset

from sd_scripts.data.batch import Batch
from sd_scripts.data.buckets import Size
from sd_scripts.data.cache_files import CacheEntryProblem
from sd_scripts.data.captions import Progress, caption_for_use
from sd_scripts.data.images import UNREADABLE_REMEDY, PictureProblem
from sd_scripts.data.pictures import Picture, is_flipped, load_picture
from sd_scripts.data.randomness import Use
from sd_scripts.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from sd_scripts.data.cache import LatentCache
    from sd_scripts.data.plan import DataPlan, Sample, SampleUse
    from sd_scripts.data.sources import Subset
    from sd_scripts.models.base import Tokenizer


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
    skipped: dict[Path, str] = field(default_factory=dict)

    def pin_memory(self) -> Made:
        return self if self.batch is None else replace(self, batch=self.batch.pin_memory())


@dataclass(frozen=True)
class _Loaded:
    use: Use
    content: Tensor  # pixels (3, h, w) uint8 or latents (c, h, w)
    mask: Tensor | None  # (h, w) float32


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
        self.unreadable = frozenset(cache.unreadable) if cache is not None else frozenset()
        self.seed = seed
        self.total_steps = total_steps
        self.makes_texts_only = False

    def texts_only(self) -> BatchMaker:
        """A maker of everything but latents, which stay with the training process and are put in by `with_latents`."""
        lean = BatchMaker.__new__(BatchMaker)
        lean.__dict__.update(self.__dict__, cache=None, makes_texts_only=True)
        return lean

    def __getitem__(self, key: BatchKey) -> Made:
        skipped: dict[Path, str] = {}
        try:
            if self.makes_texts_only:
                uses = [self._first_readable(use) for use in self._uses(key)]
                return Made(self._with_texts(_empty_batch(), key, uses))
            loaded = [self._load(use, skipped) for use in self._uses(key)]
            batch = self._with_texts(self._with_contents(_empty_batch(), loaded), key, [one.use for one in loaded])
        except (UserError, CacheEntryProblem) as problem:
            return Made(None, failure=_failure(problem))
        return Made(batch, skipped=skipped)

    def with_latents(self, batch: Batch, key: BatchKey) -> Batch:
        """The batch completed from the cache in memory."""
        return self._with_contents(batch, [self._load(use, {}) for use in self._uses(key)])

    def _uses(self, key: BatchKey) -> list[Use]:
        return [Use(self.seed, key.epoch, sample, repeat) for sample, repeat in key.uses]

    def _with_texts(self, batch: Batch, key: BatchKey, uses: list[Use]) -> Batch:
        progress = Progress(key.epoch + 1, key.step, self.total_steps)
        samples = [self.samples[use.sample] for use in uses]
        captions = tuple(
            caption_for_use(sample.lines, self.subsets[sample.subset].options, progress, use.draws("caption"))
            for sample, use in zip(samples, uses, strict=True)
        )
        return replace(
            batch,
            tokens=self.tokenizer(captions) if self.tokenizer is not None else None,
            captions=captions,
            loss_weights=torch.tensor([sample.loss_weight for sample in samples]),
            indices=tuple(repeat * len(self.samples) + sample for sample, repeat in key.uses),
        )

    def _with_contents(self, batch: Batch, loaded: list[_Loaded]) -> Batch:
        contents = torch.stack([one.content for one in loaded])
        masks = _stack_masks([one.mask for one in loaded], self.samples[loaded[0].use.sample].bucket)
        return replace(batch, masks=masks, **{"pixels" if self.cache is None else "latents": contents})

    def _load(self, use: Use, skipped: dict[Path, str]) -> _Loaded:
        """Picture or latents of one use; of another picture of the bucket if this one is bad and that is allowed."""
        for candidate in self._readable(use):
            sample = self.samples[candidate.sample]
            options = self.subsets[sample.subset].options
            if self.cache is not None:
                return _Loaded(candidate, *self.cache.latents(candidate.sample, is_flipped(options, candidate)))
            try:
                picture = load_picture(sample, options, candidate)
            except PictureProblem as problem:
                if not self.skips_bad_pictures:
                    raise UserError(f"{sample.path} {problem} - {UNREADABLE_REMEDY}") from problem
                skipped[sample.path] = str(problem)
                continue
            return _Loaded(candidate, *_as_tensors(picture.flipped() if is_flipped(options, candidate) else picture))
        raise self._nothing_readable(use)

    def _first_readable(self, use: Use) -> Use:
        for candidate in self._readable(use):
            return candidate
        raise self._nothing_readable(use)

    def _nothing_readable(self, use: Use) -> UserError:
        path = self.samples[use.sample].path
        return UserError(f"neither {path} nor any picture of its size can be read - check the folder")

    def _readable(self, use: Use) -> Iterator[Use]:
        """The use, and those that can stand in for it, without pictures that are known to be unreadable."""
        for number in self._candidates(use.sample):
            if self.samples[number].path not in self.unreadable:
                yield replace(use, sample=number)

    def _candidates(self, number: int) -> Iterator[int]:
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


def _empty_batch() -> Batch:
    return Batch(None, None, None, (), torch.empty(0), None, ())


def _failure(problem: Exception) -> str:
    remedy = " - start again: it will be made anew" if isinstance(problem, CacheEntryProblem) else ""
    return f"{problem}{remedy}"


def _as_tensors(picture: Picture) -> tuple[Tensor, Tensor | None]:
    pixels = torch.from_numpy(np.ascontiguousarray(picture.rgb.transpose(2, 0, 1)))
    mask = None if picture.mask is None else torch.from_numpy(np.ascontiguousarray(picture.mask)).float() / 255
    return pixels, mask


def _stack_masks(masks: list[Tensor | None], bucket: Size) -> Tensor | None:
    """(b, 1, h, w) with ones for pictures without a mask; None if none has one."""
    if all(mask is None for mask in masks):
        return None
    whole = torch.ones(bucket[::-1])
    return torch.stack([whole if mask is None else mask for mask in masks])[:, None]
