"""Builds the data plan: lists folders, reads headers and captions, fits pictures into buckets, and collects what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from sd_scripts.data.captions import caption_lines, caption_stems, decode_caption, normal_extension
from sd_scripts.data.dataset_file import file_sources
from sd_scripts.data.images import UNREADABLE_REMEDY
from sd_scripts.data.plan import DataPlan, FolderCounts, PlannedDataset, Sample, with_fair_shares
from sd_scripts.data.scan import (
    CAPTION_SUFFIXES,
    FolderListing,
    PictureFile,
    Probed,
    list_folder,
    name_some,
    probe_all,
)
from sd_scripts.data.sizes import Sizing, make_sizing
from sd_scripts.data.sources import Subset, folder_sources
from sd_scripts.data.wildcards import has_unbalanced_braces
from sd_scripts.errors import UserError
from sd_scripts.options.dataset import DatasetOptions
from sd_scripts.options.problems import Problem, error, note, warning

LARGE_ENLARGEMENT = 2.0  # from here on a picture is visibly soft


@dataclass
class _Findings:
    """What is gathered while the subsets are gone through."""

    options: DatasetOptions
    option: str  # that problems with pictures are shown at
    problems: list[Problem] = field(default_factory=list)
    bad: dict[Path, str] = field(default_factory=dict)
    too_small: list[Path] = field(default_factory=list)
    listings: dict[Path, FolderListing] = field(default_factory=dict)
    probed: dict[Path, dict[Path, Probed]] = field(default_factory=dict)
    captions_by_folder: dict[tuple[Path, str], dict[str, tuple[str, ...]]] = field(default_factory=dict)


def collect(options: DatasetOptions, divisor: int, seed: int) -> DataPlan:
    """See `plan_data`, which is the way in."""
    sources = file_sources(options) if options.dataset_config else folder_sources(options)
    found = _Findings(options, "dataset_config" if options.dataset_config else "train_data_dir")
    found.problems += sources.problems
    samples: list[Sample] = []
    subsets: list[Subset] = []
    datasets: list[PlannedDataset] = []
    counts: list[FolderCounts] = []
    for dataset in sources.datasets:
        sizing, problems = make_sizing(dataset.options, divisor)
        found.problems += problems
        own: list[Sample] = []
        first = len(subsets)
        for subset in dataset.subsets:
            _check_augmentation(subset, found, sources.is_from_file)
            collected, count = _collect_subset(subset, sizing, len(datasets), len(subsets), found)
            own += collected
            counts.append(count)
            subsets.append(subset)
        shares = with_fair_shares(own)
        samples += [replace(sample, repeats=share) for sample, share in zip(own, shares, strict=True)]
        _check_regularisation(own, shares, dataset.subsets, found)
        limits = sizing.limits if sizing else (0, 0)
        numbers = tuple(range(first, len(subsets)))
        datasets.append(PlannedDataset(dataset.options, numbers, sizing.resolution if sizing else (0, 0), limits))
    _report_bad(found)
    _report_scale(samples, found)
    if sources.datasets and not samples and not any(problem.level == "error" for problem in found.problems):
        found.problems.append(error(found.option, "there is no picture left to train on", "add pictures"))
    return DataPlan(
        samples=tuple(samples),
        subsets=tuple(subsets),
        datasets=tuple(datasets),
        folders=tuple(counts),
        problems=tuple(dict.fromkeys(found.problems)),
        bad_pictures=tuple(found.bad),
        seed=seed,
        is_from_file=sources.is_from_file,
        skips_bad_pictures=options.on_bad_image == "skip",
    )


def _collect_subset(
    subset: Subset, sizing: Sizing | None, dataset: int, number: int, found: _Findings
) -> tuple[list[Sample], FolderCounts]:
    listing = _listing(subset.folder, found)
    _check_listing(listing, subset, found)
    sizes = _probe(listing, found)
    extension = _caption_extension(listing, subset.options)
    captions = _read_captions(listing, extension, subset, found)
    samples = []
    for picture in listing.pictures:
        size = sizes[picture.path].size
        fit = sizing.fit(size) if sizing and size else None
        if size is None:
            found.bad[picture.path] = sizes[picture.path].problem
        elif sizing and fit is None:
            found.too_small.append(picture.path)
        elif fit is not None:
            samples.append(_sample(picture, size, fit, captions.get(picture.path.name), subset, dataset, number, found))
    with_file = [captions[sample.path.name] for sample in samples if sample.path.name in captions]
    count = FolderCounts(
        subset=number,
        images=len(samples),
        bad=sum(probed.size is None for probed in sizes.values()),
        caption_extension=extension,
        captions=sum(map(bool, with_file)),
        empty=sum(not lines for lines in with_file),
        missing=len(samples) - len(with_file),
        masks=len(samples) if subset.options.alpha_mask else 0,
    )
    _check_captions(count, samples, listing, subset, found)
    return samples, count


def _sample(
    picture: PictureFile, size, fit, lines, subset: Subset, dataset: int, number: int, found: _Findings
) -> Sample:
    source = "file"
    if lines is None:
        source = "folder" if subset.class_tokens else "none"
        lines = (subset.class_tokens,) if subset.class_tokens else ()
    return Sample(
        path=picture.path,
        size=size,
        fit=fit,
        lines=lines,
        caption_source=source,
        dataset=dataset,
        subset=number,
        repeats=subset.repeats,
        is_reg=subset.is_reg,
        loss_weight=found.options.prior_loss_weight if subset.is_reg else 1.0,
        bytes=picture.bytes,
        mtime_ns=picture.mtime_ns,
    )


def _listing(folder: Path, found: _Findings) -> FolderListing:
    """The folder's listing; several datasets may use one folder, which is then read once."""
    if folder not in found.listings:
        found.listings[folder] = list_folder(folder)
    return found.listings[folder]


