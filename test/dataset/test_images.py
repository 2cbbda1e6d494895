import gzip
import io
import json
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sd_scripts.data.images import PictureProblem, cut, decode_fully, probe, read, resize, vary_colours

GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "resize.json.gz"
FORMATS = {"png": {}, "jpg": {"quality": 95}, "webp": {"quality": 95}, "bmp": {}}


def cases() -> list:
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as file:
        found = json.load(file)["cases"]
    return [pytest.param(case["inputs"], case["expected"]["value"], id=case["id"]) for case in found]


def smooth(width: int, height: int) -> np.ndarray:
    """A picture with a different slope in each channel, which survives lossy formats."""
    y, x = np.mgrid[:height, :width]
    channels = (x * 255 / width, y * 255 / height, 128 + 60 * np.sin(x / 23) * np.cos(y / 31))
    return np.stack(channels, -1).astype(np.uint8)


@pytest.mark.parametrize(("inputs", "expected"), cases())
def test_resize_golden(inputs, expected):
    pixels = np.array(inputs["image"]["data"], np.uint8).reshape(inputs["image"]["shape"])
    wanted = np.array(expected["data"]).reshape(expected["shape"])
    assert np.abs(resize(pixels, tuple(inputs["to_wh"]), inputs["method"]).astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_in_size_and_pixels(tmp_path, orientation):
    upright = np.zeros((2, 4, 3), np.uint8)
    upright[0] = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]
    stored = Image.fromarray(upright)
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}.get(orientation)  # Image.Transpose that the camera applied
    stored = stored.transpose(Image.Transpose(undo)) if undo is not None else stored
    exif = Image.Exif()
    exif[274] = orientation
    stored.save(tmp_path / "a.png", exif=exif)
    assert probe(tmp_path / "a.png").size == (4, 2)
    assert np.array_equal(read(tmp_path / "a.png").rgb, upright)


def test_a_4x2_jpeg_with_orientation_6_is_2x4(tmp_path):
    exif = Image.Exif()
    exif[274] = 6
    Image.new("RGB", (4, 2), "red").save(tmp_path / "a.jpg", exif=exif)
    assert probe(tmp_path / "a.jpg").size == (2, 4)
    assert read(tmp_path / "a.jpg").rgb.shape == (4, 2, 3)


def test_exif_behind_the_pixels_of_a_png_counts(tmp_path):
    exif = Image.Exif()
    exif[274] = 6
    Image.new("RGB", (4, 2), "red").save(tmp_path / "front.png", exif=exif)
    data = (tmp_path / "front.png").read_bytes()
    start = data.index(b"eXIf") - 4
    chunk = data[start : start + 12 + int.from_bytes(data[start : start + 4], "big")]
    end = data.index(b"IEND") - 4
    (tmp_path / "behind.png").write_bytes(data[:start] + data[start + len(chunk) : end] + chunk + data[end:])
    assert probe(tmp_path / "behind.png").size == read(tmp_path / "behind.png").rgb.shape[1::-1] == (2, 4)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "P"])
def test_transparency_is_white(tmp_path, mode):
    image = Image.new("RGBA", (2, 2), (255, 0, 0, 0))
    if mode == "P":
        image = Image.new("P", (2, 2), 3)
        image.putpalette([10, 20, 30] * 256)
        image.info["transparency"] = 3
        image.save(tmp_path / "a.png", transparency=3)
    elif mode == "LA":
        Image.new("LA", (2, 2), (77, 0)).save(tmp_path / "a.png")
    elif mode == "PA":
        image.save(tmp_path / "a.webp", lossless=True, exact=True)
    else:
        image.save(tmp_path / "a.png")
    path = next(tmp_path.iterdir())
    assert probe(path).has_alpha
    assert (read(path).rgb == 255).all()


def test_half_transparent_red_on_white(tmp_path):
    Image.new("RGBA", (1, 1), (255, 0, 0, 128)).save(tmp_path / "a.png")
    assert np.abs(read(tmp_path / "a.png").rgb.astype(int) - [255, 127, 127]).max() <= 1


def test_alpha_is_kept_as_a_mask_when_asked_for(tmp_path):
    Image.new("RGBA", (1, 1), (255, 0, 0, 64)).save(tmp_path / "a.png")
    Image.new("RGB", (1, 1), (255, 0, 0)).save(tmp_path / "b.png")
    pixels = read(tmp_path / "a.png", with_alpha=True)
    assert pixels.rgb.tolist() == [[[255, 0, 0]]]
    assert pixels.alpha.tolist() == [[64]]
    assert read(tmp_path / "b.png", with_alpha=True).alpha.tolist() == [[255]]


