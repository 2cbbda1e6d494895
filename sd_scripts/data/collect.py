"""Builds the data plan: reads the sources, fits pictures into buckets, holds some out, collects problems."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sd_scripts.data import preflight
from sd_scripts.data.dataset_file import file_sources
from sd_scripts.data.entries import Found, SubsetContent
from sd_scripts.data.faces import face_in, parse_range
from sd_scripts.data.parallel import in_parts
from sd_scripts.data.plan import DataPlan, FolderCounts, PlannedDataset, Sample, with_fair_shares
from sd_scripts.data.readers import Role, SubsetReader
from sd_scripts.data.scan import Scanner
from sd_scripts.data.sizes import Sizing, make_sizing
from sd_scripts.data.sources import Dataset, Subset, option_sources
from sd_scripts.data.validation import check_split, split_datasets, without_variation
from sd_scripts.options.dataset import DatasetOptions
from sd_scripts.options.problems import Problem, error


def collect(options: DatasetOptions, divisor: int, seed: int, *, has_guides: bool) -> DataPlan:
    """See `plan_data`, which is the way in."""
    with _without_garbage_collection():
        return _collect(options, divisor, seed, has_guides=has_guides)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A plan is many small objects that stay; the collector would look through all of them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _collect(options: DatasetOptions, divisor: int, seed: int, *, has_guides: bool) -> DataPlan:
    sources = file_sources(options) if options.dataset_config else option_sources(options, has_guides=has_guides)
    role: Role | None = "control" if has_guides else "mask" if options.masked_loss else None
    collector = _Collector(options, role)
    collector.problems += sources.problems
    for dataset in sources.datasets:
        collector.add_dataset(dataset, divisor)
    return collector.finish(seed, is_from_file=sources.is_from_file)


class _Collector:
    """Gathers the parts of a plan, subset by subset."""

    def __init__(self, options: DatasetOptions, role: Role | None):
        self.options = options
        self.option = "dataset_config" if options.dataset_config else "train_data_dir"  # problems are shown there
        self.role = role
        self.samples: list[list[Sample]] = []  # of each dataset
        self.subsets: list[Subset] = []
        self.datasets: list[PlannedDataset] = []
        self.folders: list[FolderCounts] = []
        self.problems: list[Problem] = []
        self.bad: dict[Path, str] = {}
        self._too_small: list[Path] = []
        self._skipped = 0  # pictures below skip_image_resolution
        self._scanner = Scanner()
        self._reader = SubsetReader(options, self._scanner, role)

    def add_dataset(self, dataset: Dataset, divisor: int) -> None:
        sizing, problems = make_sizing(dataset.options, divisor)
        self.problems += problems
        first = len(self.subsets)
        self.samples.append([])
        for subset in dataset.subsets:
            self.samples[-1] += self._add_subset(subset, sizing)
        self.datasets.append(
            PlannedDataset(
                options=dataset.options,
                subsets=tuple(range(first, len(self.subsets))),
                resolution=sizing.resolution if sizing else (0, 0),
                bucket_limits=sizing.limits if sizing else (0, 0),
            )
        )

    def finish(self, seed: int, *, is_from_file: bool) -> DataPlan:
        """The plan, with what can only be said of all."""
        validated = self._hold_out(seed)
        samples = []
        for own in self.samples:
            self.problems += preflight.check_regularisation(shared := _with_shares(own), self.option)
            samples += shared
        skips = self.options.on_bad_image == "skip"
        self.problems += preflight.bad_pictures(self.bad, are_skipped=skips, option=self.option)
        self.problems += preflight.too_small_pictures(self._too_small)
        self.problems += preflight.skipped_pictures(self._skipped)
        self.problems += preflight.check_scale(samples)
        if not samples and not any(problem.level == "error" for problem in self.problems):
            self.problems.append(error(self.option, "there is no picture to train on", "add pictures"))
        self._scanner.close()
        plan = DataPlan(
            samples=tuple(samples),
            subsets=tuple(self.subsets),
            datasets=tuple(self.datasets),
            folders=tuple(self.folders),
            problems=tuple(dict.fromkeys(self.problems)),
            bad_pictures=tuple(self.bad),
            seed=seed,
            is_from_file=is_from_file,
            skips_bad_pictures=skips,
            is_index_used=self._scanner.was_indexed,
        )
        return replace(plan, validation=_validation_plan(plan, validated)) if validated else plan

    def _add_subset(self, subset: Subset, sizing: Sizing | None) -> list[Sample]:
        content = self._reader.read(subset)
        samples = list(self._samples(subset, content, sizing)) if sizing else []
        counts = self._count(samples, content)
        self.bad |= content.bad
        self.problems += content.problems
        if subset.folder is not None and subset.metadata_file is None:
            listing = self._scanner.folder(subset.folder).listing
            self.problems += preflight.check_captions(counts, samples, listing, subset, self.option)
        self.problems += preflight.check_masks(counts, subset)
        self.problems += preflight.check_cached_captions(subset, self.options)
        self.problems += preflight.check_augmentation(subset, self.options, samples, has_guides=self.role == "control")
        self.folders.append(counts)
        self.subsets.append(subset)
        return samples

    def _samples(self, subset: Subset, content: SubsetContent, sizing: Sizing) -> Iterator[Sample]:
        number, dataset = len(self.subsets), len(self.datasets)
        weight = self.options.prior_loss_weight if subset.is_reg else 1.0
        cuts_faces = bool(subset.options.face_crop_aug_range and parse_range(subset.options.face_crop_aug_range))
        for found in content.found:
            size = found.header.size
            if sizing.is_skipped(size):
                self._skipped += 1
                continue
            fit = sizing.fit(size)
            if fit is None:
                self._too_small.append(found.path)
                continue
            yield Sample(
                found.path, size, fit, found.lines, found.caption_source, dataset, number, subset.repeats,
                subset.is_reg, weight, found.bytes, found.mtime_ns, _mask(found, subset), found.control,
                face_in(found.path.stem, size) if cuts_faces else None,
            )  # fmt: skip

    def _count(self, samples: list[Sample], content: SubsetContent) -> FolderCounts:
        with_file = [sample for sample in samples if sample.caption_source == "file"]
        transparent = {found.path for found in content.found if found.header.has_alpha}
        masks = sum(isinstance(s.mask, Path) or (s.mask == "alpha" and s.path in transparent) for s in samples)
        return FolderCounts(
            subset=len(self.subsets),
            images=len(samples),
            bad=len(content.bad),
            caption_extension=content.extension,
            captions=sum(bool(sample.lines) for sample in with_file),
            empty=sum(not sample.lines for sample in with_file),
            missing=len(samples) - len(with_file),
            masks=masks,
            controls=sum(sample.control is not None for sample in samples),
            tag_counts=content.tag_counts,
        )

    def _hold_out(self, seed: int) -> list[Sample]:
        """Take held-out pictures, and copies of them, out of what is trained; returns those to measure by."""
        shares = [dataset.options.validation_split for dataset in self.datasets]
        if not any(shares):
            return []
        contents = [self._contents(own) for own in self.samples]
        regularisation = {
            found[at]
            for own, found in zip(self.samples, contents, strict=True)
            for at, sample in enumerate(own)
            if sample.is_reg and at in found
        }
        own_contents = [
            {at: content for at, content in found.items() if not own[at].is_reg}
            for own, found in zip(self.samples, contents, strict=True)
        ]
        held_out = split_datasets(own_contents, [d.options for d in self.datasets], regularisation, seed)
        validated, dropped = [], 0
        for number, (own, found, share) in enumerate(zip(self.samples, own_contents, shares, strict=True)):
            out = {at for at, content in found.items() if content in held_out}
            if share:
                validated += [replace(own[at], repeats=1) for at in sorted(out)]
            else:
                dropped += len(out)
            self.samples[number] = [sample for at, sample in enumerate(own) if at not in out]
        trained = sum(not sample.is_reg for own in self.samples for sample in own)
        self.problems += check_split(shares, len(validated), trained, dropped)
        return validated

    def _contents(self, samples: list[Sample]) -> dict[int, str]:
        """Content hashes by place in the list; pictures that cannot be read now become bad ones."""
        contents = {}
        found = (content for part in in_parts(self._content, samples) for content in part)
        for at, content in enumerate(found):
            if isinstance(content, OSError):
                self.bad[samples[at].path] = f"cannot be read: {content.strerror or content}"
            else:
                contents[at] = content
        return contents

    def _content(self, sample: Sample) -> str | OSError:
        try:
            return self._scanner.content(sample.path)
        except OSError as problem:
            return problem


def _mask(found: Found, subset: Subset) -> Path | str | None:
    if found.mask is not None:
        return found.mask
    return "alpha" if subset.options.alpha_mask else None


def _with_shares(samples: list[Sample]) -> list[Sample]:
    """With regularisation pictures used as often as training pictures."""
    shares = with_fair_shares(samples)
    return [
        sample if sample.repeats == share else replace(sample, repeats=share)
        for sample, share in zip(samples, shares, strict=True)
    ]


def _validation_plan(plan: DataPlan, samples: list[Sample]) -> DataPlan:
    """A plan of its own for the held-out pictures: used once, without variation."""
    counts = Counter(sample.subset for sample in samples)
    return replace(
        plan,
        samples=tuple(samples),
        subsets=tuple(replace(subset, options=without_variation(subset.options)) for subset in plan.subsets),
        folders=tuple(replace(folder, images=counts[folder.subset]) for folder in plan.folders),
        problems=(),
        bad_pictures=(),
    )
