"""What a 64x64 picture of the demo world shows, found by classical means (OpenCV): colour and shape of the figure.

It shares no code with the script that draws the world, nor with any model: templates and thresholds are its own. It
also knows the figure of the demo data set, a mushroom with a coloured cap and a brown stem.

    python test/shape_check.py picture.png …
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cv2
import numpy as np

MUSHROOM = "mushroom"
UNKNOWN = "unknown"

_HUES = (  # upper end in degrees, name; what lies above the last is red again
    (13, "red"),
    (41, "orange"),
    (80, "yellow"),
    (155, "green"),
    (203, "cyan"),
    (248, "blue"),
    (299, "purple"),
    (344, "pink"),
    (361, "red"),
)
_CANVAS = 96  # px, side of the normalised silhouettes
_AREA = 2200.0  # px², every silhouette is scaled to it
_LEAST_OVERLAP = 0.70  # intersection over union of a silhouette with the best template
_LEAST_FIGURE = 60  # px²
_TURNS = (-14, -7, 0, 7, 14)  # degrees


@dataclass(frozen=True)
class Finding:
    """Names, `unknown` where nothing fits; `overlap` (0…1) tells how well the silhouette fits the named shape."""

    colour: str
    shape: str
    overlap: float


def look(picture: np.ndarray) -> Finding:
    """Colour and shape of the figure in an RGB picture (64, 64, 3) of uint8."""
    mask = figure_mask(picture)
    if mask.sum() < _LEAST_FIGURE:
        return Finding(UNKNOWN, UNKNOWN, 0.0)
    stem = stem_mask(picture)
    cap = mask & ~cv2.dilate(stem.astype(np.uint8), np.ones((3, 3))).astype(bool)
    if is_mushroom(cap, stem):
        return Finding(colour_of(picture, cap), MUSHROOM, overlaps(mask | stem)[MUSHROOM])
    overlap, shape = max((overlap, shape) for shape, overlap in overlaps(mask).items() if shape != MUSHROOM)
    return Finding(colour_of(picture, mask), shape if overlap >= _LEAST_OVERLAP else UNKNOWN, overlap)


def figure_mask(picture: np.ndarray) -> np.ndarray:
    """Pixels (64, 64) of the largest colourful thing; backgrounds of this world have next to no colour."""
    values = picture.astype(np.int16)
    chroma = values.max(axis=2) - values.min(axis=2)
    strongest = float(np.percentile(chroma, 97))
    colourful = (chroma > max(56.0, 0.5 * strongest)).astype(np.uint8)
    return _largest_piece(colourful)


def _largest_piece(mask: np.ndarray) -> np.ndarray:
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=4)
    if count < 2:
        return np.zeros(mask.shape, bool)
    return labels == 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA]))


def colour_of(picture: np.ndarray, mask: np.ndarray) -> str:
    """Name of the hue that most inner pixels of the mask have; `unknown` if no hue has more than half of them."""
    inner = cv2.erode(mask.astype(np.uint8), np.ones((3, 3))).astype(bool)
    pixels = picture[inner if inner.sum() >= 20 else mask]
    if len(pixels) == 0:
        return UNKNOWN
    hues = cv2.cvtColor(pixels[None].astype(np.float32) / 255, cv2.COLOR_RGB2HSV)[0, :, 0]  # degrees
    votes: dict[str, int] = {}
    for place in np.searchsorted([end for end, _ in _HUES], hues, side="right"):
        name = _HUES[place][1]
        votes[name] = votes.get(name, 0) + 1
    name = max(votes, key=votes.__getitem__)
    return name if votes[name] > len(hues) / 2 else UNKNOWN


def stem_mask(picture: np.ndarray) -> np.ndarray:
    """Pixels (64, 64) of the largest brown piece: an orange hue, but dark, and more than an edge's blended pixels."""
    hue, saturation, value = cv2.split(cv2.cvtColor(picture.astype(np.float32) / 255, cv2.COLOR_RGB2HSV))
    brown = (hue > 8) & (hue < 45) & (saturation > 0.35) & (value > 0.28) & (value < 0.70)
    return _largest_piece(cv2.morphologyEx(brown.astype(np.uint8), cv2.MORPH_OPEN, np.ones((4, 4))))


def is_mushroom(cap: np.ndarray, stem: np.ndarray) -> bool:
    """A wide cap with a brown stem under its middle, and the silhouette of both together."""
    if cap.sum() < _LEAST_FIGURE or stem.sum() < _LEAST_FIGURE / 2:
        return False
    cap_y, cap_x = (places.mean() for places in np.nonzero(cap))
    stem_y, stem_x = (places.mean() for places in np.nonzero(stem))
    cap_width, stem_width = (np.ptp(np.nonzero(part)[1]) + 1 for part in (cap, stem))
    stands_below = stem_y - cap_y > 0.2 * cap_width and abs(stem_x - cap_x) < 0.25 * cap_width
    whole = cv2.morphologyEx((cap | stem).astype(np.uint8), cv2.MORPH_CLOSE, np.ones((5, 5))).astype(bool)
    fits = overlaps(whole)[MUSHROOM] >= _LEAST_OVERLAP
    return bool(stands_below and stem_width < 0.75 * cap_width and fits)