def test_cmyk_looks_as_it_should(tmp_path):
    rgb = Image.new("RGB", (16, 16), (200, 40, 90))
    rgb.convert("CMYK").save(tmp_path / "a.jpg", quality=98)
    assert np.abs(read(tmp_path / "a.jpg").rgb.astype(int) - [200, 40, 90]).max() <= 4


def test_deep_grey_is_scaled_not_clipped(tmp_path):
    values = np.array([[0, 257 * 17, 257 * 200, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    assert read(tmp_path / "a.png").rgb[0, :, 0].tolist() == [0, 17, 200, 255]


@pytest.mark.parametrize(("mode", "value", "rgb"), [("L", 90, [90] * 3), ("1", 1, [255] * 3)])
def test_grey_and_black_and_white(tmp_path, mode, value, rgb):
    Image.new(mode, (2, 2), value).save(tmp_path / "a.png")
    assert read(tmp_path / "a.png").rgb[0, 0].tolist() == rgb


@pytest.mark.parametrize("suffix", ["webp", "png"])
def test_animated_pictures_give_their_first_frame(tmp_path, suffix):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    extra = {"lossless": True} if suffix == "webp" else {}
    frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:], **extra)
    assert read(tmp_path / f"a.{suffix}").rgb[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("suffix", FORMATS)
def test_cut_files_are_found_without_decoding(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(smooth(200, 150)).save(path, **FORMATS[suffix])
    assert probe(path).size == (200, 150)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(PictureProblem, match="cut off"):
        probe(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "empty"), (b"hello, I am text", "not a picture"), (b"\x89PNG\r\n\x1a\n", "picture|damaged")],
)
def test_what_is_no_picture_is_said(tmp_path, content, words):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(PictureProblem, match=words):
        probe(tmp_path / "a.png")


@pytest.mark.parametrize("suffix", FORMATS)
def test_200_damaged_files_are_read_or_named(tmp_path, suffix):
    buffer = io.BytesIO()
    Image.fromarray(smooth(60, 40)).save(buffer, {"jpg": "jpeg"}.get(suffix, suffix), **FORMATS[suffix])
    data, draws, path = buffer.getvalue(), random.Random(0), tmp_path / f"a.{suffix}"
    for _ in range(200):
        damaged = bytearray(data[: draws.randint(0, len(data))] if draws.random() < 0.5 else data)
        for _ in range(draws.randint(0, 8)):
            if damaged:
                damaged[draws.randrange(len(damaged))] = draws.randrange(256)
        path.write_bytes(damaged)
        for action in (probe, decode_fully, read):
            try:
                action(path)
            except PictureProblem as problem:
                assert "\n" not in str(problem)


def test_reduced_decoding_keeps_quality_and_reads_less(tmp_path):
    y, x = np.mgrid[:1600, :2400].astype(np.float32)
    detail = 128 + 50 * np.sin(x / 7) * np.sin(y / 9) + 40 * np.sin((x + y) / 61)
    noise = np.random.default_rng(0).normal(0, 5, detail.shape)
    pixels = np.clip(np.stack([detail, detail[::-1], 255 - detail], -1) + noise[..., None], 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.jpg", quality=92)
    full = read(tmp_path / "a.jpg").rgb
    reduced = read(tmp_path / "a.jpg", (600, 400)).rgb
    assert reduced.shape == (800, 1200, 3)
    error = np.mean((resize(full, (600, 400)).astype(float) - resize(reduced, (600, 400))) ** 2)
    assert 10 * np.log10(255**2 / error) >= 45


def test_reduced_decoding_follows_orientation(tmp_path):
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray(smooth(800, 400)).save(tmp_path / "a.jpg", exif=exif)
    assert read(tmp_path / "a.jpg", (100, 200)).rgb.shape == (400, 200, 3)


def test_cut_takes_x_and_y_in_this_order():
    pixels = np.arange(12).reshape(3, 4)
    assert cut(pixels, (1, 2), (2, 1)).tolist() == [[9, 10]]


def test_colours_vary_a_little_in_a_third_of_uses():
    pixels = smooth(32, 32)
    varied = [vary_colours(pixels, random.Random(at)) for at in range(300)]
    changed = [one for one in varied if not np.array_equal(one, pixels)]
    assert 60 < len(changed) < 140
    assert all(one.dtype == np.uint8 and one.shape == pixels.shape for one in changed)
    assert all(abs(one.mean() - pixels.mean()) < 12 for one in changed)
