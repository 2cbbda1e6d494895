"""Pictures from a class of the user's own, named by import path in `dataset_class`.

The class is called with the options and must be iterable. It gives a mapping for each picture:

    {"path": "/pictures/a.png", "caption": "a cat", "repeats": 1, "is_reg": False, "mask": None, "control": None}

Only `path` must be there. Sizes, buckets, caches, batches and validation are then as for any other picture.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sd_scripts.data.captions import caption_lines
from sd_scripts.data.entries import Entry
from sd_scripts.data.sources import Dataset, Sources, Subset
from sd_scripts.data.words import shown
from sd_scripts.errors import ConfigError
from sd_scripts.options.dataset import DatasetOptions

KEYS: dict[str, tuple[type, ...]] = {
    "path": (str, Path),
    "caption": (str,),
    "repeats": (int,),
    "is_reg": (bool,),
    "mask": (str, Path),
    "control": (str, Path),
}


def class_sources(options: DatasetOptions) -> Sources:
    """The dataset that `options.dataset_class` gives.

    Raises:
        ConfigError: there is no such class, it fails, or it gives something else.
    """
    groups: dict[tuple[int, bool], list[Entry]] = {}
    for values in _pictures(options):
        lines = caption_lines(values.get("caption") or "")
        entry = Entry(
            path=Path(values["path"]).absolute(),
            lines=lines,
            caption_source="file" if values.get("caption") is not None else "none",
            mask=_path(values.get("mask")),
            control=_path(values.get("control")),
        )
        groups.setdefault((values.get("repeats") or 1, bool(values.get("is_reg"))), []).append(entry)
    label = str(options.dataset_class).rpartition(".")[2]
    subsets = tuple(
        Subset(None, repeats, None, is_reg, options, entries=tuple(entries), label=label)
        for (repeats, is_reg), entries in groups.items()
    )
    return Sources((Dataset(options, subsets),), ())


def _path(value: str | Path | None) -> Path | None:
    return None if value is None else Path(value).absolute()


def _pictures(options: DatasetOptions) -> Iterator[Mapping[str, Any]]:
    name = str(options.dataset_class)
    made = load_class(name)
    try:
        with _from_here():
            pictures = list(made(options))
    except Exception as problem:  # the user's code may raise anything
        text = f"failed with {type(problem).__name__}: {shown(problem)}; mend the class"
        raise ConfigError("dataset_class", name, text) from problem
    for number, values in enumerate(pictures, 1):
        if wrong := _wrong(values):
            raise ConfigError("dataset_class", name, f"picture {number}: {wrong}")
        yield values


def load_class(name: str) -> Any:
    """The class of an import path such as `package.module.Class`; modules in the current folder are found too.

    Raises:
        ConfigError: there is none.
    """
    module_name, _, class_name = name.rpartition(".")
    if not module_name:
        raise ConfigError("dataset_class", name, "write it as module.Class")
    try:
        with _from_here():
            module = importlib.import_module(module_name)
    except Exception as problem:  # the user's code may raise anything
        reason = f"{type(problem).__name__}: {shown(problem)}"
        text = f"{module_name} cannot be imported ({reason}); its folder must be in PYTHONPATH"
        raise ConfigError("dataset_class", name, text) from problem
    try:
        return getattr(module, class_name)
    except AttributeError:
        raise ConfigError("dataset_class", name, f"there is no {class_name} in {module_name}") from None


@contextmanager
def _from_here() -> Iterator[None]:
    """Modules of the current folder can be imported, after all others."""
    before = list(sys.path)
    sys.path.append(str(Path.cwd()))
    try:
        yield
    finally:
        sys.path[:] = before  # not `remove`, which would take the folder's first place where it has one already


def _wrong(values: Any) -> str | None:
    """Why this is no picture."""
    if not isinstance(values, Mapping):
        return f"is a {type(values).__name__}, not a mapping such as {{'path': 'a.png', 'caption': 'a cat'}}"
    for key in values:
        if key not in KEYS:
            return f"has the unknown key {key!r}; known are {', '.join(KEYS)}"
    for key, types in KEYS.items():
        value = values.get(key)
        if value is not None and (not isinstance(value, types) or (types == (int,) and isinstance(value, bool))):
            return f"{key} is a {type(value).__name__}, not a {types[0].__name__}"
    if values.get("path") is None:
        return "has no path"
    repeats = values.get("repeats")
    return "repeats must be at least 1" if repeats is not None and repeats < 1 else None
