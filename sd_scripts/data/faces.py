"""Cuts around faces, whose place the face tool writes into the file's name: `photo_<x>_<y>_<w>_<h>.png`.

x and y are the middle of the face, w and h its size, in pixels of the picture.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from sd_scripts.data.buckets import Size

_NAME = re.compile(r".+_(\d+)_(\d+)_(\d+)_(\d+)")
_SHIFT = 20  # a cut is moved by at most this part of the face, where its size varies too


@dataclass(frozen=True)
class Face:
    """The middle and the size of a face."""

    x: int
    y: int
    width: int
    height: int

    @property
    def side(self) -> int:
        return max(self.width, self.height)


def face_in(stem: str, size: Size) -> Face | None:
    """The face that a file's name (without suffix) gives for a picture of this size; None if it gives none inside it."""
    match = _NAME.fullmatch(stem)
    if match is None:
        return None
    face = Face(*map(int, match.groups()))
    is_inside = face.x < size[0] and face.y < size[1] and 0 < face.width <= size[0] and 0 < face.height <= size[1]
    return face if is_inside else None


def parse_range(text: str) -> tuple[float, float] | None:
    """The smallest and largest cut of `face_crop_aug_range`, in sizes of the face; None unless two ordered numbers above 0."""
    parts = text.strip("[]() ").split(",")
    try:
        low, high = (float(part) for part in parts)
    except ValueError:
        return None
    return (low, high) if 0 < low <= high < float("inf") else None


def fit_face(
    size: Size,
    bucket: Size,
    face: Face,
    limits: tuple[float, float],
    draws: random.Random,
    *,
    is_random: bool = False,
) -> tuple[Size, tuple[int, int]]:
    """To what size a picture is scaled and where it is cut (x, y) to have the face in the middle, as far as it allows.

    Args:
        size: of the picture.
        bucket: size of the cut.
        limits: the cut's shorter side is drawn between so many sizes of the face. It is never larger than the picture,
            and the picture is enlarged for it no more than for its bucket.
        is_random: move the cut anywhere, more often near the face than far from it.
    """
    whole = max(bucket[0] / size[0], bucket[1] / size[1])  # the scale at which all of the picture is in view
    closest = max(1.0, whole)
    low, high = (min(max(min(bucket) / (face.side * limit), whole), closest) for limit in reversed(limits))
    scale = draws.uniform(low, high)
    width, height = (max(want, round(side * scale)) for want, side in zip(bucket, size, strict=True))
    reach = 0 if limits[0] == limits[1] else int(face.side * scale / _SHIFT)
    x = _start(int(face.x * scale), width, bucket[0], reach, draws, is_random=is_random)
    y = _start(int(face.y * scale), height, bucket[1], reach, draws, is_random=is_random)
    return (width, height), (x, y)


def _start(middle: int, length: int, want: int, reach: int, draws: random.Random, *, is_random: bool) -> int:
    """Where a cut of `want` pixels begins in `length` pixels."""
    start = middle - want // 2
    if is_random:
        far = max(middle, length - middle)
        start += draws.randint(0, far) + draws.randint(0, far) - far
    elif reach:
        start += draws.randint(-reach, reach)
    return max(0, min(start, length - want))
