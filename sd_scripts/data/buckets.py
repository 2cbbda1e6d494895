"""Aspect buckets: which sizes there are, which one a picture gets, how it is scaled and where it is cut.

Sizes are (width, height) in pixels throughout.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

Size = tuple[int, int]


@dataclass(frozen=True)
class Fit:
    """How a picture gets its training size: scaled to `resized`, then cut to `bucket` at the offset `crop`."""

    bucket: Size
    resized: Size
    crop: tuple[int, int]  # x, y of the centred cut inside the resized picture
    aspect_error: float  # the bucket's aspect minus the picture's

    def scale(self, size: Size) -> float:
        """Factor of enlargement; below 1 the picture shrinks."""
        return self.resized[0] / size[0]

    @property
    def cut(self) -> Size:
        """Pixels of the resized picture that are lost in each direction."""
        return self.resized[0] - self.bucket[0], self.resized[1] - self.bucket[1]


class Buckets:
    """The buckets of one dataset, ready to be asked for many pictures."""

    def __init__(self, resolution: Size, *, smallest: int, largest: int, step: int, no_upscale: bool):
        self.resolution = resolution
        self.step = step
        self.no_upscale = no_upscale
        self.sizes = () if no_upscale else tuple(bucket_sizes(resolution, smallest, largest, step))
        # By aspect, so that a picture's is found by bisection; of equal aspects the first in size order counts.
        by_aspect: dict[float, Size] = {}
        for width, height in self.sizes:
            by_aspect.setdefault(width / height, (width, height))
        self._aspects = sorted(by_aspect)
        self._by_aspect = by_aspect
        self._exact = set(self.sizes)

    def fit(self, size: Size) -> Fit | None:
        """The picture's bucket, or None where it is too small for any (only without enlarging)."""
        return self._fit_unenlarged(size) if self.no_upscale else _cover(size, self._nearest(size))

    def _nearest(self, size: Size) -> Size:
        if size in self._exact:
            return size
        aspect = size[0] / size[1]
        at = bisect.bisect_left(self._aspects, aspect)
        near = self._aspects[max(at - 1, 0) : at + 1]
        candidates = [self._by_aspect[value] for value in near]
        # Equally near buckets: the one that comes first in size order.
        return min(candidates, key=lambda bucket: (abs(bucket[0] / bucket[1] - aspect), bucket))

    def _fit_unenlarged(self, size: Size) -> Fit | None:
        width, height = size
        area = self.resolution[0] * self.resolution[1]
        resized = _shrink_to_area(size, area, self.step) if width * height > area else size
        bucket = (resized[0] - resized[0] % self.step, resized[1] - resized[1] % self.step)
        if not all(bucket):
            return None
        return Fit(bucket, resized, _centre(resized, bucket), bucket[0] / bucket[1] - width / height)


def fit_exactly(size: Size, resolution: Size) -> Fit:
    """How a picture gets the one size that is used without buckets."""
    return _cover(size, resolution)


def bucket_sizes(resolution: Size, smallest: int, largest: int, step: int) -> list[Size]:
    """Every bucket with at most the resolution's area whose sides are multiples of `step` within the limits."""
    area = resolution[0] * resolution[1]
    square = int(math.sqrt(area) // step) * step
    sizes = {(square, square)}
    for width in range(smallest, largest + 1, step):
        height = min(largest, area // width // step * step)
        if height >= smallest:
            sizes |= {(width, height), (height, width)}
    return sorted(sizes)


def round_limits(smallest: int, largest: int, step: int) -> tuple[int, int]:
    """Shortest and longest bucket side as multiples of the step: the former rounded down, the latter up."""
    return max(step, smallest // step * step), -(-largest // step) * step


def padding_box(size: Size, bucket: Size) -> tuple[float, float, float, float]:
    """Left, top, right, bottom of the whole picture fitted inside the bucket: `crop_ltrb` in cache files."""
    width, height = size
    if bucket[0] / bucket[1] > width / height:
        inner_width, inner_height = bucket[1] * width / height, bucket[1]
    else:
        inner_width, inner_height = bucket[0], bucket[0] * height / width
    left, top = (bucket[0] - inner_width) // 2, (bucket[1] - inner_height) // 2
    return left, top, left + inner_width, top + inner_height


def _cover(size: Size, bucket: Size) -> Fit:
    """Scale so that the picture covers the bucket, and cut the overhang."""
    width, height = size
    is_wider = width / height > bucket[0] / bucket[1]
    scale = bucket[1] / height if is_wider else bucket[0] / width
    resized = (int(width * scale + 0.5), int(height * scale + 0.5))
    return Fit(bucket, resized, _centre(resized, bucket), bucket[0] / bucket[1] - width / height)


def _shrink_to_area(size: Size, area: int, step: int) -> Size:
    """The size near `area` in the picture's aspect; the side that errs less is made a multiple of the step."""
    aspect = size[0] / size[1]
    width = math.sqrt(area * aspect)
    height = area / width
    by_width = _floor(width, step)
    by_height = _floor(height, step)
    error_by_width = _aspect_error(by_width, _floor(by_width / aspect, step), aspect)
    error_by_height = _aspect_error(_floor(by_height * aspect, step), by_height, aspect)
    if error_by_width < error_by_height:
        return by_width, int(by_width / aspect + 0.5)
    return int(by_height * aspect + 0.5), by_height


def _aspect_error(width: int, height: int, aspect: float) -> float:
    return abs(width / height - aspect) if height else math.inf


def _floor(length: float, step: int) -> int:
    pixels = int(length + 0.5)
    return pixels - pixels % step


def _centre(resized: Size, bucket: Size) -> tuple[int, int]:
    return (resized[0] - bucket[0]) // 2, (resized[1] - bucket[1]) // 2
