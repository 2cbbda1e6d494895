"""Where pictures come from: folders named <repeats>_<name>, or a dataset file's subsets. Both become `Dataset`s."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sd_scripts.data.scan import list_folder
from sd_scripts.data.words import counted, name_some
from sd_scripts.options.dataset import DatasetOptions
from sd_scripts.options.problems import Problem, error, warning

_REPEATS_FOLDER = re.compile(r"\s*(-?\d+)(?:_(.*))?", re.DOTALL)


@dataclass(frozen=True)
class Subset:
    """One folder of pictures with the options that hold for it."""

    folder: Path
    repeats: int
    class_tokens: str | None
    is_reg: bool
    options: DatasetOptions


@dataclass(frozen=True)
class Dataset:
    """Subsets that share resolution, buckets and batch size."""

    options: DatasetOptions
    subsets: tuple[Subset, ...]


@dataclass(frozen=True)
class Sources:
    """All datasets of a run and what is wrong with their description."""

    datasets: tuple[Dataset, ...]
    problems: tuple[Problem, ...]
    is_from_file: bool = False


def folder_sources(options: DatasetOptions) -> Sources:
    """The one dataset that train_data_dir and reg_data_dir make up."""
    subsets, problems = _repeats_folders("train_data_dir", options.train_data_dir, False, options)
    if options.reg_data_dir is not None:
        regularisation, found = _repeats_folders("reg_data_dir", options.reg_data_dir, True, options)
        subsets += regularisation
        problems += found
    return Sources((Dataset(options, tuple(subsets)),), tuple(problems))


def parse_repeats(name: str) -> tuple[int, str] | None:
    """Repeats and class tokens in a folder's name: "10_sks cat" is (10, "sks cat"). None without a leading number."""
    match = _REPEATS_FOLDER.fullmatch(name)
    return (int(match[1]), (match[2] or "").strip()) if match else None


def _repeats_folders(
    option: str, parent: str | None, is_reg: bool, options: DatasetOptions
) -> tuple[list[Subset], list[Problem]]:
    """The subsets below a folder, and problems. Nothing is usable if one of the problems is an error."""
    if parent is None:
        return [], [error(option, "is not set", "choose the folder that holds the folders named <repeats>_<name>")]
    folder = Path(parent)
    if not folder.is_dir():
        kind = "is a file, not a folder" if folder.exists() else "does not exist"
        return [], [
            error(option, f"{folder} {kind}", "choose the folder that holds the folders named <repeats>_<name>")
        ]
    listing = list_folder(folder)
    subsets, ignored, problems = [], [], []
    for child in listing.folders:
        parsed = parse_repeats(child.name)
        if parsed is None or parsed[0] < 1:
            ignored.append(child)
            continue
        repeats, tokens = parsed
        if not tokens:
            remedy = f"name it {repeats}_<name>: the name is the caption of pictures that have none"
            problems.append(warning(option, f"folder {child.name} has no name after the number", remedy))
        subsets.append(Subset(child, repeats, tokens or None, is_reg, options))
    if not subsets:
        return [], [_nothing_usable(option, folder, [picture.path for picture in listing.pictures], ignored)]
    if ignored:
        names = name_some(child.name for child in ignored)
        remedy = "start the name with a whole number of at least 1 and an underscore, as in 10_cat"
        problems.append(warning(option, f"folders without a number of repeats are not used: {names}", remedy))
    if listing.pictures:
        names = name_some(picture.path.name for picture in listing.pictures)
        problems.append(warning(option, f"pictures directly in {folder} are not used: {names}", _move_remedy(folder)))
    return subsets, problems


def _nothing_usable(option: str, folder: Path, pictures: list[Path], ignored: list[Path]) -> Problem:
    """Why a folder has no usable subset: the commonest mistakes, with the way out of each."""
    if pictures and parse_repeats(folder.name):
        text = f"{folder} holds the pictures themselves ({len(pictures)})"
        return error(option, text, f"choose the folder above it, {folder.parent}")
    if pictures:
        return error(
            option,
            f"{counted(len(pictures), 'picture')} directly in {folder}, not in a folder with a number of repeats",
            _move_remedy(folder),
        )
    with_pictures = [child for child in ignored if list_folder(child).pictures]
    if with_pictures:
        name = with_pictures[0].name
        better = f"10_{re.sub(r'^[-+]?[0-9]*_*', '', name).strip() or 'name'}"
        text = (
            f"no folder in {folder} starts with a number of repeats of at least 1: {name_some(c.name for c in ignored)}"
        )
        return error(option, text, f"rename {name} to {better} if its pictures are to be used 10 times an epoch")
    return error(option, f"there are no pictures in {folder}", f"put them into {folder / '10_name'} or the like")


def _move_remedy(folder: Path) -> str:
    example = re.sub(r"\s+", " ", folder.name).strip() or "name"
    return f"move them into a folder named 10_{example} in it (10 is how often each is used in an epoch)"
