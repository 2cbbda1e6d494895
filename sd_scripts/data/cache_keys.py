"""What a cached tensor is made from, as a key: equal keys, equal tensors. A picture counts by its content, not its name."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sd_scripts.data.pictures import is_masked_by_opacity

if TYPE_CHECKING:
    from sd_scripts.data.plan import Sample
    from sd_scripts.models.base import LatentSpec
    from sd_scripts.options.dataset import DatasetOptions

VERSION = 1  # raise it when pictures are scaled, cut or encoded in another way than before


def digest(*parts: object) -> bytes:
    """16 bytes that depend on the text of every part."""
    return hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=16).digest()


def content_hash(path: Path) -> bytes:
    """16 bytes that depend on a file's content."""
    with path.open("rb") as file:
        found = hashlib.blake2b(digest_size=16)
        while block := file.read(1 << 20):
            found.update(block)
    return found.digest()


@dataclass(frozen=True)
class LatentRecipe:
    """How the latents of a subset's pictures are made, apart from the picture."""

    options: DatasetOptions
    encoding: str  # how pixels become latents
    has_flipped: bool

    @classmethod
    def of(cls, options: DatasetOptions, latent: LatentSpec, vae: str, precision: str) -> LatentRecipe:
        """
        Args:
            vae: identity of the VAE and the precision it runs in.
            precision: number format that is stored.
        """
        return cls(
            options=options,
            encoding=f"{latent}/{vae}/{precision}",
            has_flipped=options.flip_aug,
        )

    def keys(self, sample: Sample, content: object, mask: object = None) -> EntryKeys:
        """The keys of a sample's tensors.

        Args:
            content: of the picture; or any other identity of what the latents come from.
            mask: the same of what the mask comes from; None without.
        """
        cut = f"{sample.fit.bucket}/{sample.fit.resized}/{sample.fit.crop}"
        reading = f"{VERSION}/{self.options.resize_interpolation}/{is_masked_by_opacity(sample, self.options)}"
        pixels = f"{reading}/{_text(content)}/{cut}"
        return EntryKeys(
            latents=digest("latents", self.encoding, pixels),
            flipped=digest("flipped", self.encoding, pixels) if self.has_flipped else None,
            mask=None if mask is None else digest("mask", VERSION, _text(mask), cut),
        )


@dataclass(frozen=True, slots=True)
class EntryKeys:
    """The keys of one sample's tensors; None where there is no such tensor."""

    latents: bytes
    flipped: bytes | None
    mask: bytes | None

    def __iter__(self):
        """Those that there are."""
        return (key for key in (self.latents, self.flipped, self.mask) if key is not None)


def _text(identity: object) -> object:
    return identity.hex() if isinstance(identity, bytes) else identity


def text_key(caption: str, encoder: str, dtype: str) -> bytes:
    """The key of an encoded caption.

    Args:
        encoder: identity of the text encoders and of all that decides what they make of a caption.
    """
    return digest("text", VERSION, encoder, dtype, caption)


def caption_source(caption: str) -> bytes:
    """Identity of a caption alone."""
    return digest("caption", caption)
