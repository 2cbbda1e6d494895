import gzip
import io
import json
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms, features

from sd_scripts.data import jpeg
from sd_scripts.data.colours import vary_colours
from sd_scripts.data.images import PictureProblem, decode_fully, probe, read, read_scaled
from sd_scripts.data.resizing import cut, resize, resize_mask

GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "resize.json.gz"
FORMATS = {"png": {}, "jpg": {"quality": 95}, "webp": {"quality": 95}, "bmp": {}}
READ_FORMATS = FORMATS | ({"avif": {}} if features.check("avif") else {})


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


@pytest.mark.parametrize(
    ("mode", "value", "suffix", "rgb"),
    [
        ("L", 90, "png", [90] * 3),
        ("1", 1, "png", [255] * 3),
        ("1", 0, "bmp", [0] * 3),
        ("I;16", 257 * 90, "png", [90] * 3),
        ("I;16B", 257 * 90, "tiff", [90] * 3),
        ("I", 257 * 90, "tiff", [90] * 3),
        ("F", 0.5, "tiff", [128] * 3),
        ("LAB", (128, 128, 128), "tiff", [119] * 3),
        ("CMYK", (0, 255, 255, 0), "tiff", [255, 0, 0]),
        ("RGBX", (9, 80, 200, 0), "tiff", [9, 80, 200]),
        ("LA", (90, 255), "png", [90] * 3),
        ("RGBA", (9, 80, 200, 255), "webp", [9, 80, 200]),
    ],
)
def test_every_mode_looks_as_it_should(tmp_path, mode, value, suffix, rgb):
    save = {"lossless": True} if suffix == "webp" else {}
    Image.new(mode, (4, 4), value).save(tmp_path / f"a.{suffix}", **save)
    assert np.abs(read(tmp_path / f"a.{suffix}").rgb[0, 0].astype(int) - rgb).max() <= 1


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


@pytest.mark.parametrize("suffix", READ_FORMATS)
def test_200_damaged_files_are_read_or_named(tmp_path, suffix):
    buffer = io.BytesIO()
    Image.fromarray(smooth(60, 40)).save(buffer, {"jpg": "jpeg"}.get(suffix, suffix), **READ_FORMATS[suffix])
    data, draws, path = buffer.getvalue(), random.Random(0), tmp_path / f"a.{suffix}"
    for _ in range(200):
        damaged = bytearray(data[: draws.randint(0, len(data))] if draws.random() < 0.5 else data)
        for _ in range(draws.randint(0, 8)):
            if damaged:
                damaged[draws.randrange(len(damaged))] = draws.randrange(256)
        path.write_bytes(damaged)
        for action in (probe, decode_fully, read, lambda path: read_scaled(path, (16, 16))):
            try:
                action(path)
            except PictureProblem as problem:
                assert "\n" not in str(problem)


