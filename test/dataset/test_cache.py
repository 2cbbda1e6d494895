import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from sd_scripts.data import cache_files
from sd_scripts.data.cache import LatentCache
from sd_scripts.data.cache_store import STORE
from sd_scripts.data.cache_upkeep import purge, verify
from sd_scripts.errors import UserError
from sd_scripts.models.base import LatentSpec

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


def store_files(tmp_path, suffix: str = ".data") -> list[Path]:
    return sorted((tmp_path / "train").rglob(f"{STORE}/*{suffix}"))


def assert_same(cache, other, plan) -> None:
    assert all(torch.equal(a, b) for a, b in zip(all_latents(cache, plan), all_latents(other, plan), strict=True))


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
            assert latents.dtype == torch.float16
            torch.testing.assert_close(latents[:3].float(), Encoder()(pixels, [0])[0, :3], atol=1e-6, rtol=2**-11)


@pytest.mark.parametrize("to_disk", [False, True])
def test_full_precision_on_request_and_where_half_is_too_narrow(ten_pictures, plan, to_disk):
    def encode(pixels, seeds):
        latents = Encoder()(pixels, seeds)
        latents[:, 0, 0, 0] = 1e6
        return latents

    cache, _ = build(plan(), to_disk=to_disk, half=False)
    assert {values.dtype for values in all_latents(cache, plan())} == {torch.float32}
    cache, _ = build(plan(), encode, to_disk=to_disk, fingerprint="wide")
    assert all(values[0, 0, 0] == 1e6 for values in all_latents(cache, plan()))


def test_noise_of_the_vae_depends_on_content_not_on_order(ten_pictures, plan, tmp_path):
    seeds = {latents[3, 0, 0].item() for latents in all_latents(build(plan(), to_disk=False)[0], plan())}
    assert len(seeds) == 10
    (tmp_path / "train" / "3_cat" / "p0.png").rename(tmp_path / "train" / "3_cat" / "z.png")
    again = {latents[3, 0, 0].item() for latents in all_latents(build(plan(), to_disk=False)[0], plan())}
    assert again == seeds


def test_equal_entries_are_used_again(ten_pictures, plan, tmp_path):
    first, _ = build(plan())
    again, encode = build(plan())
    assert encode.count == 0
    assert again.report.reused == 10
    assert_same(first, again, plan())
    assert not store_files(tmp_path, ".tmp")
    assert len(store_files(tmp_path)) == 1


@pytest.mark.parametrize(
    "options",
    [{"resize_interpolation": "bilinear"}, {"flip_aug": True}, {"alpha_mask": True}, {"enable_bucket": False}],
    ids=lambda options: next(iter(options)),
)
def test_other_options_make_it_anew(picture, plan, options):
    picture("1_x/a.png", (100, 70))
    build(plan())
    assert build(plan(**options))[1].count == 1  # to flip: the mirrored picture alone
    assert build(plan(**options))[1].count == 0
    assert build(plan())[1].count == 0  # the earlier entries are still there


@pytest.mark.parametrize(
    "change",
    [{"fingerprint": "vae-b"}, {"half": False}, {"latent": replace(LATENT, scale=0.13025)}],
    ids=lambda change: next(iter(change)),
)
def test_another_vae_or_number_format_makes_it_anew(picture, plan, change):
    path = picture("1_x/a.png")
    build(plan())
    cache, encode = build(plan(), **change)
    assert encode.count == 1
    assert cache.report.outdated == [path]
    assert "another VAE" in "\n".join(cache.report.lines())
    assert build(plan(), **change)[1].count == 0
    assert build(plan())[1].count == 0


def test_compressed_entries_hold_the_same(ten_pictures, plan):
    plain, _ = build(plan(), to_disk=False)
    packed, _ = build(plan(), packs=True)
    assert_same(plain, packed, plan())
    assert build(plan())[1].count == 0  # read again without asking how they are stored


