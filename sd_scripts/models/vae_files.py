"""A separate VAE file or folder: what is in it, told without torch, so that a wrong one is refused in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sd_scripts.errors import ConfigError
from sd_scripts.models.configs import SD_LATENT_CHANNELS
from sd_scripts.models.detect import weight_files
from sd_scripts.models.headers import read_header
from sd_scripts.models.keymaps.core import Shape, Source
from sd_scripts.models.keymaps.sd import plan_vae_file
from sd_scripts.models.probes import LABELS, identify


@dataclass(frozen=True)
class VAEInfo:
    """A VAE on disk.

    Attributes:
        file: the weight file.
        folder: the diffusers folder it lies in, which has its config.json; None for a single file.
        sources: library tensor name to its place in the file.
        shapes: library tensor name to shape.
        unknown: tensors that have no place in a VAE.
        foreign: classes that a pickled file mentions besides torch's own.
    """

    file: Path
    folder: Path | None
    sources: Mapping[str, Source]
    shapes: Mapping[str, Shape]
    unknown: tuple[str, ...]
    foreign: tuple[str, ...]


def inspect_vae(path: Path) -> VAEInfo:
    """What the option `vae` names: a file in the original's or diffusers' names, a whole checkpoint, or a folder.

    Raises:
        ConfigError: nothing there, or no VAE with four latent channels.
        UserError: the file is damaged.
    """
    if not path.exists():
        raise ConfigError("vae", str(path), "no such file or folder")
    folder = None
    if path.is_dir():
        folder = path / "vae" if (path / "vae").is_dir() else path
    file = path if folder is None else weight_files(folder)[0]
    header = read_header(file)
    plan = plan_vae_file(header.tensors)
    sources = plan.parts["vae"]
    shapes = {name: source.shape(header.tensors[source.key].shape) for name, source in sources.items()}
    if "decoder.conv_in.weight" not in shapes or "encoder.conv_in.weight" not in shapes:
        raise ConfigError("vae", str(path), f"is {LABELS[identify(header.tensors)]}, not a VAE")
    if (channels := shapes["decoder.conv_in.weight"][1]) != SD_LATENT_CHANNELS:
        wanted = f"Stable Diffusion's have {SD_LATENT_CHANNELS}"
        raise ConfigError("vae", str(path), f"is a VAE with {channels} latent channels, {wanted}")
    return VAEInfo(file, folder, sources, shapes, plan.unknown, header.foreign)
