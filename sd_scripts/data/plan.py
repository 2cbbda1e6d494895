"""The plan of the data: which picture is used how often, at what size, with which caption, in which batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sd_scripts.data.buckets import Fit, Size
from sd_scripts.data.faces import Face
from sd_scripts.data.repeats import fit_repeats, rotated, share
from sd_scripts.data.sources import Subset
from sd_scripts.options.dataset import DatasetOptions
from sd_scripts.options.problems import Problem
from sd_scripts.seeds import seed_of


@dataclass(frozen=True, slots=True)
class Sample:
    """One picture of one subset."""

    path: Path
    size: Size  # upright
    fit: Fit
    lines: tuple[str, ...]  # of the caption file, or the class tokens
    caption_source: str  # "file", "folder" (class tokens) or "none"
    dataset: int  # into DataPlan.datasets
    subset: int  # into DataPlan.subsets
    repeats: int  # uses in an epoch; of a regularisation picture those of its fair share
    is_reg: bool
    loss_weight: float
    bytes: int
    mtime_ns: int
    mask: Path | Literal["alpha"] | None = None  # of the loss: a picture of its own, or this one's opacity
    control: Path | None = None  # the picture that guides a ControlNet
    face: Face | None = None  # what is cut around, where that is asked for

    @property
    def caption(self) -> str:
        """The caption as it was read."""
        return "\n".join(self.lines)

    @property
    def bucket(self) -> Size:
        return self.fit.bucket


@dataclass(frozen=True)
class PlannedDataset:
    """A dataset whose options are known to be valid."""

    options: DatasetOptions
    subsets: tuple[int, ...]  # into DataPlan.subsets
    resolution: Size
    bucket_limits: Size  # shortest and longest side, rounded


@dataclass(frozen=True)
class FolderCounts:
    """What was found in a subset's folder."""

    subset: int
    images: int  # that are used
    bad: int
    caption_extension: str
    captions: int  # caption files with text
    empty: int  # caption files without
    missing: int  # pictures without caption file
    masks: int = 0  # pictures with a mask: a file, or transparency that is used as one
    controls: int = 0  # pictures with a guiding one
    tag_counts: Mapping[str, int] | None = None  # for the statistics, where they are not those of the captions


# (sample, which of its uses in the epoch)
SampleUse = tuple[int, int]


@dataclass(frozen=True)
class DataPlan:
    """All that is known about the data before training. Batches are pure functions of (seed, epoch)."""

    samples: tuple[Sample, ...]
    subsets: tuple[Subset, ...]
    datasets: tuple[PlannedDataset, ...]
    folders: tuple[FolderCounts, ...]
    problems: tuple[Problem, ...]
    bad_pictures: tuple[Path, ...]
    seed: int
    is_from_file: bool
    skips_bad_pictures: bool = False
    is_index_used: bool = False  # nothing had to be looked at anew
    validation: DataPlan | None = None  # the pictures that are held out, each used once and without variation

    def batches_per_epoch(self, world_size: int = 1) -> int:
        """Batches of an epoch; each of the processes takes its part of every one."""
        return sum(group.batches(world_size) for group in self.groups)

    def epoch_batches(self, epoch: int, world_size: int = 1) -> list[tuple[int, ...]]:
        """Sample indices of every batch of an epoch (counted from 0), in order. Short batches are kept.

        A batch is that of all processes together: so they train on what one process with so large a batch would.
        """
        return [tuple(sample for sample, _ in batch) for batch in self.epoch_uses(epoch, world_size)]

    def epoch_uses(self, epoch: int, world_size: int = 1) -> list[tuple[SampleUse, ...]]:
        """As `epoch_batches`, with the number of the use beside each sample: a repeated picture has 0, 1, 2, …"""
        import numpy as np

        batches: list[tuple[SampleUse, ...]] = []
        for number, group in enumerate(self.groups):
            uses = group.uses(epoch)
            order = np.random.default_rng(seed_of(self.seed, "pictures", epoch, number)).permutation(len(uses))
            shuffled = [uses[at] for at in order.tolist()]
            size = group.batch_size * world_size
            batches += [tuple(shuffled[at : at + size]) for at in range(0, len(shuffled), size)]
        order = np.random.default_rng(seed_of(self.seed, "batches", epoch)).permutation(len(batches))
        return [batches[at] for at in order.tolist()]

    @property
    def is_cacheable(self) -> bool:
        """Whether every picture looks the same at each use but for flips."""
        varied = ("random_crop", "color_aug", "face_crop_aug_range")
        return not any(getattr(subset.options, name) for subset in self.subsets for name in varied)

    @cached_property
    def groups(self) -> tuple[BucketGroup, ...]:
        """What batches are made of: the samples of each dataset by bucket."""
        return _group(self)

    def summary(self, count_tokens: Callable[[str], int] | None = None, token_limit: int = 75) -> dict[str, Any]:
        """The plan as plain values. With a tokenizer's `count`, captions that are too long are counted too."""
        from sd_scripts.data.report import summary

        return summary(self, count_tokens, token_limit)

    def lines(self) -> Iterator[str]:
        """The plan as lines of text."""
        from sd_scripts.data.report import lines

        return lines(self)

    def dataset_summary(self) -> dict[str, Any]:
        """What a network file's metadata says of the data; keys as in `adapters.metadata.DataSummary`."""
        from sd_scripts.data.report import dataset_summary

        return dataset_summary(self)


