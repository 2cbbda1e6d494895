import multiprocessing
import os
import random
import signal
import threading
from collections import Counter
from dataclasses import dataclass

import pytest
import torch

from sd_scripts.data.cache import LatentCache
from sd_scripts.data.loader import Loader, part_of
from sd_scripts.data.randomness import Use
from sd_scripts.data.workers import choose_workers, usable_cores
from sd_scripts.errors import UserError
from sd_scripts.models.base import LatentSpec, Tokenizer, Tokens

LATENT = LatentSpec(channels=4, downscale=8, scale=0.5)
VARIED = {
    "shuffle_caption": True, "caption_dropout_rate": 0.2, "caption_tag_dropout_rate": 0.2, "flip_aug": True,
    "color_aug": True, "random_crop": True, "train_batch_size": 2,
}  # fmt: skip


@dataclass
class LetterTokenizer(Tokenizer):
    """A picklable tokenizer: the letters of a caption."""

    def __call__(self, captions):
        rows = [[ord(letter) for letter in caption[:10].ljust(10)] for caption in captions]
        return Tokens((torch.tensor(rows)[:, None],))

    def count(self, caption):
        return len(caption)

    @property
    def limit(self):
        return 10


def encode(pixels, seeds):
    return torch.nn.functional.avg_pool2d(pixels.float() / 255, 8)[:, [0, 1, 2, 0]]


def batches(plan, epochs=(0, 1), skip=0, **options):
    loader = Loader(plan, LetterTokenizer(), **{"seed": 5, "workers": 0, "total_steps": 50, **options})
    try:
        return [batch for epoch in epochs for batch in loader.epoch(epoch, skip_batches=skip)]
    finally:
        loader.close()


def assert_equal(left, right):
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert (a.captions, a.indices) == (b.captions, b.indices)
        assert torch.equal(a.tokens.ids[0], b.tokens.ids[0])
        assert torch.equal(a.loss_weights, b.loss_weights)
        for name in ("pixels", "latents", "masks"):
            x, y = getattr(a, name), getattr(b, name)
            assert (x is None) == (y is None)
            assert x is None or torch.equal(x, y)


def test_a_batch(ten_pictures, plan):
    made = plan(train_batch_size=2, prior_loss_weight=0.5)
    batch = batches(made, (0,))[0]
    samples = [made.samples[index % len(made.samples)] for index in batch.indices]
    width, height = samples[0].bucket
    assert batch.pixels.shape == (len(batch), 3, height, width)
    assert batch.pixels.dtype == torch.uint8
    assert batch.captions == tuple(sample.caption for sample in samples)
    assert batch.loss_weights.tolist() == [1.0] * len(batch)
    assert batch.masks is None
    assert batch.latents is None
    assert batch.to("cpu").tokens.ids[0].shape == (len(batch), 1, 10)


@pytest.mark.parametrize(("start_method", "workers"), [(None, 2), ("spawn", 1)])
def test_workers_make_the_same_batches(ten_pictures, plan, start_method, workers):
    made = plan(cache_latents=False, **VARIED)
    alone = batches(made, (0, 1, 2))
    assert len({batch.captions for batch in alone}) > 20
    loader = Loader(made, LetterTokenizer(), seed=5, workers=workers, total_steps=50, start_method=start_method)
    assert loader.workers == min(workers, usable_cores())
    found = [batch for epoch in (0, 1, 2) for batch in loader.epoch(epoch)]
    children = multiprocessing.active_children()
    assert len(children) == loader.workers  # the same ones for all epochs
    assert loader.wait_seconds > 0
    loader.close()
    assert not multiprocessing.active_children()
    assert_equal(found, alone)


def test_skipping_batches_changes_nothing_else(ten_pictures, plan):
    made = plan(cache_latents=False, **VARIED)
    assert_equal(batches(made, (1,), skip=4), batches(made, (1,))[4:])


def test_an_epoch_that_was_left_early_leaves_no_trace(ten_pictures, plan):
    made = plan(train_batch_size=2)
    loader = Loader(made, None, seed=5, workers=2)
    next(iter(loader.epoch(0)))
    second = [batch.indices for batch in loader.epoch(1)]
    loader.close()
    assert second == [batch.indices for batch in batches(made, (1,))]


