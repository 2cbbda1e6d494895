"""Where the weights of one network lie: in the base model, or in a file or folder of its own. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from sd_scripts.errors import ConfigError, UserError
from sd_scripts.models.family import ModelFolder, Part
from sd_scripts.models.headers import TensorInfo, read_header
from sd_scripts.models.keymaps.core import Shape, Source
from sd_scripts.models.layouts import plan_part
from sd_scripts.models.probes import identify, label_of


@dataclass(frozen=True)
class PartFile:
    """The weights of one network.

    Attributes:
        path: the file or folder as it was named.
        files: weight file to library tensor name to its source in that file; several where a folder has shards.
        shapes: library tensor name to shape.
        folder: the diffusers folder with its config.json; None for a single file.
        unknown: tensors beside them that have no place in such a network.
        foreign: classes that a pickled file mentions besides torch's own.
    """

    part: Part
    path: Path
    files: Mapping[Path, Mapping[str, Source]]
    shapes: Mapping[str, Shape]
    folder: Path | None = None
    unknown: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    @cached_property
    def config(self) -> dict[str, object] | None:
        """The library's configuration in a diffusers folder; None for a single file.

        Raises:
            UserError: a folder without, or a damaged one.
        """
        if self.folder is None:
            return None
        if not (self.folder / "config.json").is_file():
            raise UserError(f"{self.folder} has no config.json: the diffusers folder is incomplete, get it again")
        return ModelFolder(self.folder.parent, ()).config(self.folder.name)

    @property
    def numbers(self) -> int:
        """How many weights it has."""
        return sum(TensorInfo(shape, "F32").numbers for shape in self.shapes.values())


def inspect_part(part: Part, path: Path, wanted_by: str | None = None) -> PartFile:
    """What an option names for a part: a file in any of its layouts, a whole checkpoint, or a folder.

    Args:
        wanted_by: the option, for messages; the part's own if None.

    Raises:
        ConfigError: nothing there, or no such part, or of another size.
        UserError: the file is damaged.
    """
    option = wanted_by or part.option or part.name
    if not path.exists():
        raise ConfigError(option, str(path), "no such file or folder")
    folder = None
    if path.is_dir():
        folder = path / part.folder if (path / part.folder).is_dir() else path
    where, tensors, foreign = read_headers([path] if folder is None else weight_files(folder))
    plan = plan_part(part, tensors)
    sources = plan.parts[part.name]
    if not sources:
        raise ConfigError(option, str(path), f"is {label_of(identify(tensors))}, not a {part.label}")
    shapes = {name: source.shape(tensors[source.key].shape) for name, source in sources.items()}
    if problem := part.problem(shapes):
        raise ConfigError(option, str(path), problem)
    return PartFile(part, path, by_file(sources, where), shapes, folder, plan.unknown, foreign)


def read_headers(
    files: Sequence[Path], prefix: str = ""
) -> tuple[dict[str, Path], dict[str, TensorInfo], tuple[str, ...]]:
    """Of weight files that belong together: tensor name to file, to shape and format; classes that pickles mention."""
    where: dict[str, Path] = {}
    tensors: dict[str, TensorInfo] = {}
    foreign: list[str] = []
    for file in files:
        header = read_header(file)
        where |= dict.fromkeys((prefix + name for name in header.tensors), file)
        tensors |= {prefix + name: info for name, info in header.tensors.items()}
        foreign += header.foreign
    return where, tensors, tuple(foreign)


def by_file(
    sources: Mapping[str, Source], where: Mapping[str, Path], prefix: str = ""
) -> dict[Path, dict[str, Source]]:
    """The sources by the file that holds them, under their keys in it."""
    files: dict[Path, dict[str, Source]] = {}
    for name, source in sources.items():
        own = replace(source, key=source.key.removeprefix(prefix))
        files.setdefault(where[source.key], {})[name] = own
    return files


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The weight files of a diffusers subfolder: full precision before fp16, safetensors before bin, whole before shards.

    Raises:
        UserError: there is none.
    """
    stems = ("diffusion_pytorch_model", "model", "pytorch_model")
    for suffix in (".safetensors", ".fp16.safetensors", ".bin", ".fp16.bin"):
        for stem in stems:
            if (folder / (stem + suffix)).is_file():
                return (folder / (stem + suffix),)
            index = folder / f"{stem}{suffix}.index.json"
            if index.is_file():
                return _shards(index)
    raise UserError(f"{folder} holds no weights: expected diffusion_pytorch_model.safetensors or model.safetensors")


def _shards(index: Path) -> tuple[Path, ...]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(f"{index} is damaged: it should say which file holds which tensor, get it again") from error
    for name in names:
        if not (index.parent / name).is_file():
            raise UserError(f"{index.parent / name} is missing: the diffusers folder is incomplete, get it again")
    return tuple(index.parent / name for name in names)
