import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from sd_scripts.data.cache import LatentCache
from sd_scripts.data.cache_files import CacheFormat, check_entry, entry_spec, read_entry
from sd_scripts.errors import UserError
from sd_scripts.models.base import LatentSpec

EXAMPLES = Path(__file__).parent.parent / "data" / "cache_examples"
LATENT = LatentSpec(channels=4, downscale=8, scale=0.18215, shift=0.1)


class Encoder:
    """Averages of 8 x 8 pixels and a trace of the seed; counts what it was given."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, pixels, seeds):
        assert pixels.dtype == torch.uint8
        assert len(pixels) == len(seeds)
        self.sizes.append(len(pixels))
        latents = torch.nn.functional.avg_pool2d(pixels.float() / 255, 8)[:, [0, 1, 2, 0]]
        latents[:, 3] = torch.tensor([seed % 1000 / 1000 for seed in seeds])[:, None, None]
        return latents

    @property
    def count(self) -> int:
        return sum(self.sizes)


def build(plan, encode=None, to_disk=True, **options) -> tuple[LatentCache, Encoder]:
    encode = encode or Encoder()
    given = {"latent": LATENT, "fingerprint": "vae-a", "to_disk": to_disk, **options}
    return LatentCache.build(plan, encode, **given), encode


def all_latents(cache, plan, is_flipped=False):
    return [cache.latents(number, is_flipped)[0] for number in range(len(plan.samples))]


def entries(tmp_path) -> list[Path]:
    return sorted((tmp_path / "train").rglob("*.npz"))


@pytest.mark.parametrize("to_disk", [False, True])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_memory_and_disk_hold_what_was_encoded(ten_pictures, plan, to_disk, batch_size):
    from sd_scripts.data.pictures import load_picture

    made = plan(flip_aug=True)
    steps = []
    cache, encode = build(
        made, to_disk=to_disk, batch_size=batch_size, progress=lambda done, total: steps.append((done, total))
    )
    assert encode.count == 20
    assert max(encode.sizes) == batch_size
    assert steps[0] == (0, 20)
    assert steps[-1] == (20, 20)
    for number, sample in enumerate(made.samples):
        rgb = load_picture(sample, made.subsets[0].options).rgb
        for is_flipped in (False, True):
            pixels = torch.from_numpy((rgb[:, ::-1] if is_flipped else rgb).copy()).permute(2, 0, 1)[None]
            latents = cache.latents(number, is_flipped)[0]
            torch.testing.assert_close(latents[:3], Encoder()(pixels, [0])[0, :3], atol=1e-6, rtol=1e-5)


def test_noise_of_the_vae_depends_on_content_not_on_order(ten_pictures, plan, tmp_path):
    seeds = {latents[3, 0, 0].item() for latents in all_latents(build(plan(), to_disk=False)[0], plan())}
    assert len(seeds) == 10
    (tmp_path / "train" / "3_cat" / "p0.png").rename(tmp_path / "train" / "3_cat" / "z.png")
    again = {latents[3, 0, 0].item() for latents in all_latents(build(plan(), to_disk=False)[0], plan())}
    assert again == seeds


def test_files_have_the_names_and_arrays_that_others_know(picture, plan, tmp_path):
    picture("1_x/cat.png", (100, 70))
    build(plan(resolution="80", max_bucket_reso=96, bucket_reso_steps=32, flip_aug=True))
    with np.load(tmp_path / "train" / "1_x" / "cat_0100x0070_sd.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    assert set(arrays) == {
        "latents_8x12", "latents_flipped_8x12", "original_size_8x12", "crop_ltrb_8x12", "fingerprint_8x12"
    }  # fmt: skip
    with np.load(EXAMPLES / "cat_0100x0070_sd.npz") as archive:
        for name in ("original_size", "crop_ltrb"):
            assert arrays[f"{name}_8x12"].tolist() == archive[name].tolist()
            assert arrays[f"{name}_8x12"].dtype == archive[name].dtype
    assert arrays["latents_8x12"].dtype == np.float32


def test_files_hold_the_sample_before_scaling(picture, plan, tmp_path):
    picture("1_x/a.png")
    cache, _ = build(plan())
    with np.load(entries(tmp_path)[0]) as archive:
        stored = torch.from_numpy(archive["latents_8x8"])
    torch.testing.assert_close((stored - LATENT.shift) * LATENT.scale, cache.latents(0, False)[0])
    build(plan(), form=CacheFormat("_flux.npz", stores_scaled=True))
    with np.load(tmp_path / "train" / "1_x" / "a_0064x0064_flux.npz") as archive:
        torch.testing.assert_close(torch.from_numpy(archive["latents_8x8"]), cache.latents(0, False)[0])


def test_equal_entries_are_used_again(ten_pictures, plan, tmp_path):
    first, _ = build(plan())
    again, encode = build(plan())
    assert encode.count == 0
    assert again.report.reused == 10
    assert all(torch.equal(a, b) for a, b in zip(all_latents(first, plan()), all_latents(again, plan()), strict=True))
    assert not list((tmp_path / "train").rglob("*.tmp"))


@pytest.mark.parametrize(
    "options",
    [{"resize_interpolation": "bilinear"}, {"flip_aug": True}, {"alpha_mask": True}, {"enable_bucket": False}],
    ids=lambda options: next(iter(options)),
)
def test_other_options_make_it_anew(picture, plan, options):
    picture("1_x/a.png", (100, 70))
    build(plan())
    assert build(plan(**options))[1].count > 0
    assert build(plan(**options))[1].count == 0


def test_another_vae_makes_it_anew(picture, plan):
    picture("1_x/a.png")
    build(plan())
    cache, encode = build(plan(), fingerprint="vae-b")
    assert encode.count == 1
    assert "no longer fitted" in "\n".join(cache.report.lines())
    assert build(plan(), fingerprint="vae-c", trust_files=True)[1].count == 0


def test_an_edited_picture_of_equal_size_is_made_anew_and_a_touched_one_is_not(picture, plan):
    path = picture("1_x/a.bmp")
    build(plan())
    os.utime(path, ns=(1, time.time_ns() + 10**9))
    assert build(plan())[1].count == 0
    data = bytearray(path.read_bytes())
    data[-1] ^= 0xFF
    path.write_bytes(data)
    assert build(plan())[1].count == 1


@pytest.mark.parametrize("damage", ["half", "empty", "text", "middle"])
def test_a_damaged_entry_is_made_anew_and_said(ten_pictures, plan, tmp_path, damage):
    before = all_latents(build(plan())[0], plan())
    victim = entries(tmp_path)[3]
    data = victim.read_bytes()
    middle = data.index(b"latents") + 400
    victim.write_bytes(
        {
            "half": data[: len(data) // 2],
            "empty": b"",
            "text": b"hello",
            "middle": data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :],
        }[damage]
    )
    cache, encode = build(plan())
    assert encode.count == 1
    assert cache.report.damaged == [victim]
    assert victim.name in "\n".join(cache.report.lines())
    assert all(torch.equal(a, b) for a, b in zip(before, all_latents(cache, plan()), strict=True))


@pytest.mark.parametrize("name", ["cat_0100x0070_sd.npz", "cat_0100x0070_sd__multires.npz"])
def test_caches_of_other_programs_are_read(picture, plan, tmp_path, name):
    path = picture("1_x/cat.png", (100, 70))
    os.utime(path, ns=(1, 10**18))
    target = path.with_name("cat_0100x0070_sd.npz")
    shutil.copy(EXAMPLES / name, target)
    made = plan(resolution="80", max_bucket_reso=96, bucket_reso_steps=32)
    cache, encode = build(made)
    assert encode.count == 0
    assert "made by another program" in "\n".join(cache.report.lines())
    with np.load(EXAMPLES / name) as archive:
        stored = archive["latents"] if "latents" in archive.files else archive["latents_8x12"]
    expected = (torch.from_numpy(stored) - LATENT.shift) * LATENT.scale
    torch.testing.assert_close(cache.latents(0, False)[0], expected)


def test_foreign_caches_of_another_shape_or_older_than_the_picture_are_not_used(picture, plan):
    path = picture("1_x/cat.png", (100, 70))
    target = path.with_name("cat_0100x0070_sd.npz")
    shutil.copy(EXAMPLES / "cat_0100x0070_sd.npz", target)
    os.utime(path, ns=(1, 10**18))
    assert build(plan())[1].count == 1  # 72 x 56 px at this resolution
    shutil.copy(EXAMPLES / "cat_0100x0070_sd.npz", target)
    os.utime(path, ns=(1, time.time_ns() + 10**12))
    assert build(plan(resolution="80", max_bucket_reso=96, bucket_reso_steps=32))[1].count == 1


def test_sizes_share_a_file(picture, plan, tmp_path):
    picture("1_x/a.png", (100, 70))
    build(plan())
    build(plan(resolution="80", max_bucket_reso=96, bucket_reso_steps=32))
    again, encode = build(plan())
    assert encode.count == 0
    assert again.report.stale == []
    assert len(entries(tmp_path)) == 1


def test_a_file_of_the_user_is_neither_read_nor_overwritten(picture, plan):
    path = picture("1_x/a.png")
    own = path.with_suffix(".npz")
    np.savez(own, latents=np.zeros((4, 8, 8), np.float32))
    before = own.read_bytes()
    assert build(plan())[1].count == 1
    assert own.read_bytes() == before


def test_simultaneous_processes_share_the_work_on_disk(ten_pictures, plan, tmp_path):
    made, shares = plan(), []
    for rank in range(3):
        build(made, rank=rank, world_size=3)
        shares.append({path.name for path in entries(tmp_path)})
        for path in entries(tmp_path):
            path.unlink()
    assert sum(map(len, shares)) == 10
    names = {f"{sample.path.stem}_{sample.size[0]:04}x{sample.size[1]:04}_sd.npz" for sample in made.samples}
    assert set.union(*shares) == names


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_latents_that_are_not_finite_stop_with_the_name(ten_pictures, plan, value):
    def encode(pixels, seeds):
        latents = Encoder()(pixels, seeds)
        latents[-1, 0, 0, 0] = value
        return latents

    with pytest.raises(UserError, match=r"p\d\.png.*not finite.*no_half_vae"):
        build(plan(), encode)


@pytest.mark.parametrize("to_disk", [False, True])
def test_a_picture_that_breaks_after_planning(ten_pictures, plan, tmp_path, to_disk):
    made, skipping = plan(), plan(on_bad_image="skip")
    victim = tmp_path / "train" / "3_cat" / "p4.png"
    victim.write_bytes(victim.read_bytes()[:200])
    with pytest.raises(UserError, match=r"p4\.png .*on_bad_image"):
        build(made, to_disk=to_disk)
    cache, _ = build(skipping, to_disk=to_disk)
    assert cache.report.encoded + cache.report.reused == 9
    assert list(cache.unreadable) == [victim]


def test_masks_are_cached_and_mirrored(tmp_path, picture, plan):
    from PIL import Image

    path = picture("1_x/a.png")
    image = Image.new("RGBA", (64, 64), (9, 9, 9, 0))
    image.paste((9, 9, 9, 255), (0, 0, 16, 64))
    image.save(path)
    for to_disk in (False, True):
        cache, _ = build(plan(alpha_mask=True, flip_aug=True), to_disk=to_disk)
        mask, mirrored = cache.latents(0, False)[1], cache.latents(0, True)[1]
        assert mask[:, :16].min() == 1
        assert mask[:, 16:].max() == 0
        assert torch.equal(mirrored, mask.flip(1))


def test_a_full_disk_is_said(picture, plan, monkeypatch):
    import errno

    picture("1_x/a.png")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(UserError, match=r"no space left.*cache_latents_to_disk"):
        build(plan())


def test_decoding_goes_on_while_a_batch_is_encoded(ten_pictures, plan, monkeypatch):
    import threading

    from sd_scripts.data import cache as module

    load, started, is_ahead = module.load_picture, [], threading.Event()

    def counting_load(sample, options):
        started.append(sample)
        if len(started) >= 3:
            is_ahead.set()
        return load(sample, options)

    def encode(pixels, seeds):
        assert is_ahead.wait(20), "nothing was decoded while the first picture was encoded"
        return Encoder()(pixels, seeds)

    monkeypatch.setattr(module, "load_picture", counting_load)
    build(plan(), encode, to_disk=False)
    assert len(started) == 10


def test_an_entry_just_written_is_accepted(ten_pictures, plan):
    made = plan(flip_aug=True)
    build(made)
    for sample in made.samples:
        spec = entry_spec(sample, made.subsets[0].options, LATENT, "vae-a", CacheFormat())
        assert check_entry(spec) == "good"
        assert read_entry(spec, LATENT, CacheFormat()).latents.shape == spec.shape