def overlaps(mask: np.ndarray) -> dict[str, float]:
    """Intersection over union of the silhouette with each shape's best turned template, at the same area and centre."""
    names, templates = _templates()
    normal = normalised(mask).ravel().astype(np.float32)
    shared = templates @ normal
    values = shared / (templates.sum(axis=1) + normal.sum() - shared)
    best: dict[str, float] = {}
    for name, value in zip(names, values.tolist(), strict=True):
        best[name] = max(value, best.get(name, 0.0))
    return best


def normalised(mask: np.ndarray, turn: float = 0.0) -> np.ndarray:
    """The silhouette on a canvas of fixed size, its centre of mass in the middle, its area fixed, turned by degrees."""
    y, x = (places.mean() for places in np.nonzero(mask))
    scale = float(np.sqrt(_AREA / mask.sum()))
    matrix = cv2.getRotationMatrix2D((float(x), float(y)), turn, scale)
    matrix[:, 2] += (_CANVAS / 2 - x, _CANVAS / 2 - y)
    drawn = cv2.warpAffine(mask.astype(np.float32), matrix, (_CANVAS, _CANVAS), flags=cv2.INTER_LINEAR)
    return drawn > 0.5


@cache
def _templates() -> tuple[list[str], np.ndarray]:
    """Shape names (n,) and their turned silhouettes (n, canvas²) of 0 and 1."""
    turned = [(shape, normalised(drawn > 0, turn)) for shape, drawn in _drawings().items() for turn in _TURNS]
    return [shape for shape, _ in turned], np.stack([drawn.ravel() for _, drawn in turned]).astype(np.float32)


@cache
def _drawings() -> dict[str, np.ndarray]:
    """One large upright drawing (256, 256) per shape."""
    drawings = {}
    for shape, strokes in _STROKES.items():
        canvas = np.zeros((256, 256), np.uint8)
        for stroke in strokes:
            stroke(canvas)
        drawings[shape] = canvas
    return drawings


def _polygon(*corners: tuple[int, int]):
    return lambda canvas: cv2.fillPoly(canvas, [np.array(corners, np.int32)], 255)


def _disc(x: int, y: int, radius: int, ink: int = 255):
    return lambda canvas: cv2.circle(canvas, (x, y), radius, ink, thickness=-1)


def _dome(x: int, y: int, half_width: int, height: int):
    return lambda canvas: cv2.ellipse(canvas, (x, y), (half_width, height), 0, 180, 360, 255, thickness=-1)


_STAR_CORNERS = [
    (round(128 + r * np.sin(k * np.pi / 5)), round(132 - r * np.cos(k * np.pi / 5)))
    for k, r in enumerate([100, 41] * 5)
]
_STROKES = {
    "circle": [_disc(128, 128, 90)],
    "square": [_polygon((50, 50), (206, 50), (206, 206), (50, 206))],
    "triangle": [_polygon((128, 38), (228, 218), (28, 218))],
    "star": [_polygon(*_STAR_CORNERS)],
    "heart": [
        _disc(84, 92, 45),
        _disc(172, 92, 45),
        _polygon((128, 92), (171, 48), (216, 104), (128, 218), (40, 104), (85, 48)),
    ],
    "ring": [_disc(128, 128, 100), _disc(128, 128, 52, ink=0)],
    "cross": [
        _polygon((94, 28), (162, 28), (162, 228), (94, 228)),
        _polygon((28, 94), (228, 94), (228, 162), (28, 162)),
    ],
    "diamond": [_polygon((128, 18), (197, 128), (128, 238), (59, 128))],
    "moon": [_disc(128, 128, 100), _disc(180, 116, 88, ink=0)],
    MUSHROOM: [_dome(128, 138, 100, 92), _polygon((96, 136), (160, 136), (160, 218), (96, 218))],
}


def main() -> None:
    for name in sys.argv[1:]:
        picture = cv2.imdecode(np.frombuffer(Path(name).read_bytes(), np.uint8), cv2.IMREAD_COLOR)
        if picture is None:
            raise SystemExit(f"{name} is not a picture that OpenCV reads")
        finding = look(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB))
        print(f"{name}: {finding.colour} {finding.shape} ({finding.overlap:.2f})")


if __name__ == "__main__":
    main()
