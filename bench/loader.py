"""The whole loader against a plain loop, and cached latents: samples a second.

Run `python bench/loader.py`; prints JSON lines. The plain loop decodes, resizes, cuts and makes floats in one process with
OpenCV; the loader also flips, makes captions and tokenises, in two processes. Both measured by turns.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import psutil
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sd_scripts.data.cache import LatentCache
from sd_scripts.data.loader import Loader
from sd_scripts.data.plan import DataPlan, Sample, plan_data
from sd_scripts.data.resizing import load_cv2
from sd_scripts.models.base import LatentSpec, Tokenizer
from sd_scripts.models.tokenizers.clip import END, ClipTokenizer
from sd_scripts.options.dataset import DatasetOptions

PICTURES = 64
ROUNDS = 5
EPOCHS_OF_CACHE = 30
LATENT = LatentSpec(channels=4, downscale=8, scale=0.18215)


def tell(name: str, value: float, unit: str, goal: float | None = None) -> None:
    print(
        json.dumps({"name": name, "value": round(value, 3), "unit": unit, "goal": goal, "better": "higher"}), flush=True
    )


def write_pictures(folder: Path) -> None:
    """JPEGs of 300 to 1200 px with captions."""
    draws = np.random.default_rng(0)
    folder.mkdir()
    for number in range(PICTURES):
        width, height = draws.integers(300, 1201, 2).tolist()
        coarse = draws.integers(0, 256, (height // 12 + 2, width // 12 + 2, 3), np.uint8)
        image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        pixels = np.asarray(image).astype(np.float32) + draws.normal(0, 3, (height, width, 1))
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / f"{number:03}.jpg", quality=92)
        caption = f"1girl, solo, picture {number}, red hair, smile, outdoors, detailed background"
        (folder / f"{number:03}.txt").write_text(caption, encoding="utf-8")


def plain(plan: DataPlan, cv2: ModuleType) -> float:
    """Seconds of the plain loop over all pictures."""
    begin = time.perf_counter()
    for sample in plan.samples:
        made = plain_picture(sample, cv2)
    assert made.shape[0] == 3
    return time.perf_counter() - begin


def plain_picture(sample: Sample, cv2: ModuleType) -> torch.Tensor:
    pixels = cv2.cvtColor(cv2.imread(str(sample.path)), cv2.COLOR_BGR2RGB)
    shrinks = sample.fit.resized[0] <= pixels.shape[1] and sample.fit.resized[1] <= pixels.shape[0]
    interpolation = cv2.INTER_AREA if shrinks else cv2.INTER_LANCZOS4
    pixels = cv2.resize(pixels, sample.fit.resized, interpolation=interpolation)
    (x, y), (width, height) = sample.fit.crop, sample.bucket
    cut = np.ascontiguousarray(pixels[y : y + height, x : x + width])
    return torch.from_numpy(cut).permute(2, 0, 1).float().div_(127.5).sub_(1).contiguous()


def loaded(loader: Loader, epoch: int) -> float:
    """Seconds of an epoch."""
    begin = time.perf_counter()
    count = sum(len(batch) for batch in loader.epoch(epoch))
    assert count == PICTURES
    return time.perf_counter() - begin


def loaded_cpu(loader: Loader, epoch: int) -> float:
    """CPU seconds of an epoch that this process loads alone."""
    begin = time.process_time()
    loaded(loader, epoch)
    return time.process_time() - begin


def cpu_seconds() -> float:
    """Of this process and its loader processes so far."""
    processes = [psutil.Process(), *(psutil.Process(child.pid) for child in multiprocessing.active_children())]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def measure_pictures(plan: DataPlan, tokenizer: Tokenizer) -> None:
    """The loader with two processes against the plain loop, by turns; the medians."""
    cv2 = load_cv2()
    loader = Loader(plan, tokenizer, seed=1, workers=2, total_steps=1000)
    loaded(loader, 0)  # processes start, files get into the page cache
    plain(plan, cv2)
    times, cpu = [], [0.0, 0.0]
    for number in range(ROUNDS):
        begin = cpu_seconds()
        slow = plain(plan, cv2)
        middle = cpu_seconds()
        times.append((slow, loaded(loader, number + 1)))
        cpu = [cpu[0] + middle - begin, cpu[1] + cpu_seconds() - middle]
    loader.close()
    slow, fast = (float(np.median(column)) for column in zip(*times, strict=True))
    tell("plain loop", PICTURES / slow, "images/s")
    tell("loader, 2 processes", PICTURES / fast, "images/s")
    tell("loader to plain loop", slow / fast, "x", goal=2.2)
    # What the ratio would be were two cores free all the time: other work on the machine hits two processes harder.
    tell("loader to plain loop by CPU time, on two cores", 2 * cpu[0] / cpu[1], "x", goal=2.2)


def measure_cached(plan: DataPlan, tokenizer: Tokenizer, *, to_disk: bool, goal: float) -> None:
    def encode(pixels: torch.Tensor, seeds: list[int]) -> torch.Tensor:
        pooled = torch.nn.functional.avg_pool2d(pixels.float(), 8) / 255
        return torch.cat([pooled, pooled[:, :1]], 1)

    cache = LatentCache.build(plan, encode, latent=LATENT, fingerprint="bench", to_disk=to_disk, batch_size=4)
    loader = Loader(plan, tokenizer, cache=cache, seed=1, total_steps=1000)
    loaded(loader, 0)
    epochs = range(EPOCHS_OF_CACHE)
    seconds = float(np.median([loaded(loader, number) for number in epochs]))
    cpu = float(np.median([loaded_cpu(loader, number) for number in epochs]))
    name = f"latents cached {'on disk' if to_disk else 'in memory'}, {loader.workers} processes"
    tell(name, PICTURES / seconds, "samples/s", goal)
    tell(f"{name}, by CPU time", PICTURES / cpu, "samples/CPU s", goal)


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(Path(folder) / "1_x")
        options = {"train_data_dir": folder, "resolution": "512", "train_batch_size": 4, "flip_aug": True}
        tokenizer = ClipTokenizer(75, END)
        measure_pictures(plan_data(DatasetOptions(**options, cache_latents=False), divisor=64, seed=1), tokenizer)
        plan = plan_data(DatasetOptions(**options), divisor=64, seed=1)
        measure_cached(plan, tokenizer, to_disk=False, goal=8000)
        measure_cached(plan, tokenizer, to_disk=True, goal=6000)


if __name__ == "__main__":
    main()
