"""Which options are keys of a dataset file, in which of its tables, for which kinds of datasets.

Type, limits, choices and help of a key are those of the option of its name; keys that no trainer has as an option are
declared here in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sd_scripts.options.dataset import DatasetOptions
from sd_scripts.options.schema import Options, OptionSpec, option, specs
from sd_scripts.options.validation import Validation


class FileKeys(Options):
    title: ClassVar[str] = "Dataset file"

    image_dir: str | None = option(
        None, path="folder", level="essential", help="The folder that holds the pictures; its name says no repeats."
    )
    metadata_file: str | None = option(
        None, path="file", help="A JSON or JSONL file with the captions of all pictures; used instead of caption files."
    )
    class_tokens: str | None = option(None, help="Caption of pictures that have no caption file.")
    is_reg: bool = option(False, help="The pictures are regularisation pictures: the general class.")
    network_multiplier: float = option(1.0, level="expert", help="Without effect, known from older files.")
    custom_attributes: dict[str, Any] | None = option(
        None,
        level="expert",
        available=False,
        help="Marks for single pictures, such as diff_output_preservation = true.",
    )


class DatasetFileOptions(FileKeys, DatasetOptions, Validation):
    """All that a table of a dataset file can say."""


LEVELS = {"general": "[general]", "dataset": "[[datasets]]", "subset": "[[datasets.subsets]]"}
KINDS = {
    "dreambooth": "folders with caption files",
    "finetuning": "metadata files",
    "controlnet": "guiding pictures",
}


@dataclass(frozen=True)
class Key:
    """A key and where it may stand. `option` is what trainers call it."""

    name: str
    option: str
    levels: tuple[str, ...]
    kinds: tuple[str, ...]

    @property
    def spec(self) -> OptionSpec:
        return specs(DatasetFileOptions)[self.option]

    @property
    def tables(self) -> str:
        """The tables that may hold it, in words."""
        return " or ".join(LEVELS[level] for level in self.levels)


SPELLINGS = {"batch_size": "train_batch_size", "num_repeats": "dataset_repeats"}  # key → option
WITHOUT_EFFECT = {
    "network_multiplier": "no trainer uses it",
}
_BY_LEVELS = {
    ("general", "dataset", "subset"): (
        "num_repeats", "caption_extension", "class_tokens", "shuffle_caption", "keep_tokens", "keep_tokens_separator",
        "caption_separator", "secondary_separator", "enable_wildcard", "caption_prefix", "caption_suffix",
        "caption_dropout_rate", "caption_dropout_every_n_epochs", "caption_tag_dropout_rate", "token_warmup_min",
        "token_warmup_step", "flip_aug", "color_aug", "random_crop", "face_crop_aug_range", "alpha_mask",
        "resize_interpolation", "cache_info", "custom_attributes",
    ),
    ("general", "dataset"): (
        "resolution", "batch_size", "enable_bucket", "min_bucket_reso", "max_bucket_reso", "bucket_reso_steps",
        "bucket_no_upscale", "skip_image_resolution", "validation_split", "validation_seed", "network_multiplier",
    ),
    ("subset",): ("image_dir", "is_reg", "metadata_file", "conditioning_data_dir"),
}  # fmt: skip
_NOT_FOR_ALL_KINDS = {
    "caption_extension": ("dreambooth", "controlnet"), "cache_info": ("dreambooth", "controlnet"),
    "class_tokens": ("dreambooth",), "is_reg": ("dreambooth",), "alpha_mask": ("dreambooth", "finetuning"),
    "metadata_file": ("finetuning",), "conditioning_data_dir": ("controlnet",),
}  # fmt: skip
KEYS = {
    name: Key(name, SPELLINGS.get(name, name), levels, _NOT_FOR_ALL_KINDS.get(name, tuple(KINDS)))
    for levels, names in _BY_LEVELS.items()
    for name in names
}
