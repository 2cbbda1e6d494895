"""What is wrong or odd about pictures and captions, said before training. Each check returns problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sd_scripts.data.captions import caption_stems
from sd_scripts.data.faces import parse_range
from sd_scripts.data.images import UNREADABLE_REMEDY
from sd_scripts.data.listing import CAPTION_SUFFIXES, FolderListing, list_folder
from sd_scripts.data.wildcards import has_unbalanced_braces
from sd_scripts.data.words import counted, name_some, shown
from sd_scripts.options.implied import caches_all_text
from sd_scripts.options.problems import Problem, error, note, warning
from sd_scripts.options.rules.captions import CHANGE_THE_CAPTION

if TYPE_CHECKING:
    from sd_scripts.data.plan import FolderCounts, Sample
    from sd_scripts.data.sources import Subset
    from sd_scripts.options.dataset import DatasetOptions

LARGE_ENLARGEMENT = 2.0  # from here on a picture is visibly soft
MOST_NAMED = 20  # bad pictures that get a message of their own


def check_listing(listing: FolderListing, option: str) -> list[Problem]:
    """Empty folders, pictures that share a stem, hidden ones, pictures of kinds that are not read."""
    problems = []
    folder = shown(listing.path)
    if not listing.pictures:
        remedy = "put pictures into it or remove it"
        if any(list_folder(child).pictures for child in listing.folders):
            remedy = "its sub-folders hold pictures: move them up into it"
        problems.append(warning(option, f"folder {folder} holds no pictures", remedy))
    clashes = listing.same_stems()
    for names in clashes[:MOST_NAMED]:
        text = f"{' and '.join(map(shown, names))} in {folder} would share one caption file"
        problems.append(error(option, text, "rename one of them"))
    if len(clashes) > MOST_NAMED:
        text = f"{len(clashes) - MOST_NAMED} more names in {folder} stand for several pictures"
        problems.append(error(option, text, "rename them"))
    if unread := listing.unread_pictures():
        text = f"{counted(len(unread), 'file')} in {folder} of kinds that are not read: {name_some(unread)}"
        problems.append(note(option, text, "convert them to PNG or JPEG to use them"))
    if hidden := listing.hidden_pictures():
        text = f"{counted(len(hidden), 'hidden picture')} in {folder} not used: {name_some(hidden)}"
        problems.append(note(option, text, "remove the dot in front of their names to use them"))
    if blank := listing.blank_suffixes():
        text = f"{counted(len(blank), 'picture')} in {folder} not used, a blank around the name: {name_some(blank)}"
        problems.append(warning(option, text, "rename them"))
    return problems


def check_captions(
    counts: FolderCounts, samples: Sequence[Sample], listing: FolderListing, subset: Subset, option: str
) -> list[Problem]:
    """Captions that are missing though others lie there, pictures without any text, braces without partner."""
    problems = []
    other = _other_extension(counts, samples, listing)
    if other is not None:
        text = (
            f"no {counts.caption_extension} file for {counts.missing} of {counted(counts.images, 'picture')}"
            f" in {shown(listing.path)}, but {other} files lie there"
        )
        problems.append(warning("caption_extension", text, f'set caption_extension = "{other}"'))
    without = sum(sample.caption_source == "none" for sample in samples)
    if without:
        text = f"{counted(without, 'picture')} in {shown(listing.path)} with neither caption file nor class tokens"
        problems.append(warning(option, text, "write captions; without, they are trained with an empty one"))
    if subset.options.enable_wildcard:
        odd = [sample.path.name for sample in samples if any(map(has_unbalanced_braces, sample.lines))]
        if odd:
            text = (
                f"captions of {name_some(odd)} in {shown(listing.path)} have a brace without partner, trained as text"
            )
            problems.append(warning("enable_wildcard", text, "write {{ or }} where a brace is meant"))
    return problems


def check_masks(counts: FolderCounts, subset: Subset) -> list[Problem]:
    """A mask option that has no effect."""
    if not subset.options.alpha_mask or counts.masks or not counts.images:
        return []
    text = f"has no effect in {shown(subset.path)}: none of its pictures has transparency"
    return [warning("alpha_mask", text, "leave it off, or save the pictures with an alpha channel")]


def check_augmentation(
    subset: Subset, options: DatasetOptions, samples: Sequence[Sample], *, has_guides: bool
) -> list[Problem]:
    """What a subset of a dataset file sets against the cache (the rules look at the options of the run itself); random cuts
    that cannot be, and cuts around faces of which no name tells."""
    problems = []
    if options.cache_latents or options.cache_latents_to_disk:
        remedy = "set cache_latents = false, or leave {} off"
        problems += [
            error(
                name,
                f"of {shown(subset.path)} changes the picture each time, which cached latents cannot",
                remedy.format(name),
            )
            for name in ("random_crop", "color_aug", "face_crop_aug_range")
            if getattr(subset.options, name) and not getattr(options, name)
        ]
    if has_guides and subset.options.random_crop:
        problems.append(error("random_crop", "would cut a picture and its guiding picture differently", "leave it off"))
    return problems + _check_faces(subset, samples)


def _check_faces(subset: Subset, samples: Sequence[Sample]) -> list[Problem]:
    limits = subset.options.face_crop_aug_range
    if not limits:
        return []
    if parse_range(limits) is None:
        return [
            error("face_crop_aug_range", f"{limits!r} is not two numbers, the smaller first", "write it as in 1.0,3.0")
        ]
    without = [sample.path.name for sample in samples if sample.face is None]
    if not without:
        return []
    text = (
        f"{counted(len(without), 'picture')} in {shown(subset.path)} without a face in the name: {name_some(without)}"
    )
    return [
        warning("face_crop_aug_range", text, "they are cut in the middle; names end in _x_y_width_height of the face")
    ]


def check_cached_captions(subset: Subset, options: DatasetOptions) -> list[Problem]:
    """What a subset of a dataset file sets against cached captions; the rules look at the options of the run itself."""
    if not caches_all_text(options):
        return []
    return [
        error(
            name,
            f"of {shown(subset.path)} {what} at each use, which cached captions cannot",
            f"set cache_text_encoder_outputs = false, or leave {name} off",
        )
        for name, what in CHANGE_THE_CAPTION.items()
        if getattr(subset.options, name) and not getattr(options, name)
    ]


def check_regularisation(samples: Sequence[Sample], option: str) -> list[Problem]:
    """Regularisation pictures of one dataset: none to go with, or more than an epoch uses."""
    regularisation = [sample for sample in samples if sample.is_reg]
    if not regularisation:
        return []
    if len(regularisation) == len(samples):
        return [error(option, "there are regularisation pictures but no pictures to train", "check the picture folder")]
    unused = sum(sample.repeats == 0 for sample in regularisation)
    if not unused:
        return []
    uses = sum(sample.repeats for sample in regularisation)
    text = (
        f"an epoch uses regularisation pictures {uses} times, as often as training pictures;"
        f" {unused} of {len(regularisation)} wait for a later epoch"
    )
    return [note("reg_data_dir", text)]


def bad_pictures(bad: Mapping[Path, str], *, are_skipped: bool, option: str) -> list[Problem]:
    """Pictures that cannot be read, by path and reason."""
    if not bad:
        return []
    if are_skipped:
        reasons = (f"{path} ({problem})" for path, problem in bad.items())
        text = f"left out: {counted(len(bad), 'unreadable picture')}: {name_some(reasons)}"
        return [warning("on_bad_image", text, "replace them to use them")]
    listed = list(bad.items())
    problems = [
        error(option, f"{shown(path)} {shown(problem)}", UNREADABLE_REMEDY) for path, problem in listed[:MOST_NAMED]
    ]
    if len(listed) > MOST_NAMED:
        problems.append(
            error(option, f"unreadable: {counted(len(listed) - MOST_NAMED, 'more picture')}", UNREADABLE_REMEDY)
        )
    return problems


def too_small_pictures(paths: Sequence[Path]) -> list[Problem]:
    """Pictures that have no bucket because they are never enlarged."""
    if not paths:
        return []
    text = f"left out: {counted(len(paths), 'picture')} smaller than a bucket step: {name_some(paths)}"
    return [warning("bucket_no_upscale", text, "switch bucket_no_upscale off or lower bucket_reso_steps")]


def skipped_pictures(count: int) -> list[Problem]:
    """Pictures that are left out because they are small."""
    if not count:
        return []
    return [note("skip_image_resolution", f"left out: {counted(count, 'picture')} of at most that area")]


def check_scale(samples: Sequence[Sample]) -> list[Problem]:
    """Pictures that suffer from their bucket: enlarged a lot, or cut to less than half."""
    problems = []
    enlarged = [sample.path.name for sample in samples if sample.fit.scale(sample.size) > LARGE_ENLARGEMENT]
    if enlarged:
        text = f"{counted(len(enlarged), 'picture')} enlarged more than twice, soft therefore: {name_some(enlarged)}"
        problems.append(note("resolution", text, "use larger pictures, a lower resolution, or bucket_no_upscale"))
    narrow = [sample.path.name for sample in samples if 2 * _area(sample.fit.bucket) < _area(sample.fit.resized)]
    if narrow:
        text = f"{counted(len(narrow), 'picture')} cut to less than half, no bucket being as long: {name_some(narrow)}"
        problems.append(warning("max_bucket_reso", text, "cut them yourself, or allow longer buckets"))
    return problems


def _other_extension(counts: FolderCounts, samples: Sequence[Sample], listing: FolderListing) -> str | None:
    """The suffix of caption files that lie beside the pictures, where at least half have none of the expected suffix."""
    if not counts.missing or counts.missing * 2 < counts.images:
        return None
    stems = {stem for sample in samples for stem in caption_stems(sample.path.stem)}
    suffixes = Counter(f".{suffix}" for stem, _, suffix in (n.rpartition(".") for n in listing.others) if stem in stems)
    known = [suffix for suffix, _ in suffixes.most_common() if suffix.lower() in CAPTION_SUFFIXES]
    return next((suffix for suffix in known if suffix != counts.caption_extension), None)


def _area(size: tuple[int, int]) -> int:
    return size[0] * size[1]
