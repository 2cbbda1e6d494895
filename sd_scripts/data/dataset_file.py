"""Dataset files: [general], [[datasets]] and [[datasets.subsets]] in TOML or JSON.

A key holds for everything inside its table unless an inner table says otherwise; what no table says comes from the
command line or settings file. Which keys there are is said by `sd_scripts.options.dataset_keys`; they are checked table
by table, so that an error names the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sd_scripts.data.sources import Dataset, Sources, Subset
from sd_scripts.errors import UserError
from sd_scripts.options.build import try_build, unknown_name
from sd_scripts.options.dataset import DatasetOptions
from sd_scripts.options.dataset_keys import KEYS, KINDS, SPELLINGS, WITHOUT_EFFECT, DatasetFileOptions, Key
from sd_scripts.options.problems import Problem, error, note, warning
from sd_scripts.options.recipes import trainers_of
from sd_scripts.options.schema import OptionSpec
from sd_scripts.options.toml_files import load_toml


@dataclass(frozen=True)
class _Table:
    name: str  # "[[datasets]] 1"
    level: str  # of dataset_keys.LEVELS
    content: Mapping[str, Any]  # as it stands in the file
    values: Mapping[str, Any]  # of options, checked


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
        subsets = _tables(where, "subset", table.content.get("subsets"), path, problems)
        problems += _kind_problems(table, subsets, path)
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
    origin = f"in {name} of {path.name}"
    if not isinstance(found, Mapping):
        problems.append(
            error("dataset_config", f"{name} of {path.name} is no table", "write it as in the documentation")
        )
        return _Table(name, level, {}, {})
    legal = {}
    for key, value in found.items():
        if value is None or (key == "subsets" and level == "dataset"):
            continue
        if problem := _place_problem(key, level, origin):
            problems.append(problem)
        else:
            legal[KEYS[key].option] = _as_text(KEYS[key].spec, value)
    options, found_problems = try_build(DatasetFileOptions, legal, origin)
    problems += [_under_its_key(problem) for problem in found_problems]
    values = {name: getattr(options, name) for name in legal} if options else {}
    problems += _effect_problems(values, origin)
    return _Table(name, level, found, values)


def _place_problem(name: str, level: str, origin: str) -> Problem | None:
    """Why a key cannot stand in a table of this level."""
    key = KEYS.get(name)
    if key is not None:
        return None if level in key.levels else error(name, f"cannot stand {origin}", f"move it to {key.tables}")
    if trainers_of(name):
        return error(
            name, f"is no key of a dataset file ({origin})", "it belongs into the settings, beside dataset_config"
        )
    return unknown_name(name, KEYS, f" {origin}")


def _under_its_key(problem: Problem) -> Problem:
    spelling = {option: key for key, option in SPELLINGS.items()}
    return replace(problem, option=spelling.get(problem.option, problem.option))


def _effect_problems(values: Mapping[str, Any], origin: str) -> list[Problem]:
    """What is asked for and does nothing, or not yet."""
    problems = []
    for key in KEYS.values():
        if key.option not in values or values[key.option] == key.spec.default:
            continue
        if key.name in WITHOUT_EFFECT:
            problems.append(note(key.name, f"has no effect {origin}", WITHOUT_EFFECT[key.name]))
        elif not key.spec.available:
            problems.append(error(key.name, f"is not yet available ({origin})", "leave it out"))
    return problems


def _as_text(spec: OptionSpec, value: Any) -> Any:
    """[512, 768] and 512 as options write sizes and ranges, which are texts; anything else as it is."""
    numbers = value if isinstance(value, list) else [value] if spec.unit == "px" else []
    is_size = spec.type is str and numbers and all(type(number) in (int, float) for number in numbers)
    return ",".join(map(str, numbers)) if is_size else value


def _kind_problems(table: _Table, subsets: Sequence[_Table], path: Path) -> list[Problem]:
    """Subsets of several kinds in one dataset, and keys that its kind has no use for."""
    kinds = {_kind(subset) for subset in subsets}
    if len(kinds) > 1:
        mixed = " and ".join(KINDS[kind] for kind in KINDS if kind in kinds)
        text = f"{table.name} of {path.name} mixes subsets with {mixed}"
        return [error("dataset_config", text, "make a dataset of each")]
    return [
        warning(key.name, f"has no effect in {place.name} of {path.name}", f"it is for {_kinds_of(key)}; remove it")
        for kind in kinds
        for place in (table, *subsets)
        for key in KEYS.values()
        if key.option in place.values and kind not in key.kinds
    ]


def _kind(subset: _Table) -> str:
    if subset.content.get("conditioning_data_dir"):
        return "controlnet"
    return "finetuning" if subset.content.get("metadata_file") else "dreambooth"


def _kinds_of(key: Key) -> str:
    return " or ".join(f"datasets of {KINDS[kind]}" for kind in key.kinds)


def _dataset(
    options: DatasetOptions, path: Path, outer: tuple[_Table, _Table], tables: list[_Table], problems: list[Problem]
) -> Dataset | None:
    """The dataset, unless a problem keeps one of its tables from being read."""
    if any(problem.level == "error" for problem in problems):
        return None
    subsets: dict[tuple[Any, ...], Subset] = {}
    shared = {name: value for table in outer for name, value in table.values.items()}
    for table in tables:
        values = shared | dict(table.values)
        if problem := _source_problem(values, f"{table.name} of {path.name}"):
            problems.append(problem)
            continue
        source = tuple(values.get(name) for name in ("image_dir", "metadata_file", "conditioning_data_dir"))
        if source in subsets:
            text = f"{' with '.join(filter(None, source))} stands twice in one dataset of {path.name}; the second is not used"
            problems.append(warning("image_dir", text, "remove one, or raise num_repeats"))
        else:
            subsets[source] = _subset(options, values)
    return Dataset(_overridden(options, shared), tuple(subsets.values()))


def _source_problem(values: Mapping[str, Any], where: str) -> Problem | None:
    """What is wrong with the folders and files of a subset."""
    if not values.get("image_dir") and not values.get("metadata_file"):
        return error("image_dir", f"is missing in {where}", "name the picture folder")
    for name in ("image_dir", "conditioning_data_dir"):
        if values.get(name) and not Path(values[name]).is_dir():
            return error(name, f"{values[name]} in {where} is no folder", "mend the path")
    if values.get("metadata_file") and not Path(values["metadata_file"]).is_file():
        return error("metadata_file", f"{values['metadata_file']} in {where} is no file", "mend the path")
    return None


def _subset(options: DatasetOptions, values: Mapping[str, Any]) -> Subset:
    merged = _overridden(options, values)
    folder, metadata, guides = (
        Path(values[name]) if values.get(name) else None
        for name in ("image_dir", "metadata_file", "conditioning_data_dir")
    )
    return Subset(
        folder=folder,
        repeats=merged.dataset_repeats,
        class_tokens=values.get("class_tokens"),
        is_reg=values.get("is_reg", False),
        options=merged,
        metadata_file=metadata,
        conditioning_dir=guides,
        custom_attributes=values.get("custom_attributes") or {},
    )


def _overridden(options: DatasetOptions, values: Mapping[str, Any]) -> DatasetOptions:
    own = {name: value for name, value in values.items() if name in DatasetOptions.model_fields}
    return DatasetOptions(**{**options.model_dump(), **own})