def test_a_picture_is_known_by_its_content(picture, plan, tmp_path):
    """Renamed, moved to another folder, copied to a second subset: never encoded again."""
    path = picture("1_x/a.png")
    picture("1_y/b.png")
    build(plan())
    path.rename(path.with_name("other name.png"))
    assert build(plan())[1].count == 0
    shutil.move(path.with_name("other name.png"), tmp_path / "train" / "1_y" / "c.png")
    picture("1_x/new.png")
    shutil.copytree(tmp_path / "train" / "1_y", tmp_path / "train" / "5_z", ignore=shutil.ignore_patterns(STORE))
    cache, encode = build(plan())
    assert encode.count == 1
    assert cache.report.reused == 4
    shutil.rmtree(tmp_path / "train" / "1_x")
    (tmp_path / "train").rename(tmp_path / "moved")
    assert build(plan(train_data_dir=str(tmp_path / "moved")))[1].count == 1  # went with the store of its folder


@pytest.mark.parametrize("to_disk", [False, True])
def test_equal_pictures_of_a_run_are_encoded_once(picture, plan, tmp_path, to_disk):
    path = picture("1_x/a.png")
    for name in ("1_x/copy.png", "2_y/a.png"):
        (tmp_path / "train" / name).parent.mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / "train" / name)
    cache, encode = build(plan(), to_disk=to_disk)
    assert encode.count == 1
    first, *others = all_latents(cache, plan())
    assert all(torch.equal(first, other) for other in others)


def test_folders_of_one_name_share_nothing(picture, plan, tmp_path):
    """Two datasets with equally named folders and pictures."""
    picture("a/1_x/p.png")
    build(plan(train_data_dir=str(tmp_path / "train" / "a")))
    other = picture("b/1_x/p.png")
    Image.new("RGB", (64, 64), "red").save(other)
    cache, encode = build(plan(train_data_dir=str(tmp_path / "train" / "b")))
    assert encode.count == 1
    assert cache.latents(0, False)[0][0].min() > 0.99


def test_an_edited_picture_of_equal_size_is_made_anew_and_a_touched_one_is_not(picture, plan):
    path = picture("1_x/a.bmp")
    build(plan())
    os.utime(path, ns=(1, time.time_ns() + 10**9))
    assert build(plan())[1].count == 0
    data = bytearray(path.read_bytes())
    data[-1] ^= 0xFF
    path.write_bytes(data)
    assert build(plan(), trust_files=True)[1].count == 0  # which is what trusting means
    assert build(plan())[1].count == 1


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


