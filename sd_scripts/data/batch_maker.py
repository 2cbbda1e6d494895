"""Makes batches from keys. A key says all that decides a batch, so any process can make any batch at any time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from sd_scripts.data.batch import Batch
from sd_scripts.data.buckets import Size
from sd_scripts.data.cache_files import CacheEntryProblem
from sd_scripts.data.captions import Progress, caption_for_use, draws_at_random
from sd_scripts.data.images import UNREADABLE_REMEDY, PictureProblem
from sd_scripts.data.pictures import is_flipped, load_guide, load_picture, mirrored
from sd_scripts.data.randomness import Use
from sd_scripts.data.token_memo import TokenMemo
from sd_scripts.data.views import sizes_of, view_of
from sd_scripts.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from sd_scripts.data.cache import LatentCache
    from sd_scripts.data.plan import DataPlan, Sample, SampleUse
    from sd_scripts.data.sources import Subset
    from sd_scripts.data.text_cache import TextCache
    from sd_scripts.models.base import Tokenizer

_NO_DRAWS = random.Random(0)  # for captions that nothing is drawn for; seeding one takes longer than the caption


@dataclass(frozen=True)
class BatchKey:
    """All that decides the content of a batch, given the plan and the seed."""

    epoch: int  # from 0
    step: int  # optimizer steps before it
    uses: tuple[SampleUse, ...]


@dataclass(frozen=True)
class Made:
    """What comes of a key: a batch, or what kept it from being made; and what it cost."""

    batch: Batch | None
    failure: str = ""
    skipped: dict[Path, str] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    bytes_read: int = 0

    def pin_memory(self) -> Made:
        return self if self.batch is None else replace(self, batch=self.batch.pin_memory())


@dataclass(frozen=True)
class _Loaded:
    """What a batch holds of one use; either `rgb` or `latents` is set."""

    use: Use
    mask: Tensor | None  # (h, w) float32 in 0…1
    control: np.ndarray | None  # (h, w, 3) uint8
    rgb: np.ndarray | None = None  # (h, w, 3) uint8
    latents: Tensor | None = None  # (c, h, w)


class BatchMaker:
    """Makes the batch of a key.

    Args:
        tokenizer: None leaves `Batch.tokens` empty.
        cache: latents to be used instead of pictures.
        texts: encoded captions to be put into the batches.
        seed: of flips, cuts, colours and captions.
        total_steps: of the run, for the tag warm-up.
    """

    def __init__(
        self,
        plan: DataPlan,
        tokenizer: Tokenizer | None,
        cache: LatentCache | None,
        seed: int,
        total_steps: int,
        texts: TextCache | None = None,
    ):
        self.samples: tuple[Sample, ...] = plan.samples
        self.subsets: tuple[Subset, ...] = plan.subsets
        self.skips_bad_pictures = plan.skips_bad_pictures
        self.tokenizer = TokenMemo(tokenizer) if tokenizer is not None else None
        self.cache = cache
        self.texts = texts
        self.unreadable = frozenset(cache.unreadable) if cache is not None else frozenset()
        self.seed = seed
        self.total_steps = total_steps

    def make(self, key: BatchKey, note: Callable[[str], None] | None = None) -> Made:
        """The batch of a key. `note` is told of each picture before it is read."""
        begin = time.thread_time()
        skipped: dict[Path, str] = {}
        try:
            loaded = [self._load(use, skipped, note) for use in self._uses(key)]
            batch = self._batch(key, loaded)
        except (UserError, CacheEntryProblem) as problem:
            return Made(None, failure=_failure(problem))
        return Made(batch, "", skipped, time.thread_time() - begin, self._bytes_read(loaded))

    def _bytes_read(self, loaded: list[_Loaded]) -> int:
        if self.cache is None:
            return sum(self.samples[one.use.sample].bytes for one in loaded)
        return sum(one.latents.nbytes for one in loaded if one.latents is not None) if self.cache.is_on_disk else 0

    def _uses(self, key: BatchKey) -> list[Use]:
        return [Use(self.seed, key.epoch, sample, repeat) for sample, repeat in key.uses]

    def _batch(self, key: BatchKey, loaded: list[_Loaded]) -> Batch:
        samples = [self.samples[one.use.sample] for one in loaded]
        captions = self._captions(key, [one.use for one in loaded])
        return Batch(
            pixels=_stack_pixels([one.rgb for one in loaded]),
            latents=_stack([one.latents for one in loaded]),
            tokens=self.tokenizer(captions) if self.tokenizer is not None else None,
            captions=captions,
            loss_weights=torch.tensor([sample.loss_weight for sample in samples]),
            masks=_stack_masks([one.mask for one in loaded], samples[0].bucket),
            indices=tuple(repeat * len(self.samples) + sample for sample, repeat in key.uses),
            controls=_stack_pixels([one.control for one in loaded]),
            sizes=torch.tensor([self._sizes(one.use) for one in loaded]),
            text=self.texts.of(captions) if self.texts is not None else None,
        )

    def _sizes(self, use: Use) -> tuple[int, ...]:
        sample = self.samples[use.sample]
        options = self.subsets[sample.subset].options
        view = view_of(sample, options, use if self.cache is None else None)
        return sizes_of(sample, view, is_flipped(options, use))

    def _captions(self, key: BatchKey, uses: list[Use]) -> tuple[str, ...]:
        progress = Progress(key.epoch + 1, key.step, self.total_steps)
        captions = []
        for use in uses:
            sample = self.samples[use.sample]
            options = self.subsets[sample.subset].options
            draws = use.draws("caption") if draws_at_random(options) else _NO_DRAWS
            captions.append(caption_for_use(sample.lines, options, progress, draws))
        return tuple(captions)

    def _load(self, use: Use, skipped: dict[Path, str], note: Callable[[str], None] | None) -> _Loaded:
        """Picture or latents of one use; of another picture of the bucket if this one is bad and that is allowed."""
        for candidate in self._readable(use):
            sample = self.samples[candidate.sample]
            if note is not None:
                note(str(sample.path))
            try:
                return self._load_one(sample, candidate)
            except PictureProblem as problem:
                if not self.skips_bad_pictures:
                    raise UserError(f"{sample.path} {problem} - {UNREADABLE_REMEDY}") from problem
                skipped[sample.path] = str(problem)
        raise self._nothing_readable(use)

    def _load_one(self, sample: Sample, use: Use) -> _Loaded:
        options = self.subsets[sample.subset].options
        flips = is_flipped(options, use)
        if self.cache is None:
            picture = load_picture(sample, options, use)
            picture = picture.flipped() if flips else picture
            mask = None if picture.mask is None else torch.from_numpy(picture.mask.astype(np.float32) / 255)
            return _Loaded(use, mask, picture.control, rgb=picture.rgb)
        latents, mask = self.cache.latents(use.sample, flips)
        control = None
        if sample.control is not None:
            control = load_guide(sample, options, view_of(sample, options))
            control = mirrored(control) if flips else control
        return _Loaded(use, mask, control, latents=latents)

    def _nothing_readable(self, use: Use) -> UserError:
        path = self.samples[use.sample].path
        return UserError(f"neither {path} nor any picture of its size can be read - check the folder")

    def _readable(self, use: Use) -> Iterator[Use]:
        """The use, and those that can stand in for it, without pictures that are known to be unreadable."""
        for number in self._candidates(use.sample):
            if not self.unreadable or self.samples[number].path not in self.unreadable:
                yield use if number == use.sample else replace(use, sample=number)

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


def _failure(problem: Exception) -> str:
    remedy = " - start again: it will be made anew" if isinstance(problem, CacheEntryProblem) else ""
    return f"{problem}{remedy}"


def _stack(tensors: list[Tensor | None]) -> Tensor | None:
    """All or none are there."""
    return None if tensors[0] is None else torch.stack(tensors)


def _stack_pixels(pictures: list[np.ndarray | None]) -> Tensor | None:
    """(b, 3, h, w) uint8. The channels stay innermost in memory, as files and most kernels have them."""
    return None if pictures[0] is None else torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)


def _stack_masks(masks: list[Tensor | None], bucket: Size) -> Tensor | None:
    """(b, 1, h, w) with ones for pictures without a mask; None if none has one."""
    if all(mask is None for mask in masks):
        return None
    whole = torch.ones(bucket[::-1])
    return torch.stack([whole if mask is None else mask for mask in masks])[:, None]