def detailed(width: int, height: int) -> Image.Image:
    """A picture with detail at every scale, and noise."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    detail = 128 + 50 * np.sin(x / 7) * np.sin(y / 9) + 40 * np.sin((x + y) / 61)
    noise = np.random.default_rng(0).normal(0, 5, detail.shape)
    layers = np.stack([detail, detail[::-1], 255 - detail], -1) + noise[..., None]
    return Image.fromarray(np.clip(layers, 0, 255).astype(np.uint8))


def psnr(left: np.ndarray, right: np.ndarray) -> float:
    return 10 * np.log10(255**2 / max(np.mean((left.astype(float) - right) ** 2), 1e-9))


@pytest.mark.parametrize("size", [(2400, 1600), (2403, 1605)])
@pytest.mark.parametrize("quality", [60, 92])
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_reduced_decoding_keeps_quality_and_place(tmp_path, size, quality, orientation):
    exif = Image.Exif()
    exif[274] = orientation
    detailed(*size).save(tmp_path / "a.jpg", quality=quality, exif=exif)
    full = Image.fromarray(read(tmp_path / "a.jpg").rgb)
    wanted = (600, 400) if orientation != 6 else (400, 600)
    lanczos = np.asarray(full.resize(wanted, Image.Resampling.LANCZOS))
    made = read_scaled(tmp_path / "a.jpg", wanted).rgb
    assert made.shape == lanczos.shape
    assert psnr(made, lanczos) >= 45


@pytest.mark.parametrize(
    ("size", "wanted", "file_bytes", "reduction"),
    [
        ((4000, 3000), (683, 512), 1_000_000, 4),
        ((4000, 3000), (683, 512), 2_700_000, 4),
        ((4000, 3000), (683, 512), 6_000_000, 2),
        ((4000, 3000), (500, 375), 1_000_000, 8),
        ((4000, 3000), (2000, 1500), 1_000_000, 2),
        ((4000, 3000), (2000, 1501), 1_000_000, 1),
        ((4000, 3000), (4000, 100), 1_000_000, 1),
        ((100, 100), (200, 200), 100, 1),
    ],
)
def test_reduction(size, wanted, file_bytes, reduction):
    assert jpeg.reduction_for(size, wanted, file_bytes) == reduction


@pytest.mark.parametrize(
    "save",
    [{}, {"progressive": True}, {"subsampling": 0}, {"optimize": True, "restart_marker_rows": 1}, {"quality": 30}],
)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_the_fast_way_gives_the_pixels_of_pillow(tmp_path, mode, save):
    detailed(203, 101).convert(mode).save(tmp_path / "a.jpg", **save)
    with Image.open(tmp_path / "a.jpg") as image:
        wanted = np.asarray(image.convert("RGB"))
    found = jpeg.decode((tmp_path / "a.jpg").read_bytes(), (203, 101))
    assert found is not None
    assert np.abs(found.rgb.astype(int) - wanted).max() <= 1


def test_the_end_of_a_preview_is_not_the_end_of_a_jpeg(tmp_path):
    preview = io.BytesIO()
    detailed(64, 48).save(preview, "jpeg")
    comment = b"\xff\xfe" + (len(preview.getvalue()) + 2).to_bytes(2, "big") + preview.getvalue()
    detailed(200, 100).save(tmp_path / "a.jpg")
    data = (tmp_path / "a.jpg").read_bytes()
    data = data[:2] + comment + data[2:]
    assert jpeg.is_whole(data)
    assert not jpeg.is_whole(data[: len(data) - 500])
    (tmp_path / "a.jpg").write_bytes(data[: len(data) - 500])
    with pytest.raises(PictureProblem, match="cut off"):
        read(tmp_path / "a.jpg")


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "avif"])
def test_colour_profiles_are_followed(tmp_path, suffix):
    """Pictures in Display P3 and the like: the same numbers mean other colours."""
    if suffix == "avif" and not features.check("avif"):
        pytest.skip("this Pillow reads no AVIF")
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
    swapped = swapped_profile(lab.tobytes())
    Image.new("RGB", (32, 32), (200, 30, 60)).save(tmp_path / f"a.{suffix}", icc_profile=swapped, quality=100)
    Image.new("RGB", (32, 32), (200, 30, 60)).save(tmp_path / f"b.{suffix}", icc_profile=lab.tobytes(), quality=100)
    assert np.abs(read(tmp_path / f"a.{suffix}").rgb[9, 9].astype(int) - [30, 200, 60]).max() <= 6
    assert np.abs(read(tmp_path / f"b.{suffix}").rgb[9, 9].astype(int) - [200, 30, 60]).max() <= 4
    assert np.array_equal(
        read_scaled(tmp_path / f"a.{suffix}", (8, 8)).rgb[4, 4], read(tmp_path / f"a.{suffix}").rgb[9, 9]
    )


def swapped_profile(srgb: bytes) -> bytes:
    """The profile of a device whose first channel is green and whose second is red."""
    return (
        srgb.replace(b"rXYZ", b"????")
        .replace(b"gXYZ", b"rXYZ")
        .replace(b"????", b"gXYZ")
        .replace(b"s\0R\0G\0B", b"s\0W\0A\0P")
        .replace(b"sRGB", b"SWAP")
    )


def test_a_broken_profile_is_passed_over(tmp_path):
    Image.new("RGB", (8, 8), (200, 30, 60)).save(tmp_path / "a.png", icc_profile=b"no profile at all")
    assert read(tmp_path / "a.png").rgb[0, 0].tolist() == [200, 30, 60]


@pytest.mark.parametrize(
    "interpolation", ["lanczos", "nearest", "bilinear", "linear", "bicubic", "cubic", "area", "box"]
)
@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_every_interpolation_gives_the_size_and_the_picture(tmp_path, interpolation, suffix):
    Image.fromarray(smooth(210, 150)).save(tmp_path / f"a.{suffix}")
    for size in ((70, 50), (300, 220), (210, 150)):
        scaled = read_scaled(tmp_path / f"a.{suffix}", size, interpolation).rgb
        assert scaled.shape == (*size[::-1], 3)
        assert psnr(scaled[..., :2], smooth(*size)[..., :2]) > 33


def test_masks_are_scaled_without_seams():
    mask = np.zeros((64, 64), np.uint8)
    mask[:, 32:] = 200
    for size in ((20, 20), (150, 150), (20, 150)):
        scaled = resize_mask(mask, size)
        assert scaled.max() <= 200
        assert (np.diff(scaled[9].astype(int)) >= 0).all()


def test_very_large_pictures_are_refused_with_the_way_to_allow_them(tmp_path, monkeypatch):
    Image.new("RGB", (2000, 1500)).save(tmp_path / "a.jpg")
    assert read_scaled(tmp_path / "a.jpg", (20, 15)).rgb.shape == (15, 20, 3)
    monkeypatch.setenv("MAX_IMAGE_MEGAPIXELS", "2")
    for action in (probe, read):
        with pytest.raises(
            PictureProblem, match=r"has 3 million pixels, more than the limit of 2; .*MAX_IMAGE_MEGAPIXELS"
        ):
            action(tmp_path / "a.jpg")


def test_pictures_of_the_largest_cameras_are_read(tmp_path):
    """200 megapixels: Pillow alone refuses them."""
    Image.new("L", (16320, 12240)).save(tmp_path / "a.jpg", quality=30)
    assert probe(tmp_path / "a.jpg").size == (16320, 12240)
    assert read_scaled(tmp_path / "a.jpg", (64, 48)).rgb.shape == (48, 64, 3)


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