DAMAGE = {
    "half the data": (".data", lambda path: os.truncate(path, path.stat().st_size // 2), 6),
    "no data": (".data", lambda path: path.write_bytes(b""), 10),
    "data gone": (".data", Path.unlink, 10),
    "a byte of the data": (".data", lambda path: flip(path, 16 + 3 * 512 + 7), 1),
    "text for an index": (".index", lambda path: path.write_bytes(b"hello"), 10),
    "half the index": (".index", lambda path: os.truncate(path, 16 + 5 * 76 + 11), 5),
    "a byte of the index": (".index", lambda path: flip(path, 16 + 4 * 76 + 30), 1),
    "text for the files": (".files", lambda path: path.write_bytes(b"\xff\x00 hello"), 0),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_entries_are_made_anew_and_said(ten_pictures, plan, tmp_path, damage):
    suffix, spoil, lost = DAMAGE[damage]
    before, _ = build(plan(resolution="64", enable_bucket=False))
    kept = all_latents(before, plan())
    (victim,) = store_files(tmp_path, suffix)
    spoil(victim)
    cache, encode = build(plan(enable_bucket=False))
    assert encode.count == lost
    if lost:
        assert cache.report.damaged_files == [victim.with_suffix(".data")]
        assert victim.stem in "\n".join(cache.report.lines())
    assert all(torch.equal(a, b) for a, b in zip(kept, all_latents(cache, plan()), strict=True))
    again, encode = build(plan(enable_bucket=False))
    assert encode.count == 0
    assert again.report.damaged_files == []  # said once


def test_damaged_pictures_are_named(ten_pictures, plan, tmp_path):
    build(plan(enable_bucket=False))
    flip(store_files(tmp_path)[0], 16 + 3 * 512 + 7)
    cache, _ = build(plan(enable_bucket=False))
    assert [path.suffix for path in cache.report.damaged] == [".png"]
    assert cache.report.damaged[0].name in "\n".join(cache.report.lines())


def test_a_killed_run_loses_nothing_that_was_stored(ten_pictures, plan, tmp_path):
    """A process that is killed in the middle of the work: the next one goes on where it stopped."""
    code = f"""
import os, sys, time
sys.path[:0] = {[str(Path(__file__).parents[2]), str(Path(__file__).parent)]!r}
from test.dataset.test_cache import Encoder, build
from test.dataset.conftest import SMALL
from sd_scripts.data.plan import plan_data
from sd_scripts.options.dataset import DatasetOptions
encoder = Encoder()
def encode(pixels, seeds):
    if len(encoder.sizes) == 6:
        time.sleep(0.2)
        os.kill(os.getpid(), 9)
    return encoder(pixels, seeds)
plan = plan_data(DatasetOptions(train_data_dir={str(tmp_path / "train")!r}, **SMALL), divisor=8, seed=1)
build(plan, encode)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    cache, encode = build(plan())
    assert encode.count == 4
    assert cache.report.damaged_files == []
    whole, _ = build(plan(), to_disk=False)
    assert_same(cache, whole, plan())


@pytest.mark.parametrize("processes", [2, 3])
def test_simultaneous_processes_share_the_work_on_disk(ten_pictures, plan, processes):
    """Ten pictures never divide evenly by three, and all processes end with the whole cache."""
    barrier = threading.Barrier(processes, timeout=60)

    def one(rank):
        return build(plan(), rank=rank, world_size=processes, wait_for_all=barrier.wait)

    with ThreadPoolExecutor(processes) as pool:
        built = list(pool.map(one, range(processes)))
    counts = [encode.count for _, encode in built]
    assert sum(counts) == 10
    assert max(counts) - min(counts) <= 1
    alone, encode = build(plan())
    assert encode.count == 0
    for cache, _ in built:
        assert_same(cache, alone, plan())


def test_processes_that_cannot_read_a_picture_agree(ten_pictures, plan, tmp_path):
    (tmp_path / "train" / "3_cat" / "p4.png").write_bytes(b"\x89PNG")
    barrier = threading.Barrier(2, timeout=60)
    made = plan(on_bad_image="skip")
    victim = tmp_path / "train" / "3_cat" / "p5.png"
    victim.write_bytes(victim.read_bytes()[:200])

    def one(rank):
        return build(made, rank=rank, world_size=2, wait_for_all=barrier.wait)[0]

    with ThreadPoolExecutor(2) as pool:
        assert {tuple(cache.unreadable) for cache in pool.map(one, range(2))} == {(victim,)}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_latents_that_are_not_finite_stop_with_the_name(ten_pictures, plan, value):
    def encode(pixels, seeds):
        latents = Encoder()(pixels, seeds)
        latents[-1, 0, 0, 0] = value
        return latents

    with pytest.raises(UserError, match=r"p\d\.png.*not finite.*no_half_vae"):
        build(plan(), encode)
    assert all(torch.isfinite(latents).all() for latents in all_latents(build(plan())[0], plan()))


def test_what_overflows_is_encoded_again_in_full_precision(ten_pictures, plan, caplog):
    def encode(pixels, seeds):
        latents = Encoder()(pixels, seeds)
        latents[0, 1, 2, 3] = float("inf")
        return latents

    caplog.set_level("INFO")
    exactly = Encoder()
    cache, _ = build(plan(flip_aug=True), encode, encode_exactly=exactly, batch_size=2)
    assert exactly.sizes == [1] * exactly.count
    assert exactly.count >= 10
    assert "overflowed in half precision" in caplog.text
    assert_same(cache, build(plan(flip_aug=True), to_disk=False)[0], plan())


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
    assert build(plan(alpha_mask=True, flip_aug=True))[1].count == 0


def test_an_edited_mask_file_is_noticed_and_the_picture_not_encoded_again(picture, plan, tmp_path):
    picture("1_x/a.png")
    masks = tmp_path / "masks"
    masks.mkdir()
    Image.new("L", (64, 64), 255).save(masks / "a.png")
    made = plan(masked_loss=True, conditioning_data_dir=str(masks))
    assert build(made)[0].latents(0, False)[1].min() == 1
    Image.new("L", (64, 64), 0).save(masks / "a.png")
    cache, encode = build(made)
    assert encode.count == 0
    assert cache.latents(0, False)[1].max() == 0
    assert build(made)[1].count == 0


def test_opacity_as_a_mask_and_on_a_background_are_told_apart(picture, plan, tmp_path):
    path = picture("1_x/a.png")
    Image.new("RGBA", (64, 64), (255, 0, 0, 0)).save(path)
    masks = tmp_path / "masks"
    masks.mkdir()
    Image.new("L", (64, 64), 255).save(masks / "a.png")
    own = build(plan(alpha_mask=True))[0].latents(0, False)[0]
    from_file = build(plan(alpha_mask=True, masked_loss=True, conditioning_data_dir=str(masks)))[0].latents(0, False)[0]
    assert own[1].max() == 0  # red, as it is stored
    assert from_file[1].min() == 1  # white shines through


def test_a_full_disk_is_said(ten_pictures, plan, monkeypatch):
    append, room = cache_files._append, [6]

    def full(path, content, at):
        if room[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= 1
        append(path, content, at)

    with monkeypatch.context() as patch:
        patch.setattr(cache_files, "_append", full)
        with pytest.raises(UserError, match=r"no space left.*cache_latents_to_disk"):
            build(plan())
    cache, encode = build(plan())
    assert encode.count == 8  # two headers, and two entries with their records, found room
    assert_same(cache, build(plan(), to_disk=False)[0], plan())


def test_a_folder_that_cannot_be_written_is_said(ten_pictures, plan, tmp_path):
    (tmp_path / "train" / "3_cat" / STORE).write_text("a file")
    with pytest.raises(UserError, match=r"cannot write .*3_cat.*cache_latents_to_disk"):
        build(plan())


def test_decoding_goes_on_while_a_batch_is_encoded(ten_pictures, plan, monkeypatch):
    import threading

    from sd_scripts.data import cache_work as module

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


def test_a_shape_that_the_cache_does_not_expect_is_our_fault(ten_pictures, plan):
    with pytest.raises(ValueError, match="the cache needs"):
        build(plan(), lambda pixels, seeds: torch.zeros(len(pixels), 4, 3, 3))


def test_memory_holds_each_encoding_once(ten_pictures, plan):
    cache, _ = build(plan(flip_aug=True), to_disk=False, batch_size=4)
    found = [cache.latents(number, flip)[0] for number in range(10) for flip in (False, True)]
    assert sum(values.untyped_storage().nbytes() for values in found) == sum(values.nbytes for values in found)
    again = [cache.latents(number, flip)[0] for number in range(10) for flip in (False, True)]
    assert all(a.data_ptr() == b.data_ptr() for a, b in zip(found, again, strict=True))  # no copy


def test_purging_drops_what_no_picture_uses(ten_pictures, plan, tmp_path):
    cache, _ = build(plan(flip_aug=True))
    build(plan())
    (tmp_path / "train" / "3_cat" / "p3.png").unlink()
    before = [cache.latents(number, True)[0] for number in range(10) if number != 3]
    made = plan(flip_aug=True)
    assert purge(made).dropped == 2
    (data,) = store_files(tmp_path)
    assert purge(made).dropped == 0
    cache, encode = build(made)
    assert encode.count == 0
    assert all(torch.equal(a, cache.latents(number, True)[0]) for number, a in enumerate(before))
    assert verify(made) == (18, [])
    flip(data, 16 + 3 * 512 + 7)
    assert verify(made) == (17, [data])