@pytest.mark.parametrize("world_size", [2, 3])
def test_processes_share_each_batch_of_one_process(ten_pictures, plan, world_size):
    """Together they train on what one process with so large a batch does, in the same order."""
    made = plan(cache_latents=False, **VARIED)
    alone = batches(plan(cache_latents=False, **VARIED | {"train_batch_size": 2 * world_size}), (0,))
    ranks = [batches(made, (0,), rank=rank, world_size=world_size) for rank in range(world_size)]
    assert len({len(rank) for rank in ranks}) == 1
    for whole, *parts in zip(alone, *ranks, strict=True):
        counted = [part for part in parts if part.loss_weights.any()]
        assert sum((part.indices for part in counted), ()) == whole.indices
        assert torch.equal(torch.cat([part.pixels for part in counted]), whole.pixels)
        weighted = (
            sum(part.loss_weights.mean() for part in parts) / world_size
        )  # as the mean over all processes is made
        torch.testing.assert_close(weighted, whole.loss_weights.mean())


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_mean_over_the_parts_of_a_batch_is_the_mean_of_the_batch(count, world_size):
    losses = [float(number**2) for number in range(count)]
    uses = [(number, 0) for number in range(count)]
    parts = [part_of(uses, rank, world_size) for rank in range(world_size)]
    means = [share * sum(losses[sample] for sample, _ in mine) / len(mine) for mine, share in parts]
    assert sum(means) / world_size == pytest.approx(sum(losses) / count)
    assert max(len(mine) for mine, _ in parts) - min(len(mine) for mine, _ in parts) <= 1


def test_five_pictures_on_two_processes_end_together(picture, plan):
    for number in range(5):
        picture(f"1_x/{number}.png")
    assert [len(batches(plan(), (0,), rank=rank, world_size=2)) for rank in (0, 1)] == [3, 3]


def test_uses_are_told_apart_within_an_epoch_and_vary(ten_pictures, plan):
    made = plan(cache_latents=False, **VARIED)
    found = batches(made, (0,))
    indices = [index for batch in found for index in batch.indices]
    assert len(set(indices)) == len(indices) == 30
    captions = Counter(caption for batch in found for caption in batch.captions)
    assert len(captions) > 20


def test_flips_depend_on_the_use_alone_with_and_without_cache(ten_pictures, plan):
    made = plan(flip_aug=True, train_batch_size=2)
    memory = LatentCache.build(made, encode, latent=LATENT, fingerprint="v", to_disk=False, batch_size=3)
    disk = LatentCache.build(made, encode, latent=LATENT, fingerprint="v", to_disk=True, batch_size=2)
    plain, cached, read = batches(made), batches(made, cache=memory), batches(made, cache=disk)
    assert_equal(batches(made, (0,), cache=disk, workers=2), batches(made, (0,), cache=disk))
    assert_equal(batches(made, (0,), cache=memory, workers=2), batches(made, (0,), cache=memory))
    for a, b, c in zip(plain, cached, read, strict=True):
        assert a.captions == b.captions == c.captions
        assert b.pixels is c.pixels is None
        torch.testing.assert_close(encode(a.pixels, []), b.latents.float(), atol=1e-6, rtol=2**-11)
        assert torch.equal(b.latents, c.latents)
    never = batches(plan(train_batch_size=2))
    flipped = sum(not torch.equal(a.pixels, b.pixels) for a, b in zip(plain, never, strict=True))
    assert len(plain) / 2 < flipped < len(plain)  # of two pictures in a batch


def test_half_of_all_uses_are_flipped_whatever_tells_them_apart():
    for name in ("seed", "epoch", "sample", "repeat"):
        uses = [Use(**{"seed": 1, "epoch": 2, "sample": 3, "repeat": 4, name: number}) for number in range(2000)]
        assert abs(sum(use.is_heads("flip") for use in uses) / 2000 - 0.5) < 0.05


def test_epoch_and_step_reach_captions(picture, plan):
    picture("4_x/a.png", caption="a, b, c, d")
    every_second = batches(plan(caption_dropout_every_n_epochs=2), (0, 1, 2, 3), workers=2)
    assert [batch.captions[0] != "" for batch in every_second] == [True] * 4 + [False] * 4 + [True] * 4 + [False] * 4
    warm = batches(plan(token_warmup_step=0.5, token_warmup_min=1), (0, 1, 2), total_steps=12)
    assert [batch.captions[0].count(",") + 1 for batch in warm] == [1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4]
    slow = batches(plan(token_warmup_step=3, token_warmup_min=1), (0, 1), total_steps=12, accumulation=2)
    assert [batch.captions[0].count(",") + 1 for batch in slow] == [1, 1, 2, 2, 3, 3, 4, 4]


