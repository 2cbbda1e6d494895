"""What a model file or folder is, told from its tensors' names and shapes in milliseconds, before any loading."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from sd_scripts.errors import ConfigError, UserError
from sd_scripts.models.families import all_families
from sd_scripts.models.family import ModelFamily, ModelFolder
from sd_scripts.models.headers import TensorInfo, read_header
from sd_scripts.models.keymaps.core import Shape
from sd_scripts.models.layouts import ReadPlan, plan_file, plan_folder
from sd_scripts.models.part_files import PartFile, by_file, inspect_part, read_headers, weight_files
from sd_scripts.models.probes import identify, label_of
from sd_scripts.models.targets import adapter_counts, same_ranks
from sd_scripts.options.recipes import recipe_for

MODEL_SUFFIXES = (".safetensors", ".ckpt", ".pt", ".pth", ".bin")


@dataclass(frozen=True)
class CheckpointInfo:
    """A model on disk.

    Attributes:
        path: the file or folder.
        format: "safetensors", "ckpt" or "diffusers".
        architecture: a family's name, or another kind that `probes` knows, such as "lora" or "unknown".
        tensors: name to shape and format; names in a folder are `<subfolder>/<name>`.
        metadata: text pairs of a safetensors file.
        foreign: classes that a pickled file mentions besides torch's own.
        where: for a folder, the weight file that holds a tensor.
        separate: parts that options take from elsewhere; see `with_separate_files`.
    """

    path: Path
    format: str
    architecture: str
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    foreign: tuple[str, ...] = ()
    where: Mapping[str, Path] = field(default_factory=dict)
    separate: Mapping[str, PartFile] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What it is, for people."""
        return label_of(self.architecture)

    @property
    def family(self) -> ModelFamily:
        """Only of a model."""
        return all_families()[self.architecture]

    @cached_property
    def plan(self) -> ReadPlan:
        """Which tensor goes where. Only of a model."""
        return (plan_folder if self.format == "diffusers" else plan_file)(self.family, self.tensors)

    @cached_property
    def parts(self) -> dict[str, PartFile]:
        """Part ("unet", "vae", "te1") to where its weights lie; without those that are nowhere. Only of a model."""
        found = {name: self._own_part(name) for name, sources in self.plan.parts.items() if sources} | dict(
            self.separate
        )
        return {part.name: found[part.name] for part in self.family.parts if part.name in found}

    @cached_property
    def shapes(self) -> dict[str, Mapping[str, Shape]]:
        """Part ("unet", "vae", "te1") to library tensor name to shape; empty for one that is nowhere. Only of a model."""
        return {
            part.name: self.parts[part.name].shapes if part.name in self.parts else {} for part in self.family.parts
        }

    @property
    def predicts_v(self) -> bool:
        """Whether the file says that the model predicts velocity. Few files say what they predict."""
        return self.architecture in all_families() and self.family.predicts_v(self.tensors)

    def parameters(self) -> dict[str, int]:
        """Numbers in each part, as trained and kept in memory; of a family that cannot be loaded yet those in the file."""
        if self.architecture not in all_families() or not self.family.parts:
            return {"file": sum(info.numbers for info in self.tensors.values())}
        return {name: part.numbers for name, part in self.parts.items()}

    def adapter_module_counts(self, rank: int, conv_rank: int | None = None) -> dict[str, tuple[int, int]]:
        """Part to (modules, parameters) of a LoRA on this model."""
        return adapter_counts(self.family, self.shapes, same_ranks(rank, conv_rank))

    def _own_part(self, name: str) -> PartFile:
        part, sources = self.family.part(name), self.plan.parts[name]
        shapes = {n: source.shape(self.tensors[source.key].shape) for n, source in sources.items()}
        if self.format == "diffusers":
            files = by_file(sources, self.where, f"{part.folder}/")
            return PartFile(part, self.path, files, shapes, self.path / part.folder, foreign=self.foreign)
        return PartFile(part, self.path, {self.path: sources}, shapes, foreign=self.foreign)


