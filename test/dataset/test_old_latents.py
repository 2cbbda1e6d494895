"""Latent caches that users already have: read where they fit, never touched. The examples come from the real program."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from sd_scripts.data.cache import LatentCache
from sd_scripts.data.old_latents import FORMATS
from sd_scripts.models.base import LatentSpec
from test.dataset.test_cache import LATENT, Encoder, build

EXAMPLES = Path(__file__).parent.parent / "data" / "cache_examples"
AS_THEY_WERE = {"resolution": "80", "max_bucket_reso": 96, "bucket_reso_steps": 32}  # 100 x 70 px become 96 x 64
OLD = 10**18


@pytest.fixture
def cat(picture):
    """A picture of the examples' size, older than any file beside it; and a way to put an example there."""
    path = picture("1_x/cat.png", (100, 70))
    os.utime(path, ns=(1, OLD))

    def give(example: str, name: str | None = None) -> Path:
        return Path(shutil.copy(EXAMPLES / f"{example}.npz", path.with_name(f"{name or example}.npz")))

    return give


def stored(example: str, *names: str) -> torch.Tensor:
    with np.load(EXAMPLES / f"{example}.npz") as archive:
        return torch.from_numpy(next(archive[name] for name in names if name in archive.files))


CASES = [
    # family, example, channels, latent size is picture size divided by this, whether its values are scaled already
    ("sd1", "cat_0100x0070_sd", 4, 8, False),
    ("sd2", "cat_0100x0070_sd__multires", 4, 8, False),
    ("sdxl", "cat_0100x0070_sdxl", 4, 8, False),
    ("sd3", "cat_0100x0070_sd3", 16, 8, False),
    ("flux", "cat_0100x0070_flux", 16, 8, True),
    ("chroma", "cat_0100x0070_flux", 16, 8, True),
    ("lumina", "cat_0100x0070_lumina", 16, 8, True),
    ("anima", "cat_0100x0070_anima", 16, 8, True),
    ("hunyuan_image", "cat_0100x0070_hi", 64, 32, False),
]


@pytest.mark.parametrize(("family", "example", "channels", "downscale", "is_scaled"), CASES)
def test_files_of_every_family_are_read(cat, plan, family, example, channels, downscale, is_scaled):
    given = cat(example, example.split("__")[0])
    before = (given.read_bytes(), given.stat().st_mtime_ns)
    latent = LatentSpec(channels, downscale, scale=0.5, shift=0.25)
    made = plan(**AS_THEY_WERE)
    for _ in range(2):  # the second time from our own store
        cache, encode = build(made, family=family, latent=latent)
        assert encode.count == 0
        assert (cache.report.reused, cache.report.foreign) == (1, 1)
        assert "made by another program" in "\n".join(cache.report.lines())
        expected = stored(example, "latents", f"latents_{64 // downscale}x{96 // downscale}")
        expected = expected if is_scaled else (expected - 0.25) * 0.5
        torch.testing.assert_close(cache.latents(0, False)[0].float(), expected, atol=1e-4, rtol=2**-11)
    assert (given.read_bytes(), given.stat().st_mtime_ns) == before
    given.unlink()  # then what was taken from it counts no more
    assert build(made, Encoder16(channels, downscale), family=family, latent=latent)[1].count == 1