def test_masks(picture, plan):
    from PIL import Image

    image = Image.new("RGBA", (64, 64), (9, 9, 9, 0))
    image.paste((9, 9, 9, 255), (0, 0, 16, 64))
    image.save(picture("1_x/a.png"))
    picture("1_x/b.png")
    (batch,) = batches(plan(alpha_mask=True, train_batch_size=2), (0,))
    masks = dict(zip(batch.indices, batch.masks, strict=True))
    assert batch.masks.shape == (2, 1, 64, 64)
    assert masks[0][0, :, :16].min() == 1
    assert masks[0][0, :, 16:].max() == 0
    assert masks[1].min() == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_picture_that_breaks_during_the_run(ten_pictures, plan, tmp_path, workers):
    stopping, skipping = plan(train_batch_size=2), plan(train_batch_size=2, on_bad_image="skip")
    victim = tmp_path / "train" / "3_cat" / "p4.png"
    victim.write_bytes(b"")
    with pytest.raises(UserError, match=r"p4\.png is empty .*on_bad_image") as raised:
        batches(stopping, workers=workers)
    assert "\n" not in str(raised.value)
    loader = Loader(skipping, None, seed=5, workers=workers)
    found = list(loader.epoch(0))
    loader.close()
    assert len(found) == skipping.batches_per_epoch()
    assert list(loader.skipped) == [victim]
    assert not any("cat 4" in caption for batch in found for caption in batch.captions)


def test_a_picture_that_cannot_be_cached_is_replaced_with_its_caption(ten_pictures, plan, tmp_path):
    made = plan(train_batch_size=2, on_bad_image="skip")
    (tmp_path / "train" / "3_cat" / "p4.png").write_bytes(b"")
    for to_disk in (False, True):
        cache = LatentCache.build(made, encode, latent=LATENT, fingerprint="v", to_disk=to_disk)
        found = batches(made, (0,), cache=cache)
        assert len(found) == made.batches_per_epoch()
        assert not any("cat 4" in caption for batch in found for caption in batch.captions)


def test_a_cache_file_that_vanishes_is_named(ten_pictures, plan, tmp_path):
    made = plan()
    cache = LatentCache.build(made, encode, latent=LATENT, fingerprint="v", to_disk=True)
    victim = next((tmp_path / "train").rglob("*.data"))
    victim.unlink()
    with pytest.raises(UserError, match=rf"{victim.name} has disappeared"):
        batches(made, cache=cache)


class DeadlyTokenizer(LetterTokenizer):
    def __call__(self, captions):
        os._exit(1)


