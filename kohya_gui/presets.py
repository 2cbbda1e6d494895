"""Presets: training settings as TOML files, those that come with the program and the user's own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sd_scripts.errors import UserError
from sd_scripts.options.build import unknown_name
from sd_scripts.options.schema import Options, OptionSpec
from sd_scripts.options.toml_files import read_settings, write_settings

USER_FOLDER = "user_presets"


@dataclass(frozen=True)
class Loaded:
    """What a settings file gave: values for the form, and what was left aside, in words."""

    source: str
    values: dict[str, Any]
    notes: tuple[str, ...]


class PresetFolder:
    """The presets of one form. Those of users lie in a folder inside and are called "user_presets/<name>"."""

    def __init__(self, root: Path):
        self.root = root

    def names(self) -> list[str]:
        """Every preset, the program's own first."""
        shipped = sorted(path.stem for path in self.root.glob("*.toml"))
        own = sorted(f"{USER_FOLDER}/{path.stem}" for path in (self.root / USER_FOLDER).glob("*.toml"))
        return shipped + own

    def path(self, name: str) -> Path:
        """The file of a preset, or the path itself where the name is one of a file."""
        if name in self.names():
            return self.root / f"{name}.toml"
        return Path(name).expanduser()

    def load(self, name: str, known: Mapping[str, OptionSpec]) -> Loaded:
        """Read a preset or any settings file.

        Raises:
            UserError: no such file; not TOML; a JSON file; a dataset file.
        """
        if not name.strip():
            raise UserError("no preset is chosen; choose one, or type the path of a settings file")
        return load_settings(self.path(name.strip()), known)

    def target(self, name: str) -> Path:
        """Where a user's preset is saved. Only the name is used, so that nothing lands elsewhere.

        Raises:
            UserError: a name that cannot be a file's.
        """
        bare = name.strip().removeprefix(f"{USER_FOLDER}/").removesuffix(".toml").strip()
        if not bare:
            raise UserError("the preset has no name; type one")
        if re.search(r'[\x00-\x1f<>:"/\\|?*]', bare) or bare.strip(". ") != bare:
            raise UserError(f'{bare!r} cannot be a file name; leave out / \\ : * ? " < > | and dots at the ends')
        return self.root / USER_FOLDER / f"{bare}.toml"

    def save(self, name: str, options: Options) -> Path:
        """Write a user's preset, over an older one of the name.

        Raises:
            UserError: a name that cannot be a file's; a folder that cannot be written.
        """
        target = self.target(name)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_settings(target, options)
        except OSError as failure:
            raise UserError(f"{target}: cannot be written: {failure.strerror or failure}") from None
        return target


def load_settings(path: Path, known: Mapping[str, OptionSpec]) -> Loaded:
    """Values of the options that are known here; the rest is named in notes.

    Raises:
        UserError: as `PresetFolder.load`.
    """
    if path.suffix.lower() == ".json" or _is_json(path):
        raise UserError(f"{path}: this is a JSON file of another program; only TOML settings can be loaded here")
    values = read_settings(path)
    notes = [f"{problem.option} was ignored: {_because(problem)}" for problem in _unknown(values, known)]
    return Loaded(path.name, {name: value for name, value in values.items() if name in known}, tuple(notes))


def _unknown(values: Mapping[str, Any], known: Mapping[str, OptionSpec]) -> list:
    return [unknown_name(name, known) for name in values if name not in known]


def _because(problem: Any) -> str:
    return f"{problem.message}; {problem.remedy}" if problem.remedy else problem.message


def _is_json(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_bytes().decode("utf-8-sig")), dict)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        return False
