"""Rules: pictures and their sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sd_scripts.options.dataset import Caching, DatasetSource, Images
from sd_scripts.options.implied import caches_latents
from sd_scripts.options.methods import ControlNet, LLLite
from sd_scripts.options.problems import Problem, error, note, warning
from sd_scripts.options.rules.base import Families, Rule, named_file
from sd_scripts.options.sizes import check_bucket_steps, check_resolution, divisor_of, parse_resolution

GUIDED = (ControlNet, LLLite)  # methods that learn from pairs of pictures
CHANGE_THE_PICTURE = ("random_crop", "color_aug", "face_crop_aug_range")


def pictures_are_given(options: DatasetSource) -> Iterator[Problem]:
    if not any((options.train_data_dir, options.in_json, options.dataset_config, options.dataset_class)):
        yield error(
            "train_data_dir", "no pictures are given", "name a picture folder, or a dataset file in dataset_config"
        )


def guiding_pictures_are_given(options: DatasetSource) -> Iterator[Problem]:
    if options.dataset_config is not None or options.dataset_class is not None:
        return
    if isinstance(options, GUIDED) and options.conditioning_data_dir is None:
        yield error("conditioning_data_dir", "no guiding pictures are given", "name their folder, or a dataset file")
    uses_masks = getattr(options, "masked_loss", False)
    if not isinstance(options, GUIDED) and options.conditioning_data_dir is not None and not uses_masks:
        yield warning("conditioning_data_dir", "has no effect here", "set masked_loss to use its pictures as masks")


def dataset_file_replaces_folders(options: DatasetSource) -> Iterator[Problem]:
    if options.dataset_config is None:
        return
    for name in ("train_data_dir", "reg_data_dir", "in_json", "conditioning_data_dir"):
        if getattr(options, name) is not None:
            yield warning(name, "not used, because dataset_config is given", "remove one of the two")


def metadata_file_fits(options: DatasetSource) -> Iterator[Problem]:
    """A metadata file lists the pictures of one folder, and their latents with it."""
    if options.in_json is None or options.dataset_config is not None:
        return
    yield from named_file("in_json", options.in_json)
    if options.reg_data_dir is not None:
        yield warning("reg_data_dir", "not used, because in_json is given", "remove one of the two")
    for name in CHANGE_THE_PICTURE:
        if getattr(options, name, False):
            yield warning(name, "latents that lie beside the pictures are not used with it", f"leave {name} off")


def guided_pictures_stay_together(options: DatasetSource) -> Iterator[Problem]:
    """A picture and its guiding picture must show the same place."""
    if not isinstance(options, GUIDED):
        return
    if getattr(options, "random_crop", False):
        yield error("random_crop", "would cut a picture and its guiding picture differently", "leave it off")
    if getattr(options, "alpha_mask", False):
        yield warning("alpha_mask", "has no effect with guiding pictures", "leave it off")
    if options.reg_data_dir is not None:
        yield warning("reg_data_dir", "has no effect with guiding pictures", "leave it out")


def masks_are_given(options: Images) -> Iterator[Problem]:
    sources = ("dataset_config", "dataset_class", "conditioning_data_dir")
    is_given = any(getattr(options, name, None) for name in sources)
    if options.masked_loss and not is_given and not isinstance(options, GUIDED):
        yield error("masked_loss", "needs masks", "name their folder in conditioning_data_dir, or use a dataset file")


def own_dataset_class_is_alone(options: DatasetSource) -> Iterator[Problem]:
    if options.dataset_class is None:
        return
    for name in ("dataset_config", "train_data_dir", "reg_data_dir", "in_json"):
        if getattr(options, name) is not None:
            yield warning(name, "not used, because dataset_class is given", "remove one of the two")


def cached_latents_do_not_change(options: Caching) -> Iterator[Problem]:
    if not caches_latents(options):
        return
    for name in CHANGE_THE_PICTURE:
        if getattr(options, name):
            yield error(
                name,
                "changes the picture each time, which cached latents cannot",
                f"set cache_latents = false, or leave {name} off",
            )


def cache_on_disk_is_a_cache(options: Caching) -> Iterator[Problem]:
    for name in ("cache_latents", "cache_text_encoder_outputs"):
        if getattr(options, f"{name}_to_disk") and name in options.model_fields_set and not getattr(options, name):
            yield note(name, f"is on, because {name}_to_disk is", "leave one of the two out")


def sizes_fit_the_model(options: Images, families: Families) -> Iterator[Problem]:
    """Sizes of a dataset file are looked at where it is read."""
    if getattr(options, "dataset_config", None) is not None:
        return
    divisor = divisor_of(families)
    problems = check_resolution(options.resolution, divisor)
    if options.enable_bucket:
        problems += check_bucket_steps(options.bucket_reso_steps, divisor)
    yield from problems


def other_sizes_are_sizes(options: Images) -> Iterator[Problem]:
    text = options.skip_image_resolution
    if text is not None and parse_resolution(text) is None:
        yield error("skip_image_resolution", f"{text!r} is no size", "write 512, or width,height as in 512,768")


def face_range_is_a_range(options: Images) -> Iterator[Problem]:
    text = options.face_crop_aug_range
    if text is None:
        return
    number = r"\s*(\d+(?:\.\d+)?)\s*"
    match = re.fullmatch(f"{number},{number}", text.strip("()[] "))
    if match is None or not 0 < float(match[1]) <= float(match[2]):
        yield error("face_crop_aug_range", f"{text!r} is not two numbers, the smaller first", "write it as in 1.0,3.0")


def workers_that_persist(options: DatasetSource) -> Iterator[Problem]:
    is_asked = "persistent_data_loader_workers" in options.model_fields_set
    if is_asked and options.persistent_data_loader_workers and options.max_data_loader_n_workers == 0:
        yield note("persistent_data_loader_workers", "has no effect: there are no loader processes", "remove it")


def picture_folders_exist(options: DatasetSource) -> Iterator[Problem]:
    """Those that the plan does not look into itself."""
    folder = options.conditioning_data_dir
    if folder is not None and options.dataset_config is None and not Path(folder).is_dir():
        yield error("conditioning_data_dir", f"{folder}: no such folder", "check the path")


RULES: tuple[Rule, ...] = (
    pictures_are_given,
    guiding_pictures_are_given,
    picture_folders_exist,
    dataset_file_replaces_folders,
    metadata_file_fits,
    guided_pictures_stay_together,
    masks_are_given,
    own_dataset_class_is_alone,
    cached_latents_do_not_change,
    cache_on_disk_is_a_cache,
    sizes_fit_the_model,
    other_sizes_are_sizes,
    face_range_is_a_range,
    workers_that_persist,
)
