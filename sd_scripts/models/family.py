"""What a model family is: how its files are recognised, which networks they hold under which names. Needs no torch.

A family is one module in `families/`; nothing else in the program lists families. See docs/architecture.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sd_scripts.errors import UserError
from sd_scripts.models.keymaps.core import KeyMap, Shape

Shapes = Mapping[str, Shape]  # tensor name to shape
PartShapes = Mapping[str, Shapes]  # part name to its tensors

DENOISER, VAE = "unet", "vae"  # these two parts have the same name in every family; text encoders are te1, te2, …
ANY_PREFIX = ("", "model.diffusion_model.", "first_stage_model.", "net.", "model.", "vae.", "transformer.")


@dataclass(frozen=True)
class LatentSpec:
    """How pictures become latents (channels, h/downscale, w/downscale): `latents = (vae_sample - shift) * scale`."""

    channels: int
    downscale: int
    scale: float
    shift: float = 0.0


@dataclass(frozen=True)
class Probe:
    """Tensor names, all below one prefix, that are all there in a file of some kind; and names that are not."""

    names: tuple[str, ...]
    without: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ANY_PREFIX

    def fits(self, names: Collection[str]) -> bool:
        """Whether a file with these tensors is of the kind."""
        return any(
            all(prefix + name in names for name in self.names)
            and not any(prefix + name in names for name in self.without)
            for prefix in self.prefixes
        )


@dataclass(frozen=True)
class Layout:
    """One of the ways in which files name the tensors of a part.

    Attributes:
        markers: names of which one is in every file of this layout and in no other.
        read: the key map for a file, from its names (without prefix).
        write: the key map for a network, from the names of its state dict.
        prefixes: under which the part may lie in a file that holds several; the first is written.
        kept: starts of names that no network uses but that belong in such a file; written back.
    """

    markers: tuple[str, ...]
    read: Callable[[Collection[str]], KeyMap]
    write: Callable[[Collection[str]], KeyMap]
    prefixes: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def no_problem(_shapes: Shapes) -> None:
    """Of a part that any file of the right names fits."""


@dataclass(frozen=True)
class Part:
    """One network of a model.

    Attributes:
        name: "unet" (the denoiser, of whatever kind), "vae", "te1", …: what rates, logs and metadata call it.
        label: for people.
        folder: its subfolder in a diffusers folder.
        layouts: that of the original files first, then others that are read; the last is that of diffusers folders.
        option: the option that names a separate file of it.
        problem: what is wrong with a file of it, by its shapes: "is a VAE with 16 latent channels, SDXL's have 4".
    """

    name: str
    label: str
    folder: str
    layouts: tuple[Layout, ...] = ()
    option: str | None = None
    problem: Callable[[Shapes], str | None] = no_problem

    @property
    def is_text_encoder(self) -> bool:
        return self.name not in (DENOISER, VAE)


@dataclass(frozen=True)
class TargetName:
    """A weight that adapters may train: its name in LoRA files and where it is.

    `modules` are the parts, in row order, of what is one layer in the original model (several for a fused qkv).
    """

    name: str
    part: str
    modules: tuple[str, ...]  # dotted names in the library's network
    shape: Shape  # of the weight, of all modules together
    needs_conv_dim: bool = False
    block: int | None = None  # the block that ranks and rates by block count it to

    @property
    def is_conv3x3(self) -> bool:
        """Whether its adapter takes conv_dim as rank."""
        return len(self.shape) == 4 and self.shape[2:] != (1, 1)

    def lora_parameters(self, rank: int) -> int:
        """Numbers in a LoRA pair of this rank; a convolution's kernel is in the down half."""
        return rank * (math.prod(self.shape[1:]) + self.shape[0])


@dataclass(frozen=True)
class BlockRows:
    """How many blocks of a U-Net ranks and rates by block count: before its rows, down, in the middle, up, after them."""

    before: int
    down: int
    mid: int
    up: int
    after: int

    @property
    def total(self) -> int:
        return self.before + self.down + self.mid + self.up + self.after


