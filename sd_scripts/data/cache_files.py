"""Latent caches on disk: one `.npz` beside each picture, under the name and with the arrays that other programs know.

`cat_0100x0070_sd.npz` holds for each size `latents_8x12`, `original_size_8x12`, `crop_ltrb_8x12`, where needed
`latents_flipped_8x12` and `alpha_mask_8x12`, and our `fingerprint_8x12`: what the entry was made from. Files without
fingerprint (from another program) are taken if their shapes fit.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from sd_scripts.data.buckets import padding_box

if TYPE_CHECKING:
    from sd_scripts.data.plan import Sample
    from sd_scripts.models.base import LatentSpec
    from sd_scripts.options.dataset import DatasetOptions

State = Literal["good", "foreign", "missing", "stale", "damaged"]


@dataclass(frozen=True)
class CacheFormat:
    """How a model family stores latents on disk."""

    suffix: str = "_sd.npz"
    stores_scaled: bool = False  # SD and SDXL keep the VAE's sample as it is; FLUX, for one, scales first


@dataclass(frozen=True)
class Entry:
    """One picture's latents as the denoiser wants them, float32."""

    latents: np.ndarray  # (c, h, w)
    flipped: np.ndarray | None = None  # the mirrored picture's
    mask: np.ndarray | None = None  # (picture h, picture w) float32 in 0…1, not mirrored


@dataclass(frozen=True)
class EntrySpec:
    """What a sample's entry must be: where it lies, its shapes, and what it is made from."""

    sample: Sample
    path: Path
    shape: tuple[int, int, int]  # of the latents
    has_flipped: bool
    has_mask: bool
    made_from: str  # all but the picture's content

    @property
    def size_suffix(self) -> str:
        return f"_{self.shape[1]}x{self.shape[2]}"