class Encoder16(Encoder):
    def __init__(self, channels, downscale):
        super().__init__()
        self.form = channels, downscale

    def __call__(self, pixels, seeds):
        channels, downscale = self.form
        self.sizes.append(len(pixels))
        height, width = pixels.shape[2:]
        return torch.zeros(len(pixels), channels, height // downscale, width // downscale)


def test_every_family_has_a_format():
    from sd_scripts.options.families import FAMILIES

    assert FORMATS.keys() == FAMILIES.keys()


def test_full_precision_takes_them_over_exactly(cat, plan):
    cat("cat_0100x0070_sd")
    cache, _ = build(plan(**AS_THEY_WERE), half=False)
    expected = (stored("cat_0100x0070_sd", "latents") - LATENT.shift) * LATENT.scale
    torch.testing.assert_close(cache.latents(0, False)[0], expected)


def test_flipped_latents_and_masks_are_read(cat, plan):
    cat("cat_0100x0070_sd")
    made = plan(**AS_THEY_WERE, flip_aug=True, alpha_mask=True)
    cache, encode = build(made, half=False)
    assert encode.count == 0
    expected = (stored("cat_0100x0070_sd", "latents_flipped") - LATENT.shift) * LATENT.scale
    torch.testing.assert_close(cache.latents(0, True)[0], expected)
    mask = stored("cat_0100x0070_sd", "alpha_mask")
    torch.testing.assert_close(cache.latents(0, False)[1], mask, atol=1 / 510, rtol=0)
    assert torch.equal(cache.latents(0, True)[1], cache.latents(0, False)[1].flip(1))


def test_a_frame_axis_is_taken_away(cat, plan, tmp_path):
    path = cat("cat_0100x0070_anima")
    with np.load(EXAMPLES / "cat_0100x0070_anima.npz") as archive:
        arrays = {n: archive[n][:, None] if n.startswith("latents") else archive[n] for n in archive.files}
    np.savez(path, **arrays)
    cache, encode = build(plan(**AS_THEY_WERE), family="anima", latent=LatentSpec(16, 8, 1.0))
    assert encode.count == 0
    assert cache.latents(0, False)[0].shape == (16, 8, 12)


@pytest.mark.parametrize("family", ["sd1", "sdxl"])
def test_the_oldest_files_are_read(cat, plan, family):
    cat("cat")
    cache, encode = build(plan(**AS_THEY_WERE), family=family)
    assert encode.count == 0
    assert cache.report.foreign == 1


def spoil(path: Path, **changes) -> None:
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez(path, **{name: values for name, values in (arrays | changes).items() if values is not None})


UNFIT = {
    "another size of the bucket": lambda path: spoil(path, latents=np.zeros((4, 8, 8), np.float32)),
    "another picture size": lambda path: spoil(path, original_size=np.array([100, 71])),
    "another cut": lambda path: spoil(path, crop_ltrb=np.array([9.0, 0, 93, 64])),
    "not finite": lambda path: spoil(path, latents=np.full((4, 8, 12), np.nan, np.float32)),
    "no latents": lambda path: spoil(path, latents=None),
    "cut off": lambda path: os.truncate(path, path.stat().st_size // 2),
    "text": lambda path: path.write_text("hello"),
    "a bare array": lambda path: np.save(path.open("wb"), np.zeros((4, 8, 12), np.float32)),
    "pickled": lambda path: np.savez(path, latents=np.array([{"a": 1}], dtype=object)),
}


@pytest.mark.parametrize("change", UNFIT)
def test_files_that_do_not_fit_are_named_and_left_alone(cat, plan, change):
    path = cat("cat_0100x0070_sd")
    UNFIT[change](path)
    before = path.read_bytes()
    cache, encode = build(plan(**AS_THEY_WERE))
    assert encode.count == 1
    assert cache.report.unfit == [path]
    assert path.name in "\n".join(cache.report.lines())
    assert path.read_bytes() == before


def test_files_that_miss_what_is_wanted_are_not_used(cat, plan):
    cat("cat_0100x0070_sd__multires", "cat_0100x0070_sd")
    assert build(plan(**AS_THEY_WERE, flip_aug=True))[1].count == 2


def test_a_file_older_than_its_picture_is_not_used(cat, plan, tmp_path):
    path = cat("cat_0100x0070_sd")
    os.utime(path, ns=(1, OLD - 1))
    assert build(plan(**AS_THEY_WERE))[1].count == 1


def test_a_file_of_another_picture_is_not_taken_for_this_ones(cat, picture, plan):
    """cat_0100x0070_sd.npz belongs to cat.png, not to ca.png or cat_0100x0070.png."""
    cat("cat_0100x0070_sd")
    for name in ("ca.png", "cat_0100x0070.png", "cat_.png"):
        picture(f"1_x/{name}", (100, 70))
    assert build(plan(**AS_THEY_WERE))[1].count == 3


@pytest.mark.parametrize("arrays", [{"latents": (4, 8, 12)}, {"arr_0": (4, 8, 12)}, {"weights": (3,)}])
def test_a_file_of_the_user_is_neither_read_nor_overwritten(cat, plan, picture, tmp_path, arrays):
    own = tmp_path / "train" / "1_x" / "cat.npz"
    np.savez(own, **{name: np.zeros(shape, np.float32) for name, shape in arrays.items()})
    before = own.read_bytes()
    cache, encode = build(plan(**AS_THEY_WERE))
    assert encode.count == 1
    assert cache.report.unfit == []
    assert own.read_bytes() == before


def test_memory_does_not_read_them(cat, plan):
    cat("cat_0100x0070_sd")
    cache = LatentCache.build(plan(**AS_THEY_WERE), Encoder(), latent=LATENT, fingerprint="", to_disk=False)
    assert (cache.report.encoded, cache.report.foreign) == (1, 0)
