"""What the caches cost: checking, reading and filling them, each against a plain way in the same run.

    python bench/cache.py [--entries 20000] [--pictures 200] [--runs 3]

Latents are those of 512 x 512 px (4 x 64 x 64). Plain ways: for checking and reading, an .npz a picture, opened by numpy;
for filling, one loop that decodes with Pillow, scales with cv2's area filter and encodes, one after the other. The free
encoder only takes some pixels; the busy one also waits 20 ms a picture without using the CPU, as for a GPU at work. Runs
alternate, and the best of each counts. Names that end in "per_cpu" count seconds of the CPU instead of the clock's, which
does not suffer from other programs on the machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SIDE = 512
CAPTION = "photo of a cat number {}, sitting on a red sofa, soft light, high detail, grain, looking at the viewer"


def show(name: str, value: float, unit: str, goal: float | None = None, better: str = "higher") -> None:
    line = {"name": name, "value": round(value, 3), "unit": unit, "goal": goal, "better": better}
    print(json.dumps(line), flush=True)


class Seconds(NamedTuple):
    """What a job took: by the clock, and of the CPU in this process."""

    wall: float
    cpu: float

    def times(self, factor: float) -> Seconds:
        return Seconds(self.wall * factor, self.cpu * factor)


def best(runs: int, *jobs: Callable[[], Seconds]) -> list[Seconds]:
    """The smallest seconds of each job; they take turns."""
    rounds = [[job() for job in jobs] for _ in range(runs)]
    return [Seconds(*map(min, zip(*times, strict=True))) for times in zip(*rounds, strict=True)]


def clock(job: Callable[[], object]) -> Seconds:
    began, cpu = time.perf_counter(), time.process_time()
    job()
    return Seconds(time.perf_counter() - began, time.process_time() - cpu)


def show_rate(name: str, count: int, seconds: Seconds, unit: str, goal: float | None = None) -> None:
    show(name, count / seconds.wall, f"{unit}/s", goal)
    show(f"{name}_per_cpu", count / seconds.cpu, f"{unit}/s")


def make_plan(folder: Path, size: int = SIDE, **options):
    from sd_scripts.data.plan import plan_data
    from sd_scripts.options.dataset import DatasetOptions

    cfg = DatasetOptions(train_data_dir=str(folder), resolution=str(size), enable_bucket=False, **options)
    return plan_data(cfg, divisor=8, seed=1)


def make_dots(folder: Path, count: int) -> None:
    """Pictures of a few bytes, all different, with captions: what a cache of many entries belongs to."""
    from PIL import Image

    (folder / "1_x").mkdir(parents=True)
    for at in range(count):
        Image.new("RGB", (8, 8), (at % 256, at // 256 % 256, at // 65536)).save(folder / "1_x" / f"{at:06}.bmp")
        (folder / "1_x" / f"{at:06}.txt").write_text(CAPTION.format(at), encoding="utf-8")


def make_photos(folder: Path, count: int) -> None:
    """JPEGs of 0.4 to 2 megapixels, as smooth as photographs."""
    import numpy as np
    from PIL import Image

    (folder / "1_x").mkdir(parents=True)
    draws = np.random.default_rng(0)
    for at in range(count):
        width, height = (int(draws.integers(640, 1600)) for _ in range(2))
        coarse = Image.fromarray(draws.integers(0, 256, (height // 16, width // 16, 3), np.uint8))
        coarse.resize((width, height), Image.Resampling.BICUBIC).save(folder / "1_x" / f"{at:04}.jpg", quality=90)


def latent_spec():
    from sd_scripts.models.base import LatentSpec

    return LatentSpec(channels=4, downscale=8, scale=0.18215)


def build(plan, encode, **options):
    from sd_scripts.data.cache import LatentCache

    given = {"latent": latent_spec(), "fingerprint": "bench", "to_disk": True, "batch_size": 4, **options}
    return LatentCache.build(plan, encode, **given)


def free_encoder(pixels, seeds):
    """Takes every eighth pixel for the latents."""
    return pixels[:, [0, 1, 2, 0], ::8, ::8].float() / 255


def bench_full_cache(folder: Path, entries: int, runs: int) -> None:
    """Checking and reading a cache that has everything."""
    import torch

    from sd_scripts.data.cache_store import store_folder
    from sd_scripts.data.loader import Loader
    from sd_scripts.models.tokenizers.clip import ClipTokenizer

    make_dots(folder, entries)
    plan = make_plan(folder, train_batch_size=8)
    some = torch.randn(64, 4, 64, 64)
    build(plan, lambda pixels, seeds: some[: len(pixels)], batch_size=64)
    seals = list(store_folder(plan.subsets[0].folder).glob("*.seal"))

    def check_unsealed() -> Seconds:
        for seal in seals:
            seal.unlink(missing_ok=True)
        return clock(lambda: build(plan, free_encoder))

    plain_files = write_plain(plan, folder, min(entries, 2000))
    sealed, unsealed, plain = best(
        runs,
        lambda: clock(lambda: build(plan, free_encoder)),
        check_unsealed,
        lambda: clock(lambda: read_plain(plain_files)).times(entries / len(plain_files)),
    )
    show_rate("cache.check", entries, sealed, "entries", 20_000)
    show_rate("cache.check_with_checksums", entries, unsealed, "entries", 20_000)
    show("cache.check_ratio", plain.cpu / sealed.cpu, "x an .npz a picture")

    memory, disk = build(plan, free_encoder, to_disk=False), build(plan, free_encoder)
    tokenizer = ClipTokenizer()

    def read(cache, tokenizer) -> Seconds:
        """The second epoch: in the first one captions are tokenised."""
        loader = Loader(plan, tokenizer, cache=cache, seed=1)
        try:
            for _ in loader.epoch(0):
                pass
            return clock(lambda: [None for _ in loader.epoch(1)])
        finally:
            loader.close()

    def each(cache) -> Seconds:
        return clock(lambda: [cache.latents(number, False) for number in range(entries)])

    in_memory, on_disk, bare, bare_memory, plain, tokens = best(
        runs,
        lambda: read(memory, tokenizer),
        lambda: read(disk, tokenizer),
        lambda: each(disk),
        lambda: each(memory),
        lambda: clock(lambda: read_plain(plain_files)).times(entries / len(plain_files)),
        lambda: clock(lambda: [tokenizer.rows(CAPTION.format(at)) for at in range(2000)]).times(entries / 2000),
    )
    show_rate("cache.loader_from_memory", entries, in_memory, "samples", 8_000)
    show_rate("cache.loader_from_disk", entries, on_disk, "samples", 6_000)
    show_rate("cache.read_from_memory", entries, bare_memory, "entries")
    show_rate("cache.read_from_disk", entries, bare, "entries")
    show("cache.read_ratio", plain.cpu / bare.cpu, "x an .npz a picture")
    show_rate("cache.tokenizer_alone", entries, tokens, "captions")


def write_plain(plan, folder: Path, count: int) -> list[Path]:
    import numpy as np

    (folder / "plain").mkdir()
    values = np.random.default_rng(0).standard_normal((4, 64, 64)).astype(np.float32)
    files = []
    for at in range(count):
        files.append(folder / "plain" / f"{at}.npz")
        np.savez(files[-1], latents=values, original_size=np.array([8, 8]), crop_ltrb=np.zeros(4))
    return files


def read_plain(files: list[Path]) -> None:
    import numpy as np

    for path in files:
        with np.load(path) as archive:
            _ = archive["latents"], archive["original_size"], archive["crop_ltrb"]


def bench_filling(folder: Path, pictures: int, runs: int) -> None:
    """Filling with a free encoder, and with one that keeps a device busy."""
    import torch

    from sd_scripts.data.cache_store import store_folder

    make_photos(folder, pictures)
    plan = make_plan(folder)

    def fill(encode, batch_size: int) -> Seconds:
        shutil.rmtree(store_folder(plan.subsets[0].folder), ignore_errors=True)
        return clock(lambda: build(plan, encode, batch_size=batch_size))

    ours, plain = best(runs, lambda: fill(free_encoder, 4), lambda: clock(lambda: fill_plainly(plan)))
    show_rate("cache.fill_free_encoder", pictures, ours, "latents", 150)
    show("cache.fill_free_encoder_ratio", plain.wall / ours.wall, "x one loop of Pillow, cv2 and .npz")
    show("cache.fill_free_encoder_ratio_per_cpu", plain.cpu / ours.cpu, "x one loop of Pillow, cv2 and .npz")
    for batch_size in (1, 4, 16):
        busy = busy_encoder(0.02)
        pixels = torch.zeros(batch_size, 3, SIDE, SIDE, dtype=torch.uint8)
        whole, rest = divmod(pictures, batch_size)

        def bare(busy=busy, pixels=pixels, whole=whole, rest=rest) -> Seconds:
            sizes = [len(pixels)] * whole + [rest] * bool(rest)
            return clock(lambda: [busy(pixels[:size], []) for size in sizes])

        ours, alone = best(runs, lambda busy=busy, size=batch_size: fill(busy, size), bare)
        show(f"cache.fill_share_of_bare_rate_at_batch_{batch_size}", alone.wall / ours.wall, "of 1", 0.95)


def busy_encoder(seconds: float):
    """An encoder that needs so many seconds a picture without the CPU, as on a device that works by itself."""

    def encode(pixels, seeds):
        time.sleep(seconds * len(pixels))
        return free_encoder(pixels, seeds)

    return encode


def fill_plainly(plan) -> None:
    """One after the other, as a first program would do it."""
    import cv2
    import numpy as np
    import torch
    from PIL import Image

    with tempfile.TemporaryDirectory() as target:
        for at, sample in enumerate(plan.samples):
            rgb = np.asarray(Image.open(sample.path).convert("RGB"))
            resized = cv2.resize(rgb, sample.fit.resized, interpolation=cv2.INTER_AREA)
            x, y = sample.fit.crop
            cut = resized[y : y + SIDE, x : x + SIDE]
            pixels = torch.from_numpy(np.ascontiguousarray(cut.transpose(2, 0, 1)))[None]
            np.savez(Path(target) / f"{at}.npz", latents=free_encoder(pixels, [])[0].numpy())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--pictures", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        bench_full_cache(Path(folder) / "many", args.entries, args.runs)
        bench_filling(Path(folder) / "photos", args.pictures, args.runs)


if __name__ == "__main__":
    main()
