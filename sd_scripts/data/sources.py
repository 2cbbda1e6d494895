"""Where pictures come from: folders named <repeats>_<name>, a metadata file, a folder with guiding pictures, a class of the
user's own, or a dataset file's subsets. All become `Dataset`s.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sd_scripts.data.listing import list_folder
from sd_scripts.data.words import counted, name_some, shown
from sd_scripts.options.dataset import DatasetOptions
from sd_scripts.options.problems import Problem, error, warning

if TYPE_CHECKING:
    from sd_scripts.data.entries import Entry

_REPEATS_FOLDER = re.compile(r"\s*(-?\d+)(?:_(.*))?", re.DOTALL)


@dataclass(frozen=True)
class Subset:
    """Pictures with the options that hold for them: those of a folder, of a metadata file or of a dataset class."""

    folder: Path | None  # None: paths in the metadata file tell where the pictures are
    repeats: int
    class_tokens: str | None
    is_reg: bool
    options: DatasetOptions
    metadata_file: Path | None = None  # pictures and captions stand in it
    conditioning_dir: Path | None = None  # guiding pictures, or masks, of the same names
    custom_attributes: Mapping[str, Any] = field(default_factory=dict)
    entries: tuple[Entry, ...] | None = None  # what a dataset class gave
    label: str = ""  # its name, where it is neither folder nor file

    @property
    def path(self) -> Path:
        """The file or folder that it is known by."""
        return self.metadata_file or self.folder or Path(self.label)

    @property
    def name(self) -> str:
        return self.path.name


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


def option_sources(options: DatasetOptions, *, has_guides: bool) -> Sources:
    """The one dataset that the options describe without a dataset file.

    Args:
        has_guides: each picture goes with a guiding one, as for a ControlNet.

    Raises:
        UserError: a dataset class cannot be used.
    """
    if options.dataset_class is not None:
        from sd_scripts.data.custom import class_sources

        return class_sources(options)
    if options.in_json is not None:
        return _metadata_sources(options)
    if has_guides and options.train_data_dir and _holds_pictures(Path(options.train_data_dir)):
        return _plain_folder_sources(options)
    return _repeats_sources(options)


def _repeats_sources(options: DatasetOptions) -> Sources:
    subsets, problems = _repeats_folders("train_data_dir", options.train_data_dir, False, options)
    if options.reg_data_dir is not None:
        regularisation, found = _repeats_folders("reg_data_dir", options.reg_data_dir, True, options)
        subsets += regularisation
        problems += found
    return Sources((Dataset(options, tuple(subsets)),), tuple(problems))


def _metadata_sources(options: DatasetOptions) -> Sources:
    """One subset: the pictures of `in_json`, in `train_data_dir` where their paths are relative."""
    path = Path(str(options.in_json))
    if not path.is_file():
        return Sources((), (error("in_json", f"{shown(path)}: no such file", "check the path"),))
    folder = Path(options.train_data_dir) if options.train_data_dir else None
    if folder is not None and not folder.is_dir():
        return Sources((), (error("train_data_dir", f"{shown(folder)} is no folder", "mend the path"),))
    guides = Path(options.conditioning_data_dir) if options.conditioning_data_dir else None
    repeats = options.dataset_repeats
    subset = Subset(folder, repeats, None, False, options, metadata_file=path, conditioning_dir=guides)
    return Sources((Dataset(options, (subset,)),), ())


def _plain_folder_sources(options: DatasetOptions) -> Sources:
    """One subset: the pictures directly in `train_data_dir`, each with a guiding one."""
    guides = Path(options.conditioning_data_dir) if options.conditioning_data_dir else None
    folder = Path(str(options.train_data_dir))
    subset = Subset(folder, options.dataset_repeats, None, False, options, conditioning_dir=guides)
    return Sources((Dataset(options, (subset,)),), ())


def _holds_pictures(folder: Path) -> bool:
    return folder.is_dir() and bool(list_folder(folder).pictures)


def _guides_of(folder: Path, is_reg: bool, options: DatasetOptions) -> Path | None:
    """Where the guiding pictures or masks of a repeats folder lie: in one of the same name, else all in one."""
    if options.conditioning_data_dir is None or is_reg:
        return None
    guides = Path(options.conditioning_data_dir)
    return guides / folder.name if (guides / folder.name).is_dir() else guides


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
            error(option, f"{shown(folder)} {kind}", "choose the folder that holds the folders named <repeats>_<name>")
        ]
    listing = list_folder(folder)
    subsets, ignored, problems = [], [], []
    children, links = _without_doubles(folder, listing.folders)
    if links:
        remedy = "remove the link"
        text = f"links to folders that are used already: {name_some(link.name for link in links)}"
        problems.append(warning(option, text, remedy))
    for child in children:
        parsed = parse_repeats(child.name)
        if parsed is None or parsed[0] < 1:
            ignored.append(child)
            continue
        repeats, tokens = parsed
        if not tokens:
            remedy = f"name it {repeats}_<name>: the name is the caption of pictures that have none"
            problems.append(warning(option, f"folder {shown(child.name)} has no name after the number", remedy))
        guides = _guides_of(child, is_reg, options)
        subsets.append(Subset(child, repeats, tokens or None, is_reg, options, conditioning_dir=guides))
    if not subsets:
        return [], [_nothing_usable(option, folder, len(listing.pictures), ignored)]
    if ignored:
        names = name_some(child.name for child in ignored)
        remedy = "start the name with a whole number of at least 1 and an underscore, as in 10_cat"
        problems.append(warning(option, f"folders without a number of repeats are not used: {names}", remedy))
    if listing.pictures:
        names = name_some(picture.name for picture in listing.pictures)
        problems.append(
            warning(option, f"pictures directly in {shown(folder)} are not used: {names}", _move_remedy(folder))
        )
    return subsets, problems


def _without_doubles(parent: Path, folders: tuple[Path, ...]) -> tuple[list[Path], list[Path]]:
    """Folders, and links among them that lead to the parent, above it, or to a folder that is there itself."""
    if not any(folder.is_symlink() for folder in folders):
        return list(folders), []
    taken = {os.path.realpath(folder) for folder in folders if not folder.is_symlink()}
    above = os.path.realpath(parent)
    kept, links = [], []
    for folder in folders:
        place = os.path.realpath(folder)
        is_double = folder.is_symlink() and (place in taken or above == place or above.startswith(place + os.sep))
        (links if is_double else kept).append(folder)
        taken.add(place)
    return kept, links


def _nothing_usable(option: str, folder: Path, pictures: int, ignored: list[Path]) -> Problem:
    """Why a folder has no usable subset: the commonest mistakes, with the way out of each."""
    if pictures and parse_repeats(folder.name):
        text = f"{shown(folder)} holds the pictures themselves ({pictures})"
        return error(option, text, f"choose the folder above it, {shown(folder.parent)}")
    if pictures:
        return error(
            option,
            f"{counted(pictures, 'picture')} directly in {shown(folder)}, not in a folder with a number of repeats",
            _move_remedy(folder),
        )
    with_pictures = [child for child in ignored if list_folder(child).pictures]
    if with_pictures:
        name = with_pictures[0].name
        better = f"10_{re.sub(r'^[-+]?[0-9]*_*', '', name).strip() or 'name'}"
        names = name_some(child.name for child in ignored)
        text = f"no folder in {shown(folder)} starts with a number of repeats of at least 1: {names}"
        return error(
            option, text, f"rename {shown(name)} to {shown(better)} if its pictures are to be used 10 times an epoch"
        )
    return error(
        option, f"there are no pictures in {shown(folder)}", f"put them into {shown(folder / '10_name')} or the like"
    )


def _move_remedy(folder: Path) -> str:
    example = re.sub(r"\s+", " ", folder.name).strip() or "name"
    return f"move them into a folder named 10_{example} in it (10 is how often each is used in an epoch)"
