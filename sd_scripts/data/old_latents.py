"""Latents that other programs have stored, one `.npz` beside each picture: read where they fit, never written.

`cat_0100x0070_flux.npz` belongs to cat.png of 100 x 70 px and holds `latents_8x12`, `original_size_8x12`, `crop_ltrb_8x12`
and perhaps `latents_flipped_8x12` and `alpha_mask_8x12`, for each size that was asked for. Older ones for SD and SDXL have
the names without size; the oldest are called cat.npz. They say nothing of the VAE that made them.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sd_scripts.data.buckets import padding_box

if TYPE_CHECKING:
    from sd_scripts.data.plan import Sample
    from sd_scripts.models.base import LatentSpec


@dataclass(frozen=True)
class OldFormat:
    """How a model family's files look."""

    suffix: str
    is_scaled: bool  # scaled and shifted as the denoiser wants it, or the VAE's sample as it is
    has_plain_names: bool = False  # arrays without a size in their names, and files without size and family in theirs


FORMATS = {
    "sd1": OldFormat("_sd.npz", False, True),
    "sd2": OldFormat("_sd.npz", False, True),
    "sdxl": OldFormat("_sdxl.npz", False, True),
    "sd3": OldFormat("_sd3.npz", False),
    "flux": OldFormat("_flux.npz", True),
    "chroma": OldFormat("_flux.npz", True),
    "lumina": OldFormat("_lumina.npz", True),
    "anima": OldFormat("_anima.npz", True),
    "hunyuan_image": OldFormat("_hi.npz", False),
}

# What numpy raises on files that are cut, overwritten or not of its format.
_DAMAGE = (zipfile.BadZipFile, ValueError, EOFError, KeyError, OSError)


class OldLatentsProblem(Exception):
    """The file is damaged."""


@dataclass(frozen=True)
class OldLatents:
    """What was found for a picture, as the denoiser wants it, float32."""

    latents: Tensor  # (c, h, w)
    flipped: Tensor | None
    mask: Tensor | None  # (picture h, picture w) uint8, not mirrored


@dataclass(frozen=True)
class OldFile:
    """A file that may hold a picture's latents, and how to know it again."""

    path: Path
    bytes: int
    mtime_ns: int
    is_guess: bool  # by its name it may as well be something else

    @property
    def identity(self) -> str:
        return f"{self.path.name}/{self.bytes}/{self.mtime_ns}"


class OldFiles:
    """Finds the old files of pictures; every folder is listed once."""

    def __init__(self, family: str):
        self.format = FORMATS[family]
        self._listings: dict[Path, frozenset[str]] = {}

    def of(self, sample: Sample) -> Iterator[OldFile]:
        """Files that may hold a sample's latents, the likeliest first; none that is older than the picture."""
        names = self._names(sample.path.parent)
        if not names:
            return
        stem, (width, height) = sample.path.stem, sample.size
        candidates = {f"{stem}_{width:04d}x{height:04d}{self.format.suffix}": False}
        candidates |= {f"{stem}.npz": True} if self.format.has_plain_names else {}
        for name, is_guess in candidates.items():
            if name in names:
                path = sample.path.with_name(name)
                status = path.stat()
                if status.st_mtime_ns >= sample.mtime_ns:
                    yield OldFile(path, status.st_size, status.st_mtime_ns, is_guess)

    def _names(self, folder: Path) -> frozenset[str]:
        if folder not in self._listings:
            with os.scandir(folder) as entries:
                self._listings[folder] = frozenset(entry.name for entry in entries if entry.name.endswith(".npz"))
        return self._listings[folder]


def read_old(
    path: Path, sample: Sample, form: OldFormat, latent: LatentSpec, *, has_flipped: bool, has_mask: bool
) -> OldLatents | None:
    """The latents of a sample; None if the file has none of its size, cut and kind.

    Raises:
        OldLatentsProblem: the file is damaged, or holds values that are not finite.
    """
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):  # a bare array under a name for several
            raise OldLatentsProblem("is damaged")
        with archive:
            found = _select(archive, sample, form, latent, has_flipped, has_mask)
    except _DAMAGE as problem:
        raise OldLatentsProblem("is damaged") from problem
    if found is None:
        return None
    if not all(np.isfinite(values).all() for values in found.values()):
        raise OldLatentsProblem("holds values that are not finite")
    flipped, mask = found.get("latents_flipped"), found.get("alpha_mask")
    return OldLatents(
        _scaled(found["latents"], form, latent),
        None if flipped is None else _scaled(flipped, form, latent),
        None
        if mask is None
        else torch.from_numpy((mask.astype(np.float32) * 255).round().clip(0, 255).astype(np.uint8)),
    )


def _select(
    archive: np.lib.npyio.NpzFile,
    sample: Sample,
    form: OldFormat,
    latent: LatentSpec,
    has_flipped: bool,
    has_mask: bool,
) -> dict[str, np.ndarray] | None:
    """The wanted arrays, without size in their names, if all are there in their shapes and for this size and cut."""
    width, height = sample.bucket
    shape = (latent.channels, height // latent.downscale, width // latent.downscale)
    wanted = {"latents": shape}
    if has_flipped:
        wanted["latents_flipped"] = shape
    if has_mask:
        wanted["alpha_mask"] = (height, width)
    for suffix in (f"_{shape[1]}x{shape[2]}", *([""] if form.has_plain_names else [])):
        names = [*wanted, "original_size", "crop_ltrb"]
        if not all(name + suffix in archive.files for name in names):
            continue
        arrays = {name: archive[name + suffix] for name in names}
        if arrays["latents"].ndim == 4 and arrays["latents"].shape[1] == 1:  # with an axis for frames
            arrays |= {name: arrays[name][:, 0] for name in wanted if name != "alpha_mask"}
        is_wanted = all(arrays[name].shape == shape for name, shape in wanted.items())
        if is_wanted and _is_of(sample, arrays.pop("original_size"), arrays.pop("crop_ltrb")):
            return arrays
    return None


def _is_of(sample: Sample, original_size: np.ndarray, crop: np.ndarray) -> bool:
    """Whether size and cut are the sample's. Of the cut, left and top; the rest was worked out in several ways."""
    if tuple(original_size.tolist()) != sample.size or crop.shape != (4,):
        return False
    left, top, _, _ = padding_box(sample.size, sample.bucket)
    return abs(crop[0] - left) <= 1 and abs(crop[1] - top) <= 1


def _scaled(values: np.ndarray, form: OldFormat, latent: LatentSpec) -> Tensor:
    values = torch.from_numpy(values.astype(np.float32))
    return values if form.is_scaled else (values - latent.shift) * latent.scale
