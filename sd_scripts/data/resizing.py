"""Scaling and cutting of pixel arrays (height, width) or (height, width, 3) in uint8; sizes are (width, height)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np

    from sd_scripts.data.buckets import Size


def resize(
    pixels: np.ndarray, size: Size, interpolation: str | None = None, *, extent: tuple[float, float] | None = None
) -> np.ndarray:
    """The array scaled to a size.

    Args:
        interpolation: as the option `resize_interpolation`; None is area when no side grows, else Lanczos.
        extent: (width, height) of the part that is scaled, from the upper left corner on, where the last column and row
            belong to the picture in part only. For Lanczos.
    """
    height, width = pixels.shape[:2]
    if (width, height) == size and extent in (None, size):
        return pixels
    match interpolation or default_interpolation((width, height), size):
        case "lanczos":
            return _lanczos(pixels, size, extent or (width, height))
        case "box":
            return _box(pixels, size)
        case method:
            cv2 = load_cv2()
            methods = {
                "nearest": cv2.INTER_NEAREST_EXACT,
                "bilinear": cv2.INTER_LINEAR,
                "linear": cv2.INTER_LINEAR,
                "bicubic": cv2.INTER_CUBIC,
                "cubic": cv2.INTER_CUBIC,
                "area": cv2.INTER_AREA,
            }
            return cv2.resize(pixels, size, interpolation=methods[method])


def resize_mask(mask: np.ndarray, size: Size) -> np.ndarray:
    """A mask (h, w) scaled. Not by Lanczos, which would draw dark and bright seams along every edge."""
    height, width = mask.shape
    shrinks = size[0] <= width and size[1] <= height
    return resize(mask, size, "area" if shrinks else "bilinear")


def default_interpolation(before: Size, after: Size) -> str:
    """What an unset `resize_interpolation` means for pixels that are all there."""
    return "area" if after[0] <= before[0] and after[1] <= before[1] else "lanczos"


def cut(pixels: np.ndarray, offset: tuple[int, int], size: Size) -> np.ndarray:
    """The part of `size` whose upper left corner lies at `offset` (x, y)."""
    x, y = offset
    return pixels[y : y + size[1], x : x + size[0]]


def _lanczos(pixels: np.ndarray, size: Size, extent: tuple[float, float]) -> np.ndarray:
    """Antialiased Lanczos. The same as Pillow's but for rounding, four to nine times as fast (bench/decode.py)."""
    import numpy as np
    import torch
    from torch.nn.functional import interpolate

    channels = pixels if pixels.ndim == 3 else pixels[..., None]
    tensor = torch.from_numpy(np.require(channels, requirements=("C", "W"))).permute(2, 0, 1)[None]
    factors = [want / have * (1 + 1e-9) for want, have in zip(size, extent, strict=True)]  # sizes are rounded down
    scaled = interpolate(tensor, scale_factor=(factors[1], factors[0]), mode="lanczos", antialias=True)[0]
    made = scaled[:, : size[1], : size[0]].permute(1, 2, 0).numpy()
    return made if pixels.ndim == 3 else made[..., 0]


def _box(pixels: np.ndarray, size: Size) -> np.ndarray:
    import numpy as np
    from PIL import Image

    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BOX))


@lru_cache
def load_cv2() -> ModuleType:
    """OpenCV without threads of its own: its pool does not survive a fork, and our workers are parallel already."""
    import cv2

    cv2.setNumThreads(0)
    return cv2