@dataclass(frozen=True)
class ModelIdentity:
    """How files name a base model in their metadata."""

    base_version: str  # ss_base_model_version
    architecture: str  # modelspec.architecture, without what was trained
    is_v2: bool  # ss_v2
    prediction: Literal["epsilon", "v"] | None
    default_resolution: int  # px
    implementation: str = "diffusers"  # of an adapter for it


@dataclass(frozen=True)
class ModelFolder:
    """A diffusers folder: names of its tensors as `<subfolder>/<name>`."""

    path: Path
    names: Collection[str]

    def config(self, subfolder: str) -> dict[str, Any]:
        """The part's configuration; empty where there is none."""
        file = self.path / subfolder / "config.json"
        if not file.is_file():
            return {}
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(f"{file} is damaged: no valid JSON ({error})") from error


def no_targets(_shapes: PartShapes) -> Iterator[TargetName]:
    """Of a family whose adapters are still to come."""
    return iter(())


def no_blocks(_shapes: Shapes) -> Mapping[str, int]:
    """Of a family without rates by block."""
    return {}


def no_identity(_predicts_v: bool, _shapes: PartShapes) -> ModelIdentity:
    """Of a family that cannot be trained yet."""
    raise NotImplementedError


@dataclass(frozen=True)
class ModelFamily:
    """A model family.

    Attributes:
        name: what options, caches and code call it.
        label: for people.
        place: in lists.
        traits: what options ask for: "noise" (predicts noise or velocity) or "flow" (flow matching); "unet" or "dit"
            (transformer blocks); "clip" (prompts in chunks of 75 CLIP tokens); "t5" (a T5 text encoder).
        divisor: sides of training pictures must be multiples of so many px.
        scripts: the trainers that take it.
        probes: how its single files are recognised.
        in_folder: how its diffusers folders are recognised.
        latent: what its VAE makes of pictures.
        parts: its networks, in the order of the original file.
        text_rates: how many rates of text encoders an adapter can have.
        needs: options that name files which its base model never holds.
        targets: what adapters may train, from the shapes of its parts, in the order of LoRA files.
        blocks: the blocks that `TargetName.block` counts; None where adapters have no ranks by block.
        weight_blocks: the block of each weight of the denoiser, for rates by block; empty where there are none.
        identity: what metadata calls it, from whether it predicts velocity, and the shapes.
        refusal: why a file of the family cannot be trained on, from its shapes ("is an inpainting model: …").
        predicts_v: whether a file says that it predicts velocity, from its names.
        loader: "module:function" that gives the loaded `Architecture`, as `registry.Loader`; None while it is to come.
        article: before the label.
    """

    name: str
    label: str
    place: int
    traits: frozenset[str]
    divisor: int
    scripts: tuple[str, ...]
    probes: tuple[Probe, ...]
    in_folder: Callable[[ModelFolder], bool]
    latent: LatentSpec
    parts: tuple[Part, ...] = ()
    text_rates: int = 1
    needs: tuple[str, ...] = ()
    targets: Callable[[PartShapes], Iterator[TargetName]] = no_targets
    blocks: BlockRows | None = None
    weight_blocks: Callable[[Shapes], Mapping[str, int]] = no_blocks
    identity: Callable[[bool, PartShapes], ModelIdentity] = no_identity
    refusal: Callable[[PartShapes], str | None] = no_problem
    predicts_v: Callable[[Collection[str]], bool] = lambda names: False
    loader: str | None = None
    article: str = "a"

    def has(self, wanted: Collection[str]) -> bool:
        """Whether one of these traits or names is the family's; nothing wanted: always."""
        return not wanted or self.name in wanted or not self.traits.isdisjoint(wanted)

    @property
    def model_label(self) -> str:
        """In a sentence: "an SDXL model"."""
        return f"{self.article} {self.label} model"

    def part(self, name: str) -> Part:
        return next(part for part in self.parts if part.name == name)