def _probe(listing: FolderListing, found: _Findings) -> dict[Path, Probed]:
    if listing.path not in found.probed:
        results = probe_all(listing.pictures)
        paths = (picture.path for picture in listing.pictures)
        found.probed[listing.path] = dict(zip(paths, results, strict=True))
    return found.probed[listing.path]


def _caption_extension(listing: FolderListing, options: DatasetOptions) -> str:
    """The chosen one; else .caption where such files belong to pictures, else .txt."""
    if options.caption_extension:
        return normal_extension(options.caption_extension)
    names = {stem for picture in listing.pictures for stem in caption_stems(picture.path.stem)}
    has_captions = any(Path(name).suffix == ".caption" and Path(name).stem in names for name in listing.others)
    return ".caption" if has_captions else ".txt"


def _read_captions(
    listing: FolderListing, extension: str, subset: Subset, found: _Findings
) -> dict[str, tuple[str, ...]]:
    """Lines of the caption file of each picture that has one, by the picture's name."""
    if (listing.path, extension) in found.captions_by_folder:
        return found.captions_by_folder[listing.path, extension]
    captions = {}
    for picture in listing.pictures:
        names = [f"{stem}{extension}" for stem in caption_stems(picture.path.stem)]
        name = next((name for name in names if name in listing.others), None)
        if name is None:
            continue
        path = listing.path / name
        try:
            captions[picture.path.name] = caption_lines(decode_caption(path.read_bytes(), path))
        except UserError as problem:
            found.problems.append(error(found.option, str(problem)))
        except OSError as problem:
            text = f"caption file {path} cannot be read: {problem.strerror or problem}"
            found.problems.append(error(found.option, text, "check its permissions"))
    found.captions_by_folder[listing.path, extension] = captions
    return captions


def _check_listing(listing: FolderListing, subset: Subset, found: _Findings) -> None:
    if not listing.pictures:
        remedy = "put pictures into it or remove it"
        if any(list_folder(child).pictures for child in listing.folders):
            remedy = "its sub-folders hold pictures: move them up into it"
        found.problems.append(warning(found.option, f"folder {listing.path} holds no pictures", remedy))
    for names in listing.same_stems():
        text = f"{' and '.join(names)} in {listing.path} would share one caption file and one cache file"
        found.problems.append(error(found.option, text, "rename one of them"))
    if unread := listing.unread_pictures():
        text = f"{len(unread)} files in {listing.path} are of kinds that are not read: {name_some(unread)}"
        found.problems.append(note(found.option, text, "convert them to PNG or JPEG to use them"))
    for link in listing.broken_links:
        found.bad[link] = "is a link to a file that does not exist"


