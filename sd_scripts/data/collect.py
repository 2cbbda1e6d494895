"""Builds the data plan: lists folders, reads headers and captions, fits pictures into buckets, collects problems."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from sd_scripts.data import preflight
from sd_scripts.data.captions import caption_lines, caption_stems, decode_caption, normal_extension
from sd_scripts.data.dataset_file import file_sources
from sd_scripts.data.plan import DataPlan, FolderCounts, PlannedDataset, Sample, with_fair_shares
from sd_scripts.data.scan import DECODE_SECONDS, FolderListing, PictureFile, Probed, list_folder, probe_all
from sd_scripts.data.sizes import Sizing, make_sizing
from sd_scripts.data.sources import Dataset, Subset, folder_sources
from sd_scripts.errors import UserError
from sd_scripts.options.dataset import DatasetOptions
from sd_scripts.options.problems import Problem, error

Captions = dict[str, tuple[str, ...]]  # lines of the caption file by the picture's name, where there is one


def collect(options: DatasetOptions, divisor: int, seed: int) -> DataPlan:
    """See `plan_data`, which is the way in."""
    sources = file_sources(options) if options.dataset_config else folder_sources(options)
    collector = _Collector(options)
    collector.problems += sources.problems
    for dataset in sources.datasets:
        collector.add_dataset(dataset, divisor)
    collector.finish()
    return DataPlan(
        samples=tuple(collector.samples),
        subsets=tuple(collector.subsets),
        datasets=tuple(collector.datasets),
        folders=tuple(collector.folders),
        problems=tuple(dict.fromkeys(collector.problems)),
        bad_pictures=tuple(collector.bad),
        seed=seed,
        is_from_file=sources.is_from_file,
        skips_bad_pictures=options.on_bad_image == "skip",
    )


class _Collector:
    """Gathers the parts of a plan, subset by subset. A folder that several datasets use is read once."""

    def __init__(self, options: DatasetOptions):
        self.options = options
        self.option = "dataset_config" if options.dataset_config else "train_data_dir"  # problems are shown there
        self.samples: list[Sample] = []
        self.subsets: list[Subset] = []
        self.datasets: list[PlannedDataset] = []
        self.folders: list[FolderCounts] = []
        self.problems: list[Problem] = []
        self.bad: dict[Path, str] = {}
        self._too_small: list[Path] = []
        self._decode_deadline = time.monotonic() + DECODE_SECONDS
        self._listings: dict[Path, FolderListing] = {}
        self._probed: dict[Path, dict[Path, Probed]] = {}
        self._captions: dict[tuple[Path, str], Captions] = {}

    def add_dataset(self, dataset: Dataset, divisor: int) -> None:
        sizing, problems = make_sizing(dataset.options, divisor)
        self.problems += problems
        number, first = len(self.datasets), len(self.subsets)
        samples: list[Sample] = []
        for subset in dataset.subsets:
            samples += self._add_subset(subset, sizing, number)
        shares = with_fair_shares(samples)
        samples = [
            sample if sample.repeats == share else replace(sample, repeats=share)
            for sample, share in zip(samples, shares, strict=True)
        ]
        self.problems += preflight.check_regularisation(samples, self.option)
        self.samples += samples
        self.datasets.append(
            PlannedDataset(
                options=dataset.options,
                subsets=tuple(range(first, len(self.subsets))),
                resolution=sizing.resolution if sizing else (0, 0),
                bucket_limits=sizing.limits if sizing else (0, 0),
            )
        )

    def finish(self) -> None:
        """Say what can only be said of all."""
        skips = self.options.on_bad_image == "skip"
        self.problems += preflight.bad_pictures(self.bad, are_skipped=skips, option=self.option)
        self.problems += preflight.too_small_pictures(self._too_small)
        self.problems += preflight.check_scale(self.samples)
        if not self.samples and not any(problem.level == "error" for problem in self.problems):
            self.problems.append(error(self.option, "there is no picture to train on", "add pictures"))

    def _add_subset(self, subset: Subset, sizing: Sizing | None, dataset: int) -> list[Sample]:
        listing = self._listing(subset.folder)
        probed = self._probe(listing)
        extension = _caption_extension(listing, subset.options)
        captions = self._read_captions(listing, extension)
        samples = []
        for picture in listing.pictures:
            header = probed[picture.path].header
            if header is None:
                self.bad[picture.path] = probed[picture.path].problem
                continue
            fit = sizing.fit(header.size) if sizing else None
            if fit is not None:
                lines, source = _caption(captions.get(picture.path.name), subset)
                sample = Sample(
                    path=picture.path,
                    size=header.size,
                    fit=fit,
                    lines=lines,
                    caption_source=source,
                    repeats=subset.repeats,
                    is_reg=subset.is_reg,
                    loss_weight=self.options.prior_loss_weight if subset.is_reg else 1.0,
                    bytes=picture.bytes,
                    mtime_ns=picture.mtime_ns,
                    dataset=dataset,
                    subset=len(self.subsets),
                )
                samples.append(sample)
            elif sizing is not None:
                self._too_small.append(picture.path)
        counts = self._count(samples, listing, probed, extension, captions, subset)
        self.problems += preflight.check_listing(listing, self.option)
        self.problems += preflight.check_captions(counts, samples, listing, subset, self.option)
        self.problems += preflight.check_masks(counts, subset)
        self.problems += preflight.check_augmentation(subset, self.options)
        self.bad |= dict.fromkeys(listing.broken_links, "is a link to a file that does not exist")
        self.folders.append(counts)
        self.subsets.append(subset)
        return samples

    def _count(
        self,
        samples: list[Sample],
        listing: FolderListing,
        probed: dict[Path, Probed],
        extension: str,
        captions: Captions,
        subset: Subset,
    ) -> FolderCounts:
        with_file = [captions[sample.path.name] for sample in samples if sample.caption_source == "file"]
        headers = (probed[sample.path].header for sample in samples)
        return FolderCounts(
            subset=len(self.subsets),
            images=len(samples),
            bad=sum(result.header is None for result in probed.values()) + len(listing.broken_links),
            caption_extension=extension,
            captions=sum(map(bool, with_file)),
            empty=sum(not lines for lines in with_file),
            missing=len(samples) - len(with_file),
            masks=sum(header.has_alpha for header in headers if header) if subset.options.alpha_mask else 0,
        )

    def _listing(self, folder: Path) -> FolderListing:
        if folder not in self._listings:
            self._listings[folder] = list_folder(folder)
        return self._listings[folder]

    def _probe(self, listing: FolderListing) -> dict[Path, Probed]:
        if listing.path not in self._probed:
            results = probe_all(listing.pictures, self._decode_deadline)
            paths = (picture.path for picture in listing.pictures)
            self._probed[listing.path] = dict(zip(paths, results, strict=True))
        return self._probed[listing.path]

    def _read_captions(self, listing: FolderListing, extension: str) -> Captions:
        if (listing.path, extension) not in self._captions:
            captions: Captions = {}
            for picture in listing.pictures:
                lines = self._read_caption(picture, listing, extension)
                if lines is not None:
                    captions[picture.path.name] = lines
            self._captions[listing.path, extension] = captions
        return self._captions[listing.path, extension]

    def _read_caption(self, picture: PictureFile, listing: FolderListing, extension: str) -> tuple[str, ...] | None:
        names = (f"{stem}{extension}" for stem in caption_stems(picture.path.stem))
        name = next((name for name in names if name in listing.others), None)
        if name is None:
            return None
        path = listing.path / name
        try:
            return caption_lines(decode_caption(path.read_bytes(), path))
        except UserError as problem:
            self.problems.append(error(self.option, str(problem)))
        except OSError as problem:
            text = f"caption file {path} cannot be read: {problem.strerror or problem}"
            self.problems.append(error(self.option, text, "check its permissions"))
        return None


def _caption_extension(listing: FolderListing, options: DatasetOptions) -> str:
    """The chosen one; else .caption where such files belong to pictures, else .txt."""
    if options.caption_extension:
        return normal_extension(options.caption_extension)
    stems = {stem for picture in listing.pictures for stem in caption_stems(picture.path.stem)}
    has_captions = any(Path(name).suffix == ".caption" and Path(name).stem in stems for name in listing.others)
    return ".caption" if has_captions else ".txt"


def _caption(lines: tuple[str, ...] | None, subset: Subset) -> tuple[tuple[str, ...], str]:
    """Lines of a picture's caption and where they come from."""
    if lines is not None:
        return lines, "file"
    return ((subset.class_tokens,), "folder") if subset.class_tokens else ((), "none")
