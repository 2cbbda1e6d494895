"""What a model file or folder is, told from its tensors' names and shapes in milliseconds, before any loading."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sd_scripts.errors import UserError
from sd_scripts.models.configs import SD_LATENT_CHANNELS
from sd_scripts.models.headers import Header, TensorInfo, read_header
from sd_scripts.models.keymaps.core import Shape
from sd_scripts.models.keymaps.sd import FOLDERS, ReadPlan, plan_folder, plan_single_file
from sd_scripts.models.probes import LABELS, identify
from sd_scripts.models.targets import adapter_counts
from sd_scripts.options.recipes import recipe_for

MODEL_SUFFIXES = (".safetensors", ".ckpt", ".pt", ".pth", ".bin")


@dataclass(frozen=True)
class CheckpointInfo:
    """A model on disk.

    Attributes:
        path: the file or folder.
        format: "safetensors", "ckpt" or "diffusers".
        architecture: "sd1", "sd2", "sdxl", "sd3", "flux", "chroma", "lumina", "anima", "hunyuan_image", "lora", "vae",
            "text_encoder", "embedding", "controlnet" or "unknown".
        tensors: name to shape and format; names in a folder are `<subfolder>/<name>`.
        metadata: text pairs of a safetensors file.
        foreign: classes that a pickled file mentions besides torch's own.
        files: for a folder, the weight files of each subfolder.
    """

    path: Path
    format: str
    architecture: str
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    foreign: tuple[str, ...] = ()
    files: Mapping[str, tuple[Path, ...]] | None = None

    @property
    def label(self) -> str:
        """The architecture's name for people."""
        return LABELS[self.architecture]

    @cached_property
    def plan(self) -> ReadPlan:
        """Which tensor goes where. Only for SD 1.x and 2.x."""
        return (plan_folder if self.format == "diffusers" else plan_single_file)(self.tensors)

    @cached_property
    def shapes(self) -> dict[str, dict[str, Shape]]:
        """Part ("unet", "vae", "te1") to library tensor name to shape. Only for SD 1.x and 2.x."""
        return {
            part: {name: source.shape(self.tensors[source.key].shape) for name, source in sources.items()}
            for part, sources in self.plan.parts.items()
        }

    def parameters(self) -> dict[str, int]:
        """Numbers in each part, as trained and kept in memory; of other families than SD 1.x and 2.x those in the file."""
        if self.architecture not in ("sd1", "sd2"):
            return {"file": sum(info.numbers for info in self.tensors.values())}
        return {
            part: sum(TensorInfo(s, "F32").numbers for s in shapes.values()) for part, shapes in self.shapes.items()
        }

    def adapter_module_counts(self, rank: int, conv_rank: int | None = None) -> dict[str, tuple[int, int]]:
        """Part to (modules, parameters) of a LoRA on this model. Only for SD 1.x and 2.x."""
        return adapter_counts(self.shapes, rank, conv_rank)


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


def require_architecture(info: CheckpointInfo, accepted: Sequence[str], method: str = "adapter") -> None:
    """Raise UserError unless a model is of an architecture that a trainer takes.

    Args:
        info: the model.
        accepted: architectures, such as ("sd1", "sd2").
        method: of the recipe: decides which script is recommended.
    """
    if info.architecture in accepted:
        _require_text_to_image(info)
        return
    wanted = " or ".join(LABELS[name] for name in accepted)
    if recipe := recipe_for(method, info.architecture):
        later = "" if recipe.available else ", which is not yet available"
        raise UserError(f"{info.path} is {info.label}, this trainer takes {wanted}: use {recipe.script}.py{later}")
    if info.architecture == "lora":
        remedy = "give the base model it was made for; to go on training it, name it in network_weights"
        raise UserError(f"{info.path} is {info.label}, not a base model: {remedy}")
    if info.architecture == "vae":
        raise UserError(f"{info.path} is {info.label}, not a base model: name it in the option vae")
    raise UserError(f"{info.path} is {info.label}: this trainer takes {wanted}")


def _require_text_to_image(info: CheckpointInfo) -> None:
    if info.architecture not in ("sd1", "sd2"):
        return
    conv_in = info.shapes["unet"].get("conv_in.weight")
    if conv_in is not None and conv_in[1] != SD_LATENT_CHANNELS:
        kind = "an inpainting or other special model"
        raise UserError(f"{info.path} is {kind} ({conv_in[1]} input channels): give a text-to-image model")


def _inspect_folder(path: Path) -> CheckpointInfo:
    if not (path / "model_index.json").is_file() and not (path / "unet" / "config.json").is_file():
        raise UserError(_no_diffusers_folder(path))
    tensors: dict[str, TensorInfo] = {}
    foreign: list[str] = []
    files = {folder: weight_files(path / folder) for folder in FOLDERS.values() if (path / folder).is_dir()}
    for folder, found in files.items():
        for file in found:
            header: Header = read_header(file)
            tensors.update({f"{folder}/{name}": info for name, info in header.tensors.items()})
            foreign += header.foreign
    return CheckpointInfo(path, "diffusers", _folder_architecture(path, tensors), tensors, {}, tuple(foreign), files)


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The weight file of a diffusers subfolder: full precision before fp16, safetensors before bin.

    Raises:
        UserError: there is none.
    """
    for suffix in (".safetensors", ".fp16.safetensors", ".bin", ".fp16.bin"):
        for stem in ("diffusion_pytorch_model", "model", "pytorch_model"):
            if (folder / (stem + suffix)).is_file():
                return (folder / (stem + suffix),)
    raise UserError(f"{folder} holds no weights: expected diffusion_pytorch_model.safetensors or model.safetensors")


def _folder_architecture(path: Path, tensors: Mapping[str, TensorInfo]) -> str:
    if (path / "text_encoder_2").is_dir():
        return "sdxl" if (path / "unet").is_dir() else "unknown"
    if "unet/conv_in.weight" not in tensors:
        return "unknown"
    text = path / "text_encoder" / "config.json"
    if not text.is_file():
        return "unknown"
    try:
        activation = json.loads(text.read_text(encoding="utf-8")).get("hidden_act")
    except ValueError as error:
        raise UserError(f"{text} is damaged: no valid JSON ({error})") from error
    return "sd2" if activation == "gelu" else "sd1"  # OpenCLIP's activation, CLIP's is quick_gelu


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
