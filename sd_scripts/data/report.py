"""A data plan told: as plain values, as lines of text, and as the metadata of a network file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sd_scripts.data.captions import tags_of
from sd_scripts.data.words import counted, shown

if TYPE_CHECKING:
    from sd_scripts.data.plan import BucketGroup, DataPlan, Sample


def summary(plan: DataPlan, count_tokens: Callable[[str], int] | None, token_limit: int) -> dict[str, Any]:
    """See `DataPlan.summary`."""
    samples: dict[int, list[Sample]] = {}
    for sample in plan.samples:
        samples.setdefault(sample.subset, []).append(sample)
    folders = [
        _folder(plan, number, samples.get(number, []), count_tokens, token_limit) for number in range(len(plan.folders))
    ]
    return {
        "is_from_file": plan.is_from_file,
        "images": sum(not sample.is_reg for sample in plan.samples),
        "regularisation_images": sum(sample.is_reg for sample in plan.samples),
        "uses": sum(group.use_count for group in plan.groups),
        "batches_per_epoch": plan.batches_per_epoch(),
        "folders": folders,
        "buckets": [_bucket(plan, group) for group in plan.groups],
        "bad_pictures": [shown(path) for path in plan.bad_pictures],
        "is_index_used": plan.is_index_used,
        "validation_images": len(plan.validation.samples) if plan.validation else 0,
    }


def _folder(
    plan: DataPlan, number: int, samples: list[Sample], count_tokens: Callable[[str], int] | None, token_limit: int
) -> dict[str, Any]:
    counts, subset = plan.folders[number], plan.subsets[number]
    too_long = None
    if count_tokens is not None:
        too_long = sum(any(count_tokens(line) > token_limit for line in sample.lines) for sample in samples)
    return {
        "path": shown(subset.path),
        "name": shown(subset.name),
        "images": counts.images,
        "repeats": subset.repeats,
        "uses": sum(sample.repeats for sample in samples),
        "is_reg": subset.is_reg,
        "class_tokens": subset.class_tokens,
        "bad": counts.bad,
        "masks": counts.masks,
        "controls": counts.controls,
        "captions": {
            "extension": counts.caption_extension,
            "found": counts.captions,
            "empty": counts.empty,
            "missing": counts.missing,
            "too_long": too_long,
        },
    }


def _bucket(plan: DataPlan, group: BucketGroup) -> dict[str, Any]:
    numbers = {sample for sample, _ in group.fixed} | set(group.pool)
    samples = [plan.samples[number] for number in numbers]
    scales = [sample.fit.scale(sample.size) for sample in samples]
    return {
        "dataset": group.dataset,
        "resolution": list(group.bucket),
        "images": len(samples),
        "uses": group.use_count,
        "batches": group.batches(),
        "scale": [round(min(scales), 4), round(max(scales), 4)],
        "largest_cut": [max(sample.fit.cut[axis] for sample in samples) for axis in (0, 1)],
    }


def lines(plan: DataPlan) -> Iterator[str]:
    """See `DataPlan.lines`."""
    told = summary(plan, None, 0)
    for folder in told["folders"]:
        captions = folder["captions"]
        kind = "regularisation picture" if folder["is_reg"] else "picture"
        notes = [f"{counted(captions['found'], 'caption')} ({captions['extension']})"]
        notes += [f"{captions[key]} {key}" for key in ("empty", "missing") if captions[key]]
        notes += [counted(folder["masks"], "mask")] if folder["masks"] else []
        notes += [counted(folder["controls"], "guiding picture")] if folder["controls"] else []
        notes += [f"{folder['bad']} unreadable"] if folder["bad"] else []
        yield f"Pictures   {folder['name']}: {counted(folder['images'], kind)} × {folder['repeats']}; {', '.join(notes)}"
    for bucket in told["buckets"]:
        width, height = bucket["resolution"]
        low, high = bucket["scale"]
        scale = f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
        cut = bucket["largest_cut"]
        loss = f", up to {cut[0]} × {cut[1]} px cut off" if any(cut) else ""
        pictures, batches = counted(bucket["images"], "picture"), bucket["batches"]
        yield f"Bucket     {width} × {height}: {pictures} in {batches} batches an epoch, scaled by {scale}{loss}"
    if told["validation_images"]:
        yield f"Held out   {counted(told['validation_images'], 'picture')} to measure by"


def dataset_summary(plan: DataPlan) -> dict[str, Any]:
    """See `DataPlan.dataset_summary`."""
    return {
        "is_from_file": plan.is_from_file,
        "num_batches_per_epoch": plan.batches_per_epoch(),
        "num_validation_images": len(plan.validation.samples) if plan.validation else 0,
        "datasets": [_dataset(plan, number) for number in range(len(plan.datasets))],
    }


def _dataset(plan: DataPlan, number: int) -> dict[str, Any]:
    dataset = plan.datasets[number]
    options = dataset.options
    samples = [sample for sample in plan.samples if sample.dataset == number]
    own = [sample.repeats for sample in samples if not sample.is_reg]
    regularisation = [plan.subsets[sample.subset].repeats for sample in samples if sample.is_reg]
    is_dreambooth = all(plan.subsets[at].metadata_file is None for at in dataset.subsets)
    has_limits = options.enable_bucket and not options.bucket_no_upscale
    return {
        "is_dreambooth": is_dreambooth,
        "batch_size_per_device": options.train_batch_size,
        "num_train_images": sum(own),
        "num_reg_images": sum(regularisation),
        "resolution": tuple(dataset.resolution),
        "enable_bucket": options.enable_bucket,
        "min_bucket_reso": dataset.bucket_limits[0] if has_limits else None,
        "max_bucket_reso": dataset.bucket_limits[1] if has_limits else None,
        "tag_frequency": _tag_frequency(plan, samples),
        "bucket_info": _bucket_info(plan, number, samples) if options.enable_bucket else None,
        "resize_interpolation": options.resize_interpolation,
        "subsets": [_subset(plan, at) for at in dataset.subsets],
    }


def _subset(plan: DataPlan, number: int) -> dict[str, Any]:
    subset, options = plan.subsets[number], plan.subsets[number].options
    same = (
        "color_aug", "flip_aug", "random_crop", "shuffle_caption", "keep_tokens", "keep_tokens_separator",
        "secondary_separator", "enable_wildcard", "caption_prefix", "caption_suffix", "resize_interpolation",
    )  # fmt: skip
    return {
        "img_count": sum(sample.subset == number for sample in plan.samples),
        "num_repeats": subset.repeats,
        "image_dir": str(subset.path),
        "metadata_file": str(subset.metadata_file) if subset.metadata_file else None,
        "class_tokens": subset.class_tokens,
        "is_reg": subset.is_reg,
        **{name: getattr(options, name) for name in same},
    }


def _tag_frequency(plan: DataPlan, samples: list[Sample]) -> dict[str, dict[str, int]]:
    """Tags as they are trained, counted once for each picture they stand at, by the name of the folder or metadata file."""
    found: dict[str, Counter[str]] = {}
    for number in sorted({sample.subset for sample in samples}):
        counts = plan.folders[number].tag_counts
        if counts is not None:
            found.setdefault(plan.subsets[number].name, Counter()).update(counts)
    for sample in samples:
        if plan.folders[sample.subset].tag_counts is None:
            subset = plan.subsets[sample.subset]
            found.setdefault(subset.name, Counter()).update(tags_of(sample.lines, subset.options))
    return {folder: dict(tags) for folder, tags in found.items()}


def _bucket_info(plan: DataPlan, number: int, samples: list[Sample]) -> dict[str, Any]:
    groups = [group for group in plan.groups if group.dataset == number]
    errors = [abs(sample.fit.aspect_error) for sample in samples]
    return {
        "buckets": {
            at: {"resolution": list(group.bucket), "count": group.use_count} for at, group in enumerate(groups)
        },
        "mean_img_ar_error": sum(errors) / len(errors) if errors else 0.0,
    }
