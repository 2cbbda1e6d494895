"""Second pictures of the same name in another folder: what a ControlNet is guided by, or masks of the loss."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sd_scripts.data.words import counted, name_some, shown
from sd_scripts.options.problems import Problem, error, warning

if TYPE_CHECKING:
    from sd_scripts.data.scan import FolderScan


@dataclass(frozen=True)
class Pairs:
    """The second picture of each first one, by the first one's name, and what has no partner."""

    partners: dict[str, Path]
    missing: tuple[str, ...]  # first pictures without a second one
    surplus: tuple[str, ...]  # second ones without a first
    doubles: tuple[tuple[str, ...], ...]  # second ones that share a name


def pair(names: Iterable[str], scan: FolderScan) -> Pairs:
    """Find the second pictures of pictures with these names."""
    second: dict[str, list[str]] = {}
    for picture in scan.listing.pictures:
        second.setdefault(picture.name.rpartition(".")[0], []).append(picture.name)
    folder = scan.listing.path
    partners, missing, used = {}, [], set()
    for name in names:
        stem = name.rpartition(".")[0]
        used.add(stem)
        if stem in second:
            partners[name] = folder / second[stem][0]
        else:
            missing.append(name)
    surplus = [name for stem, found in second.items() if stem not in used for name in found]
    doubles = [tuple(found) for stem, found in second.items() if len(found) > 1 and stem in used]
    return Pairs(partners, tuple(missing), tuple(surplus), tuple(doubles))


def check_guides(pairs: Pairs, folder: Path, option: str) -> list[Problem]:
    """A ControlNet needs exactly one guiding picture for each picture."""
    problems = []
    if pairs.missing:
        text = f"{counted(len(pairs.missing), 'picture')} without a guiding one in {shown(folder)}: {name_some(pairs.missing)}"
        problems.append(error(option, text, "add pictures of the same names"))
    if pairs.surplus:
        text = f"{counted(len(pairs.surplus), 'guiding picture')} in {shown(folder)} for no picture: {name_some(pairs.surplus)}"
        problems.append(error(option, text, "remove them, or add the pictures"))
    return problems + _check_doubles(pairs, folder, option)


def check_masks(pairs: Pairs, folder: Path, option: str) -> list[Problem]:
    """Pictures without a mask count in full; both kinds of misses are said."""
    problems = []
    if not pairs.partners:
        text = f"{shown(folder)} holds no mask for any picture"
        return [error(option, text, "name the masks as the pictures are named, or leave masked_loss off")]
    if pairs.missing:
        text = f"{counted(len(pairs.missing), 'picture')} without a mask in {shown(folder)}: {name_some(pairs.missing)}"
        problems.append(warning(option, text, "they are trained in full"))
    if pairs.surplus:
        text = f"{counted(len(pairs.surplus), 'mask')} in {shown(folder)} for no picture: {name_some(pairs.surplus)}"
        problems.append(warning(option, text, "name them as the pictures are named"))
    return problems + _check_doubles(pairs, folder, option)


def _check_doubles(pairs: Pairs, folder: Path, option: str) -> list[Problem]:
    return [
        error(option, f"{' and '.join(map(shown, names))} in {shown(folder)} are for the same picture", "remove one")
        for names in pairs.doubles
    ]
