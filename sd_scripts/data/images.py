"""Reading pictures: every file ends as an upright sRGB picture that looks like the original, at the size asked for.

Arrays are uint8 of shape (height, width, channels); sizes are (width, height) in pixels.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sd_scripts.data import jpeg
from sd_scripts.data.buckets import Size
from sd_scripts.data.colours import has_transparency, on_background, to_rgb_or_rgba, to_srgb
from sd_scripts.data.resizing import load_cv2, resize, resize_mask
from sd_scripts.data.truncation import missing_end, tail

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image as PillowImage

UNREADABLE_REMEDY = 'replace or remove it, or set on_bad_image = "skip"'

LIMIT_VARIABLE = "MAX_IMAGE_MEGAPIXELS"

_ORIENTATION = 274  # EXIF tag
_SIDEWAYS = (5, 6, 7, 8)  # EXIF orientations that swap width and height


class PictureProblem(Exception):
    """Why one picture cannot be used; the text has neither path nor remedy."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a picture's header says."""

    size: Size  # upright
    has_alpha: bool


@dataclass(frozen=True)
class Pixels:
    """A read picture and, where it was asked for, its opacity."""

    rgb: np.ndarray  # (h, w, 3) uint8
    alpha: np.ndarray | None = None  # (h, w) uint8


def probe(path: Path) -> Header:
    """Size and kind of a picture, from its header and its end.

    Raises:
        PictureProblem: not a picture, empty, cut off, or without size.
    """
    with _open(path) as (image, file):
        if missing := missing_end(file, image.format or ""):
            raise PictureProblem(missing)
        if image.format == "PNG" and "exif" not in image.info and b"eXIf" in tail(file):
            with _decoding():
                image.load()  # what stands behind the pixels is only read with them
        size = image.size[::-1] if _orientation(image) in _SIDEWAYS else image.size
        has_alpha = has_transparency(image)
    if min(size) < 1:
        raise PictureProblem(f"has the size {size[0]}x{size[1]}")
    return Header(size, has_alpha)


def decode_fully(path: Path) -> None:
    """Decode every byte of a picture, as cheaply as its format allows.

    Raises:
        PictureProblem: something in it is damaged.
    """
    with _open(path) as (image, _), _decoding():
        image.draft("RGB", (1, 1))
        image.load()


def read(path: Path, *, with_alpha: bool = False) -> Pixels:
    """The whole picture, upright, in sRGB; transparency on white.

    Args:
        path: the file.
        with_alpha: return the opacity besides, and the colours as they are stored, not on white.

    Raises:
        PictureProblem: it cannot be read.
    """
    return _read(path, None, None, with_alpha)


def read_scaled(path: Path, size: Size, interpolation: str | None = None, *, with_alpha: bool = False) -> Pixels:
    """As `read`, scaled to a size.

    `interpolation` is as the option `resize_interpolation`. Unset is Lanczos for a JPEG, which is then decoded at a reduced
    scale where that leaves enough pixels; for other kinds area when no side grows, else Lanczos. The opacity is scaled
    as a mask.

    Raises:
        PictureProblem: it cannot be read.
    """
    return _read(path, size, interpolation, with_alpha)


def _read(path: Path, size: Size | None, interpolation: str | None, with_alpha: bool) -> Pixels:
    data = _bytes(path)
    with _read_header(io.BytesIO(data)) as image, _decoding():
        pixels = None
        if image.format in ("JPEG", "MPO") and image.mode in ("RGB", "L") and interpolation in (None, "lanczos"):
            pixels = _read_jpeg(image, data, size)
        if pixels is None:
            pixels = _read_any(image, with_alpha)
            pixels = pixels if size is None else _scaled(pixels, size, interpolation)
        profile = image.info.get("icc_profile")
    if with_alpha and pixels.alpha is None:
        pixels = replace(pixels, alpha=_opaque(pixels.rgb))
    return replace(pixels, rgb=to_srgb(pixels.rgb, profile))


def _scaled(pixels: Pixels, size: Size, interpolation: str | None) -> Pixels:
    alpha = None if pixels.alpha is None else resize_mask(pixels.alpha, size)
    return Pixels(resize(pixels.rgb, size, interpolation), alpha)


@contextmanager
def _open(path: Path) -> Iterator[tuple[PillowImage.Image, BinaryIO]]:
    """The file as a Pillow image whose header was read, and the file itself; every failure is a PictureProblem."""
    try:
        file = path.open("rb")
    except OSError as problem:
        raise _unopened(problem) from problem
    with file, _read_header(file) as image:
        yield image, file