def entry_spec(sample: Sample, options: DatasetOptions, latent: LatentSpec, vae: str, form: CacheFormat) -> EntrySpec:
    """What the entry of a sample must be.

    Args:
        vae: identity of the VAE (and the precision it runs in).
    """
    width, height = sample.bucket
    made_from = {
        "vae": vae,
        "family": form.suffix,
        "bucket": sample.fit.bucket,
        "resized": sample.fit.resized,
        "crop": sample.fit.crop,
        "interpolation": options.resize_interpolation,
        "alpha_mask": options.alpha_mask,
    }
    name = f"{sample.path.stem}_{sample.size[0]:04d}x{sample.size[1]:04d}{form.suffix}"
    return EntrySpec(
        sample=sample,
        path=sample.path.with_name(name),
        shape=(latent.channels, height // latent.downscale, width // latent.downscale),
        has_flipped=options.flip_aug,
        has_mask=options.alpha_mask,
        made_from=json.dumps(made_from, sort_keys=True),
    )


def content_hash(path: Path) -> str:
    """Identity of a file's content."""
    with path.open("rb") as file:
        digest = hashlib.blake2b(digest_size=16)
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_entry(spec: EntrySpec) -> State:
    """Whether the entry on disk can be used. All of it is read, so a damaged one is found now and not in the run."""
    try:
        arrays = _load(spec.path)
    except FileNotFoundError:
        return "missing"
    except _DAMAGE:
        return "damaged"
    found = _select(arrays, spec)
    if found is None:  # other sizes may be in the file
        return "stale" if f"latents{spec.size_suffix}" in arrays else "missing"
    latents, fingerprint = found["latents"], found.get("fingerprint")
    if not np.isfinite(latents).all():
        return "damaged"
    if fingerprint is None:
        return "stale" if spec.path.stat().st_mtime_ns < spec.sample.mtime_ns else "foreign"
    return "good" if _is_same(fingerprint, spec) else "stale"


def read_entry(spec: EntrySpec, latent: LatentSpec, form: CacheFormat) -> Entry:
    """The entry of a sample.

    Raises:
        CacheEntryProblem: it is missing, damaged or of another shape.
    """
    try:
        found = _select(_load(spec.path), spec)
    except FileNotFoundError as problem:
        raise CacheEntryProblem(f"{spec.path} has disappeared") from problem
    except _DAMAGE as problem:
        raise CacheEntryProblem(f"{spec.path} is damaged") from problem
    if found is None:
        raise CacheEntryProblem(f"{spec.path} holds no latents of the size {spec.size_suffix[1:]}")

    def ready(stored: np.ndarray) -> np.ndarray:
        values = stored.astype(np.float32)
        return values if form.stores_scaled else (values - latent.shift) * np.float32(latent.scale)

    flipped = ready(found["latents_flipped"]) if spec.has_flipped else None
    mask = found["alpha_mask"].astype(np.float32) if spec.has_mask else None
    return Entry(ready(found["latents"]), flipped, mask)


def write_entry(spec: EntrySpec, entry: Entry, content: str, latent: LatentSpec, form: CacheFormat) -> None:
    """Write an entry; entries of other sizes in the same file stay. Either all of it is written or nothing."""

    def stored(values: np.ndarray) -> np.ndarray:
        return values if form.stores_scaled else values / np.float32(latent.scale) + np.float32(latent.shift)

    picture = {"bytes": spec.sample.bytes, "mtime_ns": spec.sample.mtime_ns, "content": content}
    arrays = {
        "latents": stored(entry.latents).astype(np.float32),
        "original_size": np.array(spec.sample.size, np.int64),
        "crop_ltrb": np.array(padding_box(spec.sample.size, spec.sample.bucket), np.float64),
        "fingerprint": np.array(json.dumps({"picture": picture, "made_from": spec.made_from})),
    }
    if entry.flipped is not None:
        arrays["latents_flipped"] = stored(entry.flipped).astype(np.float32)
    if entry.mask is not None:
        arrays["alpha_mask"] = entry.mask.astype(np.float32)
    try:
        kept = {name: values for name, values in _load(spec.path).items() if not name.endswith(spec.size_suffix)}
    except (FileNotFoundError, *_DAMAGE):
        kept = {}
    temporary = spec.path.with_name(f".{spec.path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez(file, **kept, **{name + spec.size_suffix: values for name, values in arrays.items()})
        temporary.replace(spec.path)
    finally:
        temporary.unlink(missing_ok=True)


class CacheEntryProblem(Exception):
    """Why an entry cannot be read; the text names the file."""


# What numpy raises on files that are cut, overwritten or not of its format.
_DAMAGE = (zipfile.BadZipFile, ValueError, EOFError, KeyError, OSError)


def _load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        if isinstance(archive, np.ndarray):
            raise ValueError("a bare array")
        return {name: archive[name] for name in archive.files}


def _select(arrays: Mapping[str, np.ndarray], spec: EntrySpec) -> dict[str, np.ndarray] | None:
    """The entry's arrays without size suffix, None unless all that are needed are there in their shapes.

    Names without size suffix are from older programs.
    """
    wanted = {"latents": spec.shape}
    if spec.has_flipped:
        wanted["latents_flipped"] = spec.shape
    if spec.has_mask:
        wanted["alpha_mask"] = spec.sample.bucket[::-1]
    for suffix in (spec.size_suffix, ""):
        if all(name + suffix in arrays and arrays[name + suffix].shape == shape for name, shape in wanted.items()):
            found = {name: arrays[name + suffix] for name in wanted}
            if "fingerprint" + suffix in arrays:
                found["fingerprint"] = arrays["fingerprint" + suffix]
            return found
    return None


def _is_same(fingerprint: np.ndarray, spec: EntrySpec) -> bool:
    try:
        stored = json.loads(str(fingerprint))
        picture, made_from = stored["picture"], stored["made_from"]
    except (ValueError, KeyError, TypeError):
        return False
    if made_from != spec.made_from or picture["bytes"] != spec.sample.bytes:
        return False
    # A copied or touched picture has another time but the same content.
    return picture["mtime_ns"] == spec.sample.mtime_ns or picture["content"] == content_hash(spec.sample.path)
