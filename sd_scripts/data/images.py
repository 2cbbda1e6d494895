"""Reading pictures: every file ends as an upright RGB picture that looks like the original, at the size asked for.

Arrays are uint8 of shape (height, width, channels); sizes are (width, height) in pixels.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sd_scripts.data.truncation import missing_end, tail

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np
    from PIL import Image as PillowImage

Size = tuple[int, int]
UNREADABLE_REMEDY = 'replace or remove it, or set on_bad_image = "skip"'
BACKGROUND = (255, 255, 255)  # behind transparent pictures

_ORIENTATION = 274  # EXIF tag
_SIDEWAYS = (5, 6, 7, 8)  # EXIF orientations that swap width and height

# Reduced JPEG decoding may go down to this many times the wanted size. Scaled on from there, photographs differ from
# those scaled from the full decode by 49 dB or better; from once the wanted size it is 36 dB on the sharpest.
_REDUCED_MARGIN = 2


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
        has_alpha = _has_transparency(image)
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


def read(path: Path, wanted: Size | None = None, *, with_alpha: bool = False) -> Pixels:
    """The whole picture, upright, in RGB; transparency on white.

    Args:
        path: the file.
        wanted: size it will be scaled to; a JPEG may come back smaller than it is, though never near that size.
        with_alpha: return the opacity besides, and the colours as they are stored, not on white.

    Raises:
        PictureProblem: it cannot be read.
    """
    import numpy as np
    from PIL import ImageOps

    with _open(path) as (image, _), _decoding():
        if wanted is not None:
            _decode_reduced(image, wanted)
        image.load()
        upright = ImageOps.exif_transpose(image)
        colours = _to_rgb_or_rgba(upright)
    if colours.mode == "RGB":
        rgb = np.asarray(colours)
        return Pixels(rgb, np.full(rgb.shape[:2], 255, np.uint8) if with_alpha else None)
    if with_alpha:
        rgba = np.asarray(colours)
        return Pixels(np.ascontiguousarray(rgba[..., :3]), np.ascontiguousarray(rgba[..., 3]))
    return Pixels(np.asarray(_on_background(colours)))


def resize(pixels: np.ndarray, size: Size, interpolation: str | None = None) -> np.ndarray:
    """Scale an array (h, w) or (h, w, 3) to (width, height).

    `interpolation` is as the option `resize_interpolation`; None is area when no side grows, else Lanczos.
    """
    import numpy as np

    height, width = pixels.shape[:2]
    if (width, height) == size:
        return pixels
    if interpolation is None:
        interpolation = "area" if size[0] <= width and size[1] <= height else "lanczos"
    if interpolation in ("lanczos", "box"):
        from PIL import Image

        resampling = Image.Resampling.LANCZOS if interpolation == "lanczos" else Image.Resampling.BOX
        return np.asarray(Image.fromarray(pixels).resize(size, resampling))
    cv2 = load_cv2()
    methods = {
        "nearest": cv2.INTER_NEAREST_EXACT,
        "bilinear": cv2.INTER_LINEAR,
        "linear": cv2.INTER_LINEAR,
        "bicubic": cv2.INTER_CUBIC,
        "cubic": cv2.INTER_CUBIC,
        "area": cv2.INTER_AREA,
    }
    return cv2.resize(pixels, size, interpolation=methods[interpolation])


def cut(pixels: np.ndarray, offset: tuple[int, int], size: Size) -> np.ndarray:
    """The part of `size` whose upper left corner lies at `offset` (x, y)."""
    x, y = offset
    return pixels[y : y + size[1], x : x + size[0]]


def vary_colours(pixels: np.ndarray, draws: random.Random) -> np.ndarray:
    """A little other hue (up to 16 degrees) or brightness (gamma 0.95 to 1.05), in one of three uses."""
    import numpy as np

    if draws.random() >= 1 / 3:
        return pixels
    if draws.random() < 0.5:
        gamma = draws.uniform(0.95, 1.05)
        table = (255 * (np.arange(256) / 255) ** gamma + 0.5).astype(np.uint8)
        return table[pixels]
    cv2 = load_cv2()
    hsv = cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2HSV)  # hue is 0...179, in steps of two degrees
    hsv[..., 0] = (hsv[..., 0].astype(np.int16) + draws.randint(-8, 8)) % 180
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)


@lru_cache
def load_cv2() -> ModuleType:
    """OpenCV without threads of its own: its pool does not survive a fork, and our workers are parallel already."""
    import cv2

    cv2.setNumThreads(0)
    return cv2


@contextmanager
def _open(path: Path) -> Iterator[tuple[PillowImage.Image, BinaryIO]]:
    """The file as a Pillow image whose header was read, and the file itself; every failure is a PictureProblem."""
    _load_plug_ins()
    try:
        file = path.open("rb")
    except OSError as problem:
        raise PictureProblem(f"cannot be opened: {problem.strerror or problem}") from problem
    with file, _read_header(file) as image:
        yield image, file


def _read_header(file: BinaryIO) -> PillowImage.Image:
    from PIL import Image, UnidentifiedImageError

    start = file.read(12)
    if not start:
        raise PictureProblem("is empty (0 bytes)")
    file.seek(0)
    try:
        return Image.open(file)
    except UnidentifiedImageError as problem:
        raise PictureProblem("is not a picture, whatever its name says") from problem
    except Image.DecompressionBombError as problem:
        raise PictureProblem("has more than 178 million pixels; make it smaller") from problem
    except Exception as problem:  # Pillow's plug-ins raise anything on damaged headers
        is_webp = start[:4] == b"RIFF" and start[8:] == b"WEBP"  # of which opening already needs the end
        cut_off = missing_end(file, "WEBP") if is_webp else ""
        raise PictureProblem(cut_off or f"has a damaged header ({problem})") from problem


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
def _load_plug_ins() -> None:
    if importlib.util.find_spec("pillow_jxl"):
        importlib.import_module("pillow_jxl")


def _orientation(image: PillowImage.Image) -> int:
    # Asked for the EXIF data of a PNG that has none in front, Pillow decodes all of it in search of some behind.
    if image.format == "PNG" and "exif" not in image.info and "Raw profile type exif" not in image.info:
        return 1
    return image.getexif().get(_ORIENTATION, 1)


def _decode_reduced(image: PillowImage.Image, wanted: Size) -> None:
    """Let a JPEG be decoded at a half, a quarter or an eighth where that leaves more than enough pixels."""
    if image.format != "JPEG":
        return
    stored = wanted[::-1] if _orientation(image) in _SIDEWAYS else wanted
    if image.mode in ("RGB", "L"):
        image.draft(image.mode, (stored[0] * _REDUCED_MARGIN, stored[1] * _REDUCED_MARGIN))


def _to_rgb_or_rgba(image: PillowImage.Image) -> PillowImage.Image:
    """Any mode as RGB, or as RGBA where the picture has transparency."""
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        return _deep_grey(image)
    if _has_transparency(image):
        premultiplied = {"La": "LA", "RGBa": "RGBA"}.get(image.mode)
        return (image.convert(premultiplied) if premultiplied else image).convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")


def _has_transparency(image: PillowImage.Image) -> bool:
    return image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info


def _deep_grey(image: PillowImage.Image) -> PillowImage.Image:
    """Grey of more than 8 bits, scaled to 8; Pillow itself would clip it to white."""
    import numpy as np
    from PIL import Image

    values = np.asarray(image).astype(np.float64)
    full = 65535.0 if image.mode != "F" else (1.0 if values.max(initial=0) <= 1 else 255.0)
    grey = np.clip(values / full * 255 + 0.5, 0, 255).astype(np.uint8)
    return Image.fromarray(grey).convert("RGB")


def _on_background(image: PillowImage.Image) -> PillowImage.Image:
    from PIL import Image

    background = Image.new("RGBA", image.size, (*BACKGROUND, 255))
    return Image.alpha_composite(background, image).convert("RGB")