def _check_captions(
    count: FolderCounts, samples: list[Sample], listing: FolderListing, subset: Subset, found: _Findings
) -> None:
    folder = listing.path
    if count.missing and count.missing * 2 >= count.images:
        stems = {stem for sample in samples for stem in caption_stems(sample.path.stem)}
        suffixes = Counter(Path(name).suffix for name in listing.others if Path(name).stem in stems)
        others = [suffix for suffix in suffixes if suffix in CAPTION_SUFFIXES and suffix != count.caption_extension]
        if others:
            text = f"{count.missing} of {count.images} pictures in {folder} have no {count.caption_extension} file, but {others[0]} files lie there"
            found.problems.append(warning("caption_extension", text, f'set caption_extension = "{others[0]}"'))
    without = sum(sample.caption_source == "none" for sample in samples)
    if without:
        text = f"{without} pictures in {folder} have neither a caption file nor a name in the folder's name"
        found.problems.append(warning(found.option, text, "they are trained with an empty caption; write captions"))
    if subset.options.enable_wildcard:
        odd = [sample.path.name for sample in samples if any(map(has_unbalanced_braces, sample.lines))]
        if odd:
            text = f"captions of {name_some(odd)} in {folder} have a brace without partner, which is trained as text"
            found.problems.append(warning("enable_wildcard", text, "write {{ or }} where a brace is meant"))


def _check_augmentation(subset: Subset, found: _Findings, is_from_file: bool) -> None:
    """The rules know the options of a run; a dataset file may set more for a subset."""
    if not is_from_file or not (found.options.cache_latents or found.options.cache_latents_to_disk):
        return
    for name in ("random_crop", "color_aug"):
        if getattr(subset.options, name) and not getattr(found.options, name):
            text = f"of {subset.folder} changes the picture each time, which cached latents cannot"
            found.problems.append(error(name, text, f"set cache_latents = false, or leave {name} off"))


def _check_regularisation(
    samples: list[Sample], shares: list[int], subsets: Iterable[Subset], found: _Findings
) -> None:
    regularisation = [share for sample, share in zip(samples, shares, strict=True) if sample.is_reg]
    if not regularisation:
        return
    if len(regularisation) == len(samples):
        text = "there are regularisation pictures but no pictures to train"
        found.problems.append(error(found.option, text, "check the picture folder"))
        return
    unused = sum(share == 0 for share in regularisation)
    uses = sum(regularisation)
    if unused:
        text = f"an epoch uses {uses} regularisation pictures, as many as uses of training pictures; {unused} wait for a later epoch"
        found.problems.append(note("reg_data_dir", text))


def _report_bad(found: _Findings) -> None:
    skips = found.options.on_bad_image == "skip"
    if skips and found.bad:
        text = f"{len(found.bad)} unreadable pictures are left out: {name_some(found.bad)}"
        found.problems.append(warning("on_bad_image", text, "replace them to use them"))
    elif found.bad:
        listed = list(found.bad.items())
        found.problems += [error(found.option, f"{path} {problem}", UNREADABLE_REMEDY) for path, problem in listed[:20]]
        if len(listed) > 20:
            found.problems.append(
                error(found.option, f"{len(listed) - 20} more pictures cannot be used", UNREADABLE_REMEDY)
            )
    if found.too_small:
        text = (
            f"{len(found.too_small)} pictures are smaller than a bucket step and left out: {name_some(found.too_small)}"
        )
        found.problems.append(
            warning("bucket_no_upscale", text, "switch bucket_no_upscale off or lower bucket_reso_steps")
        )


def _report_scale(samples: list[Sample], found: _Findings) -> None:
    enlarged = [sample.path.name for sample in samples if sample.fit.scale(sample.size) > LARGE_ENLARGEMENT]
    if enlarged:
        text = f"{len(enlarged)} pictures are enlarged more than twice and will look soft: {name_some(enlarged)}"
        found.problems.append(note("resolution", text, "use larger pictures, a lower resolution, or bucket_no_upscale"))
    narrow = [
        sample.path.name
        for sample in samples
        if sample.fit.bucket[0] * sample.fit.bucket[1] * 2 < sample.fit.resized[0] * sample.fit.resized[1]
    ]
    if narrow:
        text = f"{len(narrow)} pictures lose more than half of their area, because no bucket has their shape: {name_some(narrow)}"
        found.problems.append(warning("max_bucket_reso", text, "cut them yourself, or allow longer buckets"))
