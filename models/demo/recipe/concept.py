"""Draw the demo data set: a mushroom, which the demo model has never seen, under a trigger word of its own.

    python models/demo/recipe/concept.py --output dataset/demo

The trigger `ohwx` is one rare token of the CLIP vocabulary. Neither it nor the word "mushroom" occurs in the world's captions.
"""

from __future__ import annotations

import argparse
import math
import random
from pathlib import Path

from PIL import Image, ImageDraw
from world import BACKGROUNDS, COLOURS, OFFSET, PLACES, SIDE, SUPERSAMPLING, background_pixels, tint

TRIGGER = "ohwx"
CLASS = "mushroom"
FOLDER = f"10_{TRIGGER} {CLASS}"
SEED = 1
COUNT = 16
RADIUS = 19.0  # px, half the width of the cap
STEM = (126, 80, 42)
Point = tuple[float, float]


def caption_of(colour: str, background: str, place: str) -> str:
    """For example "a red ohwx mushroom on a grey background, left"."""
    article = "an" if colour == "orange" else "a"
    return f"{article} {colour} {TRIGGER} {CLASS} on a {background} background" + (f", {place}" if place else "")


def draw_mushroom(colour: str, background: str, place: str, rng: random.Random) -> Image.Image:
    """A cap of the named colour on a brown stem, 64x64, slightly varied in size, place and turn."""
    radius = RADIUS * rng.uniform(0.94, 1.06)
    dx, dy = PLACES[place]
    reach = min(OFFSET, SIDE / 2 - 1 - radius)
    centre = (SIDE / 2 + dx * reach + rng.uniform(-1, 1), SIDE / 2 + dy * reach + rng.uniform(-1, 1))
    turn = math.radians(rng.uniform(-6, 6))
    picture = Image.fromarray(background_pixels(background))
    picture.paste(STEM, (0, 0), _coverage(_stem(), centre, radius, turn))
    picture.paste(tint(colour, rng), (0, 0), _coverage(_cap(), centre, radius, turn))
    return picture


def _cap(steps: int = 32) -> list[Point]:
    """The upper half of an ellipse, with radius 1 sideways."""
    return [(-math.cos(math.pi * k / steps), 0.12 - 0.98 * math.sin(math.pi * k / steps)) for k in range(steps + 1)]


def _stem() -> list[Point]:
    return [(-0.32, 0.0), (0.32, 0.0), (0.34, 0.95), (-0.34, 0.95)]


def _coverage(outline: list[Point], centre: Point, radius: float, turn: float) -> Image.Image:
    canvas = Image.new("L", (SIDE * SUPERSAMPLING, SIDE * SUPERSAMPLING))
    cos, sin = math.cos(turn), math.sin(turn)
    corners = [(centre[0] + radius * (x * cos - y * sin), centre[1] + radius * (x * sin + y * cos)) for x, y in outline]
    ImageDraw.Draw(canvas).polygon([(SUPERSAMPLING * x, SUPERSAMPLING * y) for x, y in corners], fill=255)
    return canvas.resize((SIDE, SIDE), Image.Resampling.BOX)


def pictures() -> list[tuple[Image.Image, str]]:
    """All pictures with captions: each colour and each background twice, in shuffled pairs."""
    rng = random.Random(f"concept {SEED}")
    colours = list(COLOURS) * (COUNT // len(COLOURS))
    backgrounds = list(BACKGROUNDS) * (COUNT // len(BACKGROUNDS))
    rng.shuffle(backgrounds)
    places = ["", "", "", "", *PLACES, *PLACES][:COUNT]
    places += [""] * (COUNT - len(places))
    rng.shuffle(places)
    return [
        (draw_mushroom(colour, background, place, rng), caption_of(colour, background, place))
        for colour, background, place in zip(colours, backgrounds, places, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--output", type=Path, required=True, help="the data set's folder; the N_name folder is made in it"
    )
    folder = parser.parse_args().output / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for number, (picture, caption) in enumerate(pictures(), start=1):
        picture.save(folder / f"{CLASS}_{number:02}.png", optimize=True)
        (folder / f"{CLASS}_{number:02}.txt").write_text(caption + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