@dataclass(frozen=True)
class BucketGroup:
    """The samples of one dataset in one bucket: what a batch can be made of."""

    dataset: int
    bucket: Size
    batch_size: int  # of one process
    fixed: tuple[SampleUse, ...]  # used in every epoch
    pool: tuple[int, ...] = ()  # regularisation pictures that take turns
    quota: int = 0  # how many of them an epoch uses

    @property
    def use_count(self) -> int:
        return len(self.fixed) + self.quota

    def batches(self, world_size: int = 1) -> int:
        """Batches of all processes together."""
        return -(-self.use_count // (self.batch_size * world_size))

    def uses(self, epoch: int) -> list[SampleUse]:
        """All uses of an epoch, not yet shuffled."""
        counts: dict[int, int] = {}
        uses = list(self.fixed)
        for sample in rotated(self.pool, self.quota, epoch) if self.quota else ():
            uses.append((sample, counts.get(sample, 0)))
            counts[sample] = counts.get(sample, 0) + 1
        return uses


def _group(plan: DataPlan) -> tuple[BucketGroup, ...]:
    groups: list[BucketGroup] = []
    for number, dataset in enumerate(plan.datasets):
        members = [(at, sample) for at, sample in enumerate(plan.samples) if sample.dataset == number]
        fixed: dict[Size, list[SampleUse]] = {}
        surplus = _has_surplus(plan, members)
        for at, sample in members:
            if not (sample.is_reg and surplus):
                fixed.setdefault(sample.bucket, []).extend((at, use) for use in range(sample.repeats))
        pools = _pools(plan, members) if surplus else {}
        wanted = sum(sample.repeats for _, sample in members if sample.is_reg)
        quotas = dict(zip(pools, share(wanted, [len(pool) for pool in pools.values()]), strict=True))
        for bucket in sorted(fixed.keys() | {bucket for bucket, quota in quotas.items() if quota}):
            groups.append(
                BucketGroup(
                    number,
                    bucket,
                    dataset.options.train_batch_size,
                    tuple(fixed.get(bucket, ())),
                    tuple(pools.get(bucket, ())),
                    quotas.get(bucket, 0),
                )
            )
    return tuple(groups)


def _has_surplus(plan: DataPlan, members: list[tuple[int, Sample]]) -> bool:
    """Whether there are more regularisation pictures than training uses; they then take turns over the epochs."""
    return any(sample.is_reg and sample.repeats < plan.subsets[sample.subset].repeats for _, sample in members)


def _pools(plan: DataPlan, members: list[tuple[int, Sample]]) -> dict[Size, list[int]]:
    """Regularisation pictures by bucket, each as often as its folder's repeats."""
    pools: dict[Size, list[int]] = {}
    most = max((plan.subsets[sample.subset].repeats for _, sample in members if sample.is_reg), default=0)
    for turn in range(most):  # all pictures once, then those with a second repeat, …
        for at, sample in members:
            if sample.is_reg and turn < plan.subsets[sample.subset].repeats:
                pools.setdefault(sample.bucket, []).append(at)
    return pools


def plan_data(
    cfg: DatasetOptions, *, divisor: int, latent_downscale: int = 8, seed: int, has_guides: bool = False
) -> DataPlan:
    """Look at all pictures and captions and decide how they are used. What is wrong stands in `problems`.

    Args:
        cfg: the options, or a recipe that has them.
        divisor: sides of training pictures must be multiples of so many px.
        latent_downscale: px for one latent cell, in each direction; sides must be multiples of it too.
        seed: of the order of pictures, and of the validation split unless that has its own.
        has_guides: each picture goes with a guiding one, as for a ControlNet; else such pictures are masks.

    Raises:
        UserError: a dataset file or class, or a metadata file, cannot be read.
    """
    import math

    from sd_scripts.data.collect import collect

    options = DatasetOptions(**{name: getattr(cfg, name) for name in DatasetOptions.model_fields})
    return collect(options, math.lcm(divisor, latent_downscale), seed, has_guides=has_guides)


def with_fair_shares(samples: list[Sample]) -> list[int]:
    """`repeats` for each sample of one dataset: regularisation pictures are used as often as training pictures."""
    wanted = sum(sample.repeats for sample in samples if not sample.is_reg)
    shares = iter(fit_repeats([sample.repeats for sample in samples if sample.is_reg], wanted))
    return [next(shares) if sample.is_reg else sample.repeats for sample in samples]
