"""The demo world against the independent check, which shares no code with it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from test.shape_check import MUSHROOM, UNKNOWN, figure_mask, look

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def recipe():
    """The recipe's modules; its scripts import each other by plain names."""
    sys.path.insert(0, str(ROOT / "models" / "demo" / "recipe"))
    try:
        import concept
        import world
    finally:
        sys.path.pop(0)
    return {"world": world, "concept": concept}


def test_the_check_names_colour_and_shape_of_drawn_pictures(recipe):
    world = recipe["world"]
    wrong_colour, wrong_shape = [], []
    count = 400
    for index in range(count):
        scene = world.scene_of(5, index)
        finding = look(np.asarray(world.picture_of(scene, 5, index)))
        wrong_colour += [scene.caption] if finding.colour != scene.colour else []
        wrong_shape += [scene.caption] if finding.shape != scene.shape else []
    assert len(wrong_colour) <= count * 0.01, wrong_colour
    assert len(wrong_shape) <= count * 0.02, wrong_shape


@pytest.mark.parametrize("background", ["white", "black", "grey", "beige", "striped", "dotted", "checked", "shaded"])
def test_an_empty_background_shows_nothing(recipe, background):
    finding = look(recipe["world"].background_pixels(background))
    assert (finding.colour, finding.shape) == (UNKNOWN, UNKNOWN)


def test_the_check_tells_the_mushroom_from_the_worlds_shapes(recipe):
    world, concept = recipe["world"], recipe["concept"]
    for picture, caption in concept.pictures():
        finding = look(np.asarray(picture))
        assert finding.shape == MUSHROOM, caption
        assert finding.colour in caption.split()
    assert all(look(np.asarray(world.draw(6, index)[0])).shape != MUSHROOM for index in range(300))


def test_a_figure_of_noise_is_unknown():
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    assert look(pixels).shape == UNKNOWN


def test_a_cap_without_a_stem_is_no_mushroom(recipe):
    concept = recipe["concept"]
    picture = np.array(concept.pictures()[0][0])
    cap = figure_mask(picture)
    picture[~cap] = 240
    assert look(picture).shape != MUSHROOM


def test_pictures_depend_on_seed_and_index_alone(recipe):
    world = recipe["world"]
    first = [np.asarray(world.draw(3, index)[0]) for index in range(6)]
    backwards = [np.asarray(world.draw(3, index)[0]) for index in reversed(range(6))]
    for one, other in zip(first, reversed(backwards), strict=True):
        np.testing.assert_array_equal(one, other)
    assert world.draw(3, 0)[1] != world.draw(4, 0)[1] or world.draw(3, 1)[1] != world.draw(4, 1)[1]


def test_the_world_has_several_hundred_captions(recipe):
    world = recipe["world"]
    captions = {world.scene_of(1, index).caption for index in range(2000)}
    assert len(captions) > 500
    assert world.Scene("star", "orange", "grey", "", "left").caption == "an orange star on a grey background, left"
    assert world.Scene("star", "orange", "grey", "small").caption == "a small orange star on a grey background"


def test_the_data_set_is_what_its_script_draws(recipe):
    from PIL import Image

    concept = recipe["concept"]
    folder = ROOT / "dataset" / "demo" / concept.FOLDER
    drawn = concept.pictures()
    assert len(list(folder.glob("*.png"))) == len(list(folder.glob("*.txt"))) == len(drawn) == 16
    for number, (picture, caption) in enumerate(drawn, start=1):
        stored = np.asarray(Image.open(folder / f"mushroom_{number:02}.png"))
        # another release of Pillow may draw edges a little differently
        assert np.abs(stored.astype(int) - np.asarray(picture).astype(int)).mean() < 1
        assert (folder / f"mushroom_{number:02}.txt").read_text(encoding="utf-8").strip() == caption
        assert concept.TRIGGER in caption