def inspect(path: Path) -> CheckpointInfo:
    """What is at a path. Reads headers only (measured: 6 ms for a real-size SD 1.5 file).

    Raises:
        UserError: nothing there, no model, or damaged.
    """
    if path.is_dir():
        return _inspect_folder(path)
    if not path.is_file():
        raise UserError(_missing(path))
    header = read_header(path)
    return CheckpointInfo(
        path, header.format, identify(header.tensors), header.tensors, header.metadata, header.foreign
    )


def with_separate_files(info: CheckpointInfo, options: object) -> CheckpointInfo:
    """The model with the parts that options name files of (`vae`, `clip_l`, …), in place of its own.

    Raises:
        ConfigError: a file is not what its option says, or a part is nowhere.
    """
    separate = {}
    for part in info.family.parts:
        path = getattr(options, part.option, None) if part.option else None
        if path is not None:
            separate[part.name] = inspect_part(part, Path(path))
    whole = replace(info, separate=separate)
    for part in (part for part in info.family.parts if not whole.shapes[part.name]):
        lack = f"{info.path.name} holds no {part.label}"
        if part.option is None:
            raise UserError(f"{lack}: give the whole model")
        raise ConfigError(part.option, None, f"{lack}: name a {part.label} file here")
    return whole


def require_architecture(info: CheckpointInfo, accepted: Sequence[str], method: str = "adapter") -> None:
    """Raise UserError unless a model is of an architecture that a trainer takes.

    Args:
        info: the model.
        accepted: architectures, such as ("sd1", "sd2").
        method: of the recipe: decides which script is recommended.
    """
    if info.architecture in accepted:
        if info.family.parts and (reason := info.family.refusal(info.shapes)):
            raise UserError(f"{info.path} {reason}")
        return
    wanted = " or ".join(label_of(name) for name in accepted)
    if recipe := recipe_for(method, info.architecture):
        later = "" if recipe.available else ", which is not yet available"
        raise UserError(f"{info.path} is {info.label}, this trainer takes {wanted}: use {recipe.script}.py{later}")
    if info.architecture == "lora":
        remedy = "give the base model it was made for; to go on training it, name it in network_weights"
        raise UserError(f"{info.path} is {info.label}, not a base model: {remedy}")
    if info.architecture == "vae":
        raise UserError(f"{info.path} is {info.label}, not a base model: name it in the option vae")
    if info.architecture == "sdxl_refiner":
        raise UserError(f"{info.path} is {info.label}, which cannot be trained: give an SDXL base model")
    raise UserError(f"{info.path} is {info.label}: this trainer takes {wanted}")


def _inspect_folder(path: Path) -> CheckpointInfo:
    if not (path / "model_index.json").is_file() and not (path / "unet" / "config.json").is_file():
        raise UserError(_no_diffusers_folder(path))
    where: dict[str, Path] = {}
    tensors: dict[str, TensorInfo] = {}
    foreign: list[str] = []
    folders = {part.folder for family in all_families().values() for part in family.parts}
    for folder in sorted(name for name in folders if (path / name).is_dir()):
        found, infos, mentioned = read_headers(weight_files(path / folder), f"{folder}/")
        where, tensors, foreign = where | found, tensors | infos, [*foreign, *mentioned]
    model = ModelFolder(path, tensors)
    architecture = next((family.name for family in all_families().values() if family.in_folder(model)), "unknown")
    return CheckpointInfo(path, "diffusers", architecture, tensors, {}, tuple(foreign), where)


def _missing(path: Path) -> str:
    if not path.parent.is_dir():
        return f"no such model: {path}; the folder {path.parent} does not exist either"
    names = [p.name for p in path.parent.iterdir() if p.suffix in MODEL_SUFFIXES or p.is_dir()]
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=0.5)
    return f"no such model: {path}; " + (f"did you mean {near[0]}?" if near else "give a file or a diffusers folder")


def _no_diffusers_folder(path: Path) -> str:
    models = sorted(p.name for p in path.iterdir() if p.suffix in MODEL_SUFFIXES)
    hint = f"give the file, such as {path / models[0]}" if models else "give a model file or a diffusers folder"
    return f"{path} is a folder without model_index.json: {hint}"