def _unopened(problem: OSError) -> PictureProblem:
    return PictureProblem(f"cannot be opened: {problem.strerror or problem}")


def _read_header(file: BinaryIO) -> PillowImage.Image:
    from PIL import Image, UnidentifiedImageError

    _prepare_pillow()
    start = file.read(12)
    if not start:
        raise PictureProblem("is empty (0 bytes)")
    file.seek(0)
    try:
        image = Image.open(file)
    except UnidentifiedImageError as problem:
        raise PictureProblem("is not a picture, whatever its name says") from problem
    except Exception as problem:  # Pillow's plug-ins raise anything on damaged headers
        is_webp = start[:4] == b"RIFF" and start[8:] == b"WEBP"  # of which opening already needs the end
        cut_off = missing_end(file, "WEBP") if is_webp else ""
        raise PictureProblem(cut_off or f"has a damaged header ({problem})") from problem
    megapixels = image.size[0] * image.size[1] / 1e6
    if megapixels > most_megapixels():
        raise PictureProblem(
            f"has {megapixels:,.0f} million pixels, more than the limit of {most_megapixels():,}; make it smaller, or raise "
            f"the limit with the environment variable {LIMIT_VARIABLE}"
        )
    return image


@contextmanager
def _decoding() -> Iterator[None]:
    """Turns what Pillow raises on damaged data into a PictureProblem."""
    try:
        yield
    except PictureProblem:
        raise
    except Exception as problem:
        is_cut = "truncated" in str(problem).lower()
        raise PictureProblem("is cut off" if is_cut else f"is damaged ({problem})") from problem


@lru_cache
def _prepare_pillow() -> None:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # the limit is ours, and is explained
    if importlib.util.find_spec("pillow_jxl"):
        importlib.import_module("pillow_jxl")


def most_megapixels() -> int:
    """Pictures above this are refused: decoded they might fill the memory. The largest cameras give 200."""
    given = os.environ.get(LIMIT_VARIABLE, "")
    return int(given) if given.isdecimal() else 300


def _orientation(image: PillowImage.Image) -> int:
    # Asked for the EXIF data of a PNG that has none in front, Pillow decodes all of it in search of some behind.
    if image.format == "PNG" and "exif" not in image.info and "Raw profile type exif" not in image.info:
        return 1
    return image.getexif().get(_ORIENTATION, 1)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise _unopened(problem) from problem


def _read_jpeg(image: PillowImage.Image, data: bytes, size: Size | None) -> Pixels | None:
    """A JPEG the fast way; None if Pillow must see to it."""
    orientation = _orientation(image)
    stored = size[::-1] if size and orientation in _SIDEWAYS else size
    decoded = jpeg.decode(data, image.size, stored)
    if decoded is None:
        return None
    rgb = decoded.rgb if stored is None else resize(decoded.rgb, stored, "lanczos", extent=decoded.extent)
    return Pixels(_turned(rgb, orientation))


def _read_any(image: PillowImage.Image, with_alpha: bool) -> Pixels:
    import numpy as np
    from PIL import ImageOps

    image.load()
    colours = to_rgb_or_rgba(ImageOps.exif_transpose(image))
    if colours.mode == "RGB":
        return Pixels(np.asarray(colours))
    if not with_alpha:
        return Pixels(np.asarray(on_background(colours)))
    rgba = np.asarray(colours)
    return Pixels(np.ascontiguousarray(rgba[..., :3]), np.ascontiguousarray(rgba[..., 3]))


def _opaque(rgb: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.full(rgb.shape[:2], 255, np.uint8)


def _turned(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Stored pixels upright."""
    cv2 = load_cv2()
    match orientation:
        case 2:
            return cv2.flip(pixels, 1)
        case 3:
            return cv2.rotate(pixels, cv2.ROTATE_180)
        case 4:
            return cv2.flip(pixels, 0)
        case 5:
            return cv2.transpose(pixels)
        case 6:
            return cv2.rotate(pixels, cv2.ROTATE_90_CLOCKWISE)
        case 7:
            return cv2.flip(cv2.transpose(pixels), -1)
        case 8:
            return cv2.rotate(pixels, cv2.ROTATE_90_COUNTERCLOCKWISE)
    return pixels
