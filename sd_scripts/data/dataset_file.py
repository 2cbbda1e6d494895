"""Dataset files: [general], [[datasets]] and [[datasets.subsets]] in TOML or JSON.

A key holds for everything inside its table unless an inner table says otherwise; what no table says comes from the
command line or settings file. Keys are the options of `sd_scripts.options.dataset` and the few declared here; their
types and limits are checked table by table, so that an error names the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sd_scripts.data.sources import Dataset, Sources, Subset
from sd_scripts.errors import UserError
from sd_scripts.options.build import try_build, unknown_name
from sd_scripts.options.dataset import DatasetOptions
from sd_scripts.options.problems import Problem, error, note, warning
from sd_scripts.options.schema import Options, option
from sd_scripts.options.toml_files import load_toml


class SubsetKeys(Options):
    """Keys that only a dataset file has."""

    title: ClassVar[str] = "Dataset file"

    image_dir: str | None = option(None, path="folder", help="The folder that holds the pictures.")
    class_tokens: str | None = option(None, help="Caption of pictures that have no caption file.")
    is_reg: bool = option(False, help="The pictures are regularisation pictures.")


# A dataset file's names for options that are called differently elsewhere.
SPELLINGS = {"batch_size": "train_batch_size", "num_repeats": "dataset_repeats"}

# Options that say where data comes from, or hold for a run as a whole: not keys of a dataset file.
NOT_KEYS = frozenset({
    "train_data_dir", "reg_data_dir", "dataset_config", "prior_loss_weight", "on_bad_image",
    "max_data_loader_n_workers", "persistent_data_loader_workers",
    "cache_latents", "cache_latents_to_disk", "vae_batch_size", "skip_cache_check",
    "train_batch_size", "dataset_repeats",
    "in_json", "conditioning_data_dir", "dataset_class", "train_inpainting", "debug_dataset", "masked_loss", "cache_info",
    "face_crop_aug_range", "skip_image_resolution",
    "cache_text_encoder_outputs", "cache_text_encoder_outputs_to_disk", "text_encoder_batch_size",
})  # fmt: skip
# Keys that all subsets of a dataset share.
DATASET_ONLY = frozenset({
    "batch_size", "resolution", "enable_bucket", "min_bucket_reso", "max_bucket_reso", "bucket_reso_steps",
    "bucket_no_upscale",
})  # fmt: skip
SUBSET_ONLY = frozenset({"image_dir", "is_reg"})

NOT_YET = {
    "metadata_file": "fine-tuning metadata files are not yet available; use image folders with caption files",
    "conditioning_data_dir": "conditioning pictures are not yet available; leave it out",
    "face_crop_aug_range": "cutting around faces is not yet available; leave it out",
    "validation_split": "holding pictures back for validation is not yet available; leave it out",
    "skip_image_resolution": "leaving out small pictures is not yet available; leave it out",
    "custom_attributes": "custom attributes are not yet available; leave it out",
}
WITHOUT_EFFECT = {
    "cache_info": "sizes and captions are read anew at each start, which is fast",
    "network_multiplier": "no trainer uses it",
    "validation_seed": "no pictures are held back for validation",
}


def known_keys() -> frozenset[str]:
    """Every key that some table of a dataset file may hold."""
    return frozenset(DatasetOptions.model_fields) - NOT_KEYS | set(SubsetKeys.model_fields) | set(SPELLINGS)


def keys_of(level: str) -> frozenset[str]:
    """Keys that a table may hold; `level` is "general", "dataset" or "subset"."""
    left_out = {"general": SUBSET_ONLY, "dataset": SUBSET_ONLY, "subset": DATASET_ONLY}[level]
    return known_keys() - left_out


@dataclass(frozen=True)
class _Table:
    name: str  # "[[datasets]] 1"
    level: str
    values: Mapping[str, Any]


def file_sources(options: DatasetOptions) -> Sources:
    """The datasets that `options.dataset_config` describes.

    Raises:
        UserError: the file is missing or cannot be read as TOML or JSON.
    """
    path = Path(str(options.dataset_config))
    content = _load(path)
    problems = [
        unknown_name(key, ("general", "datasets"), f" at the top of {path.name}")
        for key in content
        if key not in ("general", "datasets")
    ]
    general = _table("[general]", "general", content.get("general", {}), path, problems)
    datasets = []
    tables = _tables("[[datasets]]", "dataset", content.get("datasets"), path, problems)
    for number, table in enumerate(tables, 1):
        where = f"[[datasets.subsets]] of dataset {number},"
        subsets = _tables(where, "subset", table.values.get("subsets"), path, problems)
        dataset = _dataset(options, path, (general, table), subsets, problems)
        datasets += [dataset] if dataset else []
    return Sources(tuple(datasets), tuple(problems), is_from_file=True)


def _load(path: Path) -> Mapping[str, Any]:
    match path.suffix.lower():
        case ".toml":
            return load_toml(path)
        case ".json":
            return _load_json(path)
    raise UserError(f"dataset_config: {path} is neither .toml nor .json: give it the suffix of what it holds")


def _load_json(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path of the dataset file") from None
    except OSError as failure:
        raise UserError(f"{path}: cannot be read: {failure.strerror or failure}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as failure:
        raise UserError(f"{path}: not valid JSON in UTF-8: {failure}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds a {type(content).__name__}, not an object with the key datasets")
    return content


def _tables(name: str, level: str, found: Any, path: Path, problems: list[Problem]) -> list[_Table]:
    if not isinstance(found, list) or not found:
        problems.append(
            error("dataset_config", f"{path.name} has no {name.rstrip(',')}", "add at least one such table")
        )
        return []
    return [_table(f"{name} {number}", level, values, path, problems) for number, values in enumerate(found, 1)]


def _table(name: str, level: str, found: Any, path: Path, problems: list[Problem]) -> _Table:
    """A table of which every key is legal and every value has its type; what is not has become a problem."""
    origin = f" in {name} of {path.name}"
    if not isinstance(found, Mapping):
        problems.append(
            error("dataset_config", f"{name} of {path.name} is no table", "write it as in the documentation")
        )
        return _Table(name, level, {})
    kept = {}
    for key, value in found.items():
        if key == "subsets" and level == "dataset":
            kept[key] = value
        elif value is not None and (problem := _key_problem(key, value, level, origin)):
            problems.append(problem)
        elif value is not None and key in known_keys():
            kept[key] = _as_text(value) if key == "resolution" else value
    own = {key: value for key, value in kept.items() if key in SubsetKeys.model_fields}
    shared = {SPELLINGS.get(key, key): value for key, value in kept.items() if key not in own and key != "subsets"}
    for model, values in ((SubsetKeys, own), (DatasetOptions, shared)):
        problems += try_build(model, values, origin.strip())[1]
    return _Table(name, level, kept)


def _key_problem(key: str, value: Any, level: str, origin: str) -> Problem | None:
    if key in NOT_YET:
        return error(key, f"{value!r}{origin}", NOT_YET[key]) if value else None
    if key in WITHOUT_EFFECT:
        return note(key, f"has no effect{origin}", WITHOUT_EFFECT[key])
    if key not in known_keys():
        return unknown_name(key, known_keys() | NOT_YET.keys() | WITHOUT_EFFECT.keys(), origin)
    if key not in keys_of(level):
        better = "[[datasets.subsets]]" if key in SUBSET_ONLY else "[[datasets]] or [general]"
        return error(key, f"cannot stand{origin}", f"move it to {better}")
    return None


def _as_text(resolution: Any) -> Any:
    """512 and [512, 768] as the option writes them."""
    if isinstance(resolution, list):
        return ",".join(map(str, resolution))
    is_number = isinstance(resolution, int) and not isinstance(resolution, bool)
    return str(resolution) if is_number else resolution


def _dataset(
    options: DatasetOptions, path: Path, outer: tuple[_Table, _Table], tables: list[_Table], problems: list[Problem]
) -> Dataset | None:
    """The dataset, unless a problem keeps one of its tables from being read."""
    if any(problem.level == "error" for problem in problems):
        return None
    subsets: dict[str, Subset] = {}
    for table in tables:
        values = {key: value for level in (*outer, table) for key, value in level.values.items() if key != "subsets"}
        folder = values.get("image_dir")
        if not folder:
            problems.append(error("image_dir", f"is missing in {table.name} of {path.name}", "name the picture folder"))
            continue
        subset = _subset(options, values)
        if str(folder) in subsets:
            text = f"{folder} stands twice in one dataset of {path.name}; the second is not used"
            problems.append(warning("image_dir", text, "remove one, or raise num_repeats"))
        elif not subset.folder.is_dir():
            problems.append(
                error("image_dir", f"{folder} in {table.name} of {path.name} is no folder", "mend the path")
            )
        else:
            subsets[str(folder)] = subset
    values = {key: value for level in outer for key, value in level.values.items() if key != "subsets"}
    return Dataset(_overridden(options, values), tuple(subsets.values()))


def _subset(options: DatasetOptions, values: Mapping[str, Any]) -> Subset:
    merged = _overridden(options, values)
    own = SubsetKeys(**{key: value for key, value in values.items() if key in SubsetKeys.model_fields})
    return Subset(Path(str(own.image_dir)), merged.dataset_repeats, own.class_tokens, own.is_reg, merged)


def _overridden(options: DatasetOptions, values: Mapping[str, Any]) -> DatasetOptions:
    shared = {SPELLINGS.get(key, key): value for key, value in values.items() if key not in SubsetKeys.model_fields}
    return DatasetOptions(**{**options.model_dump(), **shared})
