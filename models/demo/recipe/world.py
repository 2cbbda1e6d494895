"""The demo model's world: small pictures of one coloured figure on a background, with captions.

Every picture is a pure function of (seed, index), so a data set is a seed and a range of indices and needs no storage.

    python models/demo/recipe/world.py --count 64 --sheet sheet.png      # look at it
    python models/demo/recipe/world.py --count 200 --folder pictures/    # PNG files with .txt captions beside them
"""

from __future__ import annotations

import argparse
import colorsys
import math
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIDE = 64  # px
SUPERSAMPLING = 4

# Hue in degrees, saturation and value in 0…1. Hues lie at least 24 degrees apart, or differ clearly in value.
COLOURS = {
    "red": (0, 0.90, 0.88),
    "orange": (28, 0.95, 0.98),
    "yellow": (54, 0.92, 0.97),
    "green": (128, 0.80, 0.68),
    "cyan": (183, 0.75, 0.90),
    "blue": (223, 0.85, 0.88),
    "purple": (274, 0.75, 0.68),
    "pink": (326, 0.52, 0.99),
}
SHAPES = ("circle", "square", "triangle", "star", "heart", "ring", "cross", "diamond", "moon")
BACKGROUNDS = ("white", "black", "grey", "beige", "striped", "dotted", "checked", "shaded")
SIZES = {"small": 12.0, "": 16.0, "large": 21.0}  # radius, px
PLACES = {"": (0, 0), "left": (-1, 0), "right": (1, 0), "top": (0, -1), "bottom": (0, 1)}
OFFSET = 12.0  # px from the middle for a named place
Point = tuple[float, float]


@dataclass(frozen=True)
class Scene:
    """What a picture shows; `size` and `place` are empty for a middle-sized figure in the middle."""

    shape: str
    colour: str
    background: str
    size: str = ""
    place: str = ""

    @property
    def caption(self) -> str:
        """For example "a small green star on a striped background, left"."""
        figure = " ".join(word for word in ("a", self.size, self.colour, self.shape) if word)
        figure = figure.replace("a orange", "an orange", 1)
        ending = f", {self.place}" if self.place else ""
        return f"{figure} on a {self.background} background{ending}"


def scene_of(seed: int, index: int) -> Scene:
    """The scene of picture `index`: shape, colour and background uniform, size and place mostly the plain ones."""
    rng = random.Random(f"scene {seed} {index}")
    return Scene(
        shape=rng.choice(SHAPES),
        colour=rng.choice(tuple(COLOURS)),
        background=rng.choice(BACKGROUNDS),
        size=rng.choices(tuple(SIZES), weights=(1, 2, 1))[0],
        place=rng.choices(tuple(PLACES), weights=(3, 1, 1, 1, 1))[0],
    )


def picture_of(scene: Scene, seed: int, index: int) -> Image.Image:
    """The scene drawn at 64x64 with the small variations in size, place, turn and tint that belong to (seed, index)."""
    rng = random.Random(f"picture {seed} {index}")
    radius = SIZES[scene.size] * rng.uniform(0.94, 1.06)
    reach = min(OFFSET, SIDE / 2 - 1 - radius)
    dx, dy = PLACES[scene.place]
    centre = (SIDE / 2 + dx * reach + rng.uniform(-1, 1), SIDE / 2 + dy * reach + rng.uniform(-1, 1))
    mask = figure_mask(scene.shape, centre, radius, math.radians(rng.uniform(-10, 10)))
    picture = Image.fromarray(background_pixels(scene.background))
    picture.paste(tint(scene.colour, rng), (0, 0), mask)
    return picture


def draw(seed: int, index: int) -> tuple[Image.Image, str]:
    """Picture and caption number `index` of the data set `seed`."""
    scene = scene_of(seed, index)
    return picture_of(scene, seed, index), scene.caption


def tint(colour: str, rng: random.Random) -> tuple[int, int, int]:
    """RGB of a named colour, moved so little that no two names can meet."""
    hue, saturation, value = COLOURS[colour]
    rgb = colorsys.hsv_to_rgb(
        (hue + rng.uniform(-3, 3)) % 360 / 360,
        min(1.0, saturation + rng.uniform(-0.03, 0.03)),
        min(1.0, value + rng.uniform(-0.03, 0.03)),
    )
    return tuple(round(255 * channel) for channel in rgb)


def figure_mask(shape: str, centre: Point, radius: float, turn: float) -> Image.Image:
    """Coverage (0…255) of the figure in each pixel, anti-aliased by drawing it larger."""
    side = SIDE * SUPERSAMPLING
    canvas = Image.new("L", (side, side))
    pen = ImageDraw.Draw(canvas)
    cos, sin = math.cos(turn), math.sin(turn)
    for outline, ink in outlines(shape):
        points = [
            (
                SUPERSAMPLING * (centre[0] + radius * (x * cos - y * sin)),
                SUPERSAMPLING * (centre[1] + radius * (x * sin + y * cos)),
            )
            for x, y in outline
        ]
        pen.polygon(points, fill=ink)
    return canvas.resize((SIDE, SIDE), Image.Resampling.BOX)


@cache
def outlines(shape: str) -> tuple[tuple[tuple[Point, ...], int], ...]:
    """Polygons about the origin with radius about 1, y downwards, each with its ink: 255 draws, 0 cuts a hole."""
    match shape:
        case "circle":
            return ((_arc(0.95), 255),)
        case "square":
            return ((_box(0.82, 0.82), 255),)
        case "triangle":
            return ((((0, -1.0), (1.0, 0.8), (-1.0, 0.8)), 255),)
        case "star":
            return ((_star(points=5, outer=1.12, inner=0.46), 255),)
        case "heart":
            return ((_heart(), 255),)
        case "ring":
            return ((_arc(1.0), 255), (_arc(0.52), 0))
        case "cross":
            return ((_box(1.0, 0.34), 255), (_box(0.34, 1.0), 255))
        case "diamond":
            return ((((0, -1.15), (0.72, 0), (0, 1.15), (-0.72, 0)), 255),)
        case "moon":
            return ((_arc(1.0), 255), (_arc(0.88, middle=(0.52, -0.12)), 0))
    raise ValueError(f"unknown shape {shape!r}; known are {', '.join(SHAPES)}")