def test_a_worker_that_dies_time_and_again_is_said_with_its_picture(ten_pictures, plan):
    loader = Loader(plan(), DeadlyTokenizer(), seed=5, workers=2)
    with pytest.raises(
        UserError, match=r"ended by itself \(code 1\), time and again while it read .*p\d\.png - lower max_"
    ):
        next(loader.epoch(0))
    loader.close()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("start_method", [None, pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_that_are_killed_change_nothing(ten_pictures, plan, start_method):
    made = plan(cache_latents=False, **VARIED)
    epochs = range(8) if start_method is None else range(2)
    alone = batches(made, epochs)
    draws, told, found, kills = random.Random(0), [], [], 0
    loader = Loader(
        made, LetterTokenizer(), seed=5, workers=2, total_steps=50, start_method=start_method, warn=told.append
    )
    for epoch in epochs:
        for batch in loader.epoch(epoch):
            if kills < (20 if start_method is None else 2) and draws.random() < 0.3:
                os.kill(draws.choice(multiprocessing.active_children()).pid, signal.SIGKILL)
                kills += 1
            found.append(batch)
    loader.close()
    assert_equal(found, alone)
    assert kills == (20 if start_method is None else 2)
    assert told and all("was killed (SIGKILL, perhaps because memory ran out); another reads" in line for line in told)
    assert not multiprocessing.active_children()


def test_workers_end_with_the_training_process(ten_pictures, plan, tmp_path):
    """Also when it is killed and can end nothing itself."""
    psutil = pytest.importorskip("psutil")
    context = multiprocessing.get_context("fork" if os.name != "nt" else "spawn")
    reader, writer = context.Pipe(duplex=False)
    trainer = context.Process(target=read_and_wait, args=(plan(), writer))
    trainer.start()
    workers = [psutil.Process(pid) for pid in reader.recv()]
    assert len(workers) == 2
    trainer.kill()
    trainer.join()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not [worker for worker in alive if worker.status() != psutil.STATUS_ZOMBIE]


def read_and_wait(plan, writer):
    loader = Loader(plan, LetterTokenizer(), seed=5, workers=2)
    batches = loader.epoch(0)
    next(batches)
    writer.send([process.pid for process in multiprocessing.active_children()])
    threading.Event().wait()


@pytest.mark.parametrize("start_method", [None, "forkserver"])
def test_batches_keep_their_layout_between_processes(ten_pictures, plan, start_method):
    if start_method not in (None, *multiprocessing.get_all_start_methods()):
        pytest.skip("this system has no such way to start processes")
    made = plan(cache_latents=False)
    loader = Loader(made, LetterTokenizer(), seed=5, workers=1, start_method=start_method)
    found = [batch.pixels for batch in loader.epoch(0)]
    loader.close()
    for pixels in found:
        assert pixels.dtype == torch.uint8
        assert pixels.permute(0, 2, 3, 1).is_contiguous()


def test_cached_latents_need_no_workers(ten_pictures, plan):
    made = plan()
    for to_disk in (False, True):
        cache = LatentCache.build(made, encode, latent=LATENT, fingerprint="v", to_disk=to_disk)
        for asked in ("auto", 4):
            assert Loader(made, None, cache=cache, seed=5, workers=asked).workers == 0


def test_workers_above_the_cores_are_capped_and_it_is_said(ten_pictures, plan, caplog):
    with caplog.at_level("INFO"):
        loader = Loader(plan(), None, seed=5, workers=usable_cores() + 3)
    assert loader.workers == usable_cores()
    assert f"{usable_cores() + 3} loader processes were asked for; {usable_cores()} are used" in caplog.text


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_any_workers_and_processes_go_on_in_mid_epoch_with_the_same_batches(ten_pictures, plan, workers, world_size):
    made = plan(cache_latents=False, alpha_mask=True, **VARIED)
    for rank in range(world_size):
        place = {"rank": rank, "world_size": world_size}
        unbroken = batches(made, (0, 1, 2), **place)
        skipped = len(unbroken) // 3 - 2
        again = batches(made, (1,), skip=skipped, workers=workers, **place) + batches(
            made, (2,), workers=workers, **place
        )
        assert_equal(again, unbroken[len(unbroken) // 3 + skipped :])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_memory_stays_flat_over_fifty_epochs(picture, plan, workers):
    psutil = pytest.importorskip("psutil")
    for number in range(40):
        picture(f"1_x/{number}.jpg", (300 + number, 280), caption=f"picture {number}, red")
    made = plan(resolution="256", max_bucket_reso=512, cache_latents=False, **VARIED)
    loader = Loader(made, LetterTokenizer(), seed=5, workers=workers, total_steps=10_000)
    processes, used = [psutil.Process()], []
    for epoch in range(50):
        assert sum(len(batch) for batch in loader.epoch(epoch)) == 40
        if epoch == 4:
            processes += [psutil.Process(child.pid) for child in multiprocessing.active_children()]
        if epoch in (9, 49):
            used.append(sum(process.memory_info().rss for process in processes))
    loader.close()
    assert len(processes) == 1 + workers
    assert used[1] / used[0] == pytest.approx(1, abs=0.02)


def test_without_persistence_workers_end_with_the_epoch(ten_pictures, plan):
    made = plan(train_batch_size=2)
    loader = Loader(made, LetterTokenizer(), seed=5, workers=2, persistent=False)
    found = []
    for epoch in (0, 1):
        found += loader.epoch(epoch)
        assert not multiprocessing.active_children()
    assert_equal(found, batches(made))


def test_the_meter_counts(ten_pictures, plan):
    for workers in (0, 2):
        loader = Loader(plan(cache_latents=False), LetterTokenizer(), seed=5, workers=workers)
        images = sum(len(batch) for batch in loader.epoch(0))
        loading = loader.meter.since_last()
        loader.close()
        assert images == 30
        assert loading.images_per_second > 0
        assert 0 < loading.data_wait <= 1
        assert 0 < loading.worker_cpu <= 1
        assert loading.mb_per_second > 0


def test_the_global_generator_is_left_alone(ten_pictures, plan):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    batches(plan(), workers=2)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("cores", "processes", "cached", "samples", "workers"),
    [(2, 1, False, 16, 0), (16, 1, True, 9999, 0), (2, 1, False, 999, 1), (4, 1, False, 9999, 3), (16, 1, False, 9999, 12),
     (16, 1, False, 100, 6), (64, 8, False, 9999, 6), (64, 1, False, 9999, 48), (1, 4, False, 9999, 1)],
)  # fmt: skip
def test_worker_count(cores, processes, cached, samples, workers):
    assert choose_workers(cores, processes, cached, samples) == workers


def test_few_files_stay_open(plan, picture):
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    for number in range(150):
        picture(f"1_x/{number}.bmp", (8, 8))
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, limit[1]))
    try:
        made = plan(resolution="32", min_bucket_reso=32)
        cache = LatentCache.build(made, encode, latent=LATENT, fingerprint="v", to_disk=True, batch_size=8)
        loader = Loader(made, LetterTokenizer(), seed=5, cache=cache, workers=2)
        assert sum(len(batch) for epoch in range(2) for batch in loader.epoch(epoch)) == 300
        loader.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