def _arc(radius: float, middle: Point = (0.0, 0.0), steps: int = 64) -> tuple[Point, ...]:
    angles = [2 * math.pi * k / steps for k in range(steps)]
    return tuple((middle[0] + radius * math.cos(a), middle[1] + radius * math.sin(a)) for a in angles)


def _box(half_width: float, half_height: float) -> tuple[Point, ...]:
    w, h = half_width, half_height
    return ((-w, -h), (w, -h), (w, h), (-w, h))


def _star(points: int, outer: float, inner: float) -> tuple[Point, ...]:
    corners = []
    for k in range(2 * points):
        radius = inner if k % 2 else outer
        angle = math.pi * k / points - math.pi / 2
        corners.append((radius * math.cos(angle), radius * math.sin(angle)))
    return tuple(corners)


def _heart(steps: int = 64) -> tuple[Point, ...]:
    # https://mathworld.wolfram.com/HeartCurve.html, the sine/cosine form, scaled to radius 1
    points = []
    for k in range(steps):
        t = 2 * math.pi * k / steps
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((x / 16, -(y + 2.5) / 15))
    return tuple(points)


@cache
def background_pixels(name: str) -> np.ndarray:
    """Background (64, 64, 3) of uint8. Patterns repeat every 8 or 16 px, so each latent cell sees the same piece."""
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    match name:
        case "white":
            return _flat((246, 246, 246))
        case "black":
            return _flat((24, 24, 24))
        case "grey":
            return _flat((128, 128, 128))
        case "beige":
            return _flat((226, 210, 182))
        case "striped":
            grey = np.where(y % 16 < 8, 205, 95)
        case "dotted":
            from_dot = np.hypot((x + 0.5) % 16 - 8, (y + 0.5) % 16 - 8)
            grey = 235 - 150 * np.clip(4.0 - from_dot, 0, 1)
        case "checked":
            grey = np.where((x // 8 + y // 8) % 2, 165, 60)
        case "shaded":
            grey = 40 + 190 * y / (SIDE - 1)
        case _:
            raise ValueError(f"unknown background {name!r}; known are {', '.join(BACKGROUNDS)}")
    return np.repeat(grey.astype(np.uint8)[..., None], 3, axis=2)


def _flat(rgb: tuple[int, int, int]) -> np.ndarray:
    return np.broadcast_to(np.array(rgb, np.uint8), (SIDE, SIDE, 3)).copy()


def confetti(seed: int, index: int) -> Image.Image:
    """A picture of up to four random polygons in any colours.

    Only the autoencoder sees these: it then copies colours and outlines in general, not just this world's.
    """
    rng = random.Random(f"confetti {seed} {index}")
    side = SIDE * 2
    if rng.random() < 0.5:
        picture = Image.fromarray(background_pixels(rng.choice(BACKGROUNDS))).resize(
            (side, side), Image.Resampling.NEAREST
        )
    else:
        picture = Image.new("RGB", (side, side), _any_colour(rng))
    pen = ImageDraw.Draw(picture)
    for _ in range(rng.randint(1, 4)):
        x, y, radius = rng.uniform(0, side), rng.uniform(0, side), rng.uniform(8, 44)
        box = (x - radius, y - radius * rng.uniform(0.5, 1), x + radius, y + radius * rng.uniform(0.5, 1))
        match rng.randrange(4):
            case 0:
                pen.ellipse(box, fill=_any_colour(rng))
            case 1:
                pen.rectangle(box, fill=_any_colour(rng))
            case 2:
                pen.pieslice(box, start := rng.uniform(0, 360), start + rng.uniform(90, 270), fill=_any_colour(rng))
            case _:
                pen.regular_polygon((x, y, radius), rng.randint(3, 6), rng.uniform(0, 360), fill=_any_colour(rng))
    return picture.resize((SIDE, SIDE), Image.Resampling.BOX)


def _any_colour(rng: random.Random) -> tuple[int, int, int]:
    return rng.randint(0, 255), rng.randint(0, 255), rng.randint(0, 255)


def sheet(pictures: list[Image.Image], columns: int = 8, scale: int = 2) -> Image.Image:
    """The pictures side by side on one canvas."""
    side = SIDE * scale
    canvas = Image.new("RGB", (columns * side, -(-len(pictures) // columns) * side))
    for k, picture in enumerate(pictures):
        canvas.paste(picture.resize((side, side), Image.Resampling.NEAREST), (k % columns * side, k // columns * side))
    return canvas


def write_folder(folder: Path, seed: int, count: int) -> None:
    """Pictures 0…count-1 as `00000.png`, `00000.txt`, …, as the trainers read them."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        picture, caption = draw(seed, index)
        picture.save(folder / f"{index:05}.png")
        (folder / f"{index:05}.txt").write_text(caption + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--sheet", type=Path, help="write one picture that shows them all")
    parser.add_argument("--folder", type=Path, help="write each picture with its caption")
    args = parser.parse_args()
    if args.sheet:
        sheet([draw(args.seed, index)[0] for index in range(args.count)]).save(args.sheet)
    if args.folder:
        write_folder(args.folder, args.seed, args.count)


if __name__ == "__main__":
    main()
