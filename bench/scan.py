"""How fast picture folders are looked through: the scan, a second start, and a whole plan; how much memory a plan takes.

    python bench/scan.py [--pictures 20000] [--planned 100000] [--runs 3]

Makes a folder of small pictures (JPEG, PNG and WEBP of 64 to 88 px) with captions in a temporary folder. The baseline is
what one writes without thinking: a sorted listing, Pillow's `Image.open` for the size and `read_text` for the caption, one
picture after the other. All runs are in this process, the programs alternating, with a warm page cache; the best counts.

The second start checks the size and time of every file. The trusted one is that with `cache_info`, which does not while no
name in the folder changed.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SUFFIXES = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp"}


def make_folder(parent: Path, count: int) -> Path:
    """A training folder with so many pictures and captions, as if it had been there for a while."""
    import numpy as np
    from PIL import Image

    draws = np.random.default_rng(0)
    files = []
    for number in range(32):
        blocks = draws.integers(0, 256, (8, 8, 3), np.uint8)
        picture = Image.fromarray(blocks.repeat(8 + number % 4, 0).repeat(8 + number % 3, 1))
        for form, suffix in SUFFIXES.items():
            buffer = io.BytesIO()
            picture.save(buffer, form)
            files.append((buffer.getvalue(), suffix))
    folder = parent / "1_things"
    folder.mkdir(parents=True)
    past = time.time() - 1000
    for number in range(count):
        data, suffix = files[number % len(files)]
        for path, content in (
            (folder / f"picture_{number:06d}{suffix}", data),
            (folder / f"picture_{number:06d}.txt", f"a thing, red, blue, number {number}".encode()),
        ):
            path.write_bytes(content)
            os.utime(path, (past, past))
    os.utime(folder, (past, past))
    return folder


def plain_scan(folder: Path) -> list[tuple[Path, tuple[int, int], str]]:
    """The baseline."""
    from PIL import Image

    found = []
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in SUFFIXES.values():
            with Image.open(path) as image:
                size = image.size
            found.append((path, size, path.with_suffix(".txt").read_text(encoding="utf-8")))
    return found


def scan(folder: Path, *, trusts_index: bool = False) -> int:
    """Everything that the plan asks of a folder: listing, sizes, captions; kept in the index."""
    from sd_scripts.data.scan import FolderScan

    looked = FolderScan(folder, trusts_index=trusts_index)
    looked.look(0)
    captions = [f"{picture.name.rpartition('.')[0]}.txt" for picture in looked.listing.pictures]
    lines = [looked.lines(name) for name in captions if name in looked.listing.others]
    looked.close()
    return min(len(lines), len(looked.headers))


def plan(parent: Path) -> int:
    """A whole plan; the number of its pictures."""
    return len(planned(parent).samples)


def planned(parent: Path):
    from sd_scripts.data.plan import plan_data
    from sd_scripts.options.dataset import DatasetOptions

    options = DatasetOptions(train_data_dir=str(parent), resolution="64", min_bucket_reso=32, bucket_reso_steps=8)
    made = plan_data(options, divisor=8, seed=0)
    made.epoch_batches(0)
    return made


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds. Garbage collection waits, for all programs alike."""
    gc.collect()
    gc.disable()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    result = time.perf_counter() - wall, time.process_time() - cpu
    gc.enable()
    return result


def measure(parent: Path, folder: Path, runs: int, forget: Callable[[], None]) -> dict[str, tuple[float, float]]:
    """Best wall and CPU seconds of each program."""
    programs = {
        "plain": lambda: plain_scan(folder),
        "first": lambda: scan(folder),
        "second": lambda: scan(folder),
        "trusted": lambda: scan(folder, trusts_index=True),
        "plan": lambda: plan(parent),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    plain_scan(folder)  # warms the page cache
    for _ in range(runs):
        for name, program in programs.items():
            if name in ("first", "plan"):
                forget()
            found[name].append(timed(program))
    return {name: tuple(map(min, zip(*times, strict=True))) for name, times in found.items()}


def bytes_a_picture(parent: Path) -> float:
    """Memory that a plan holds, for each picture."""
    planned(parent)
    tracemalloc.start()
    made = planned(parent)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used / len(made.samples)


def show(name: str, value: float, unit: str, goal: float | None = None, better: str = "higher") -> None:
    """One result as a JSON line."""
    print(json.dumps({"name": f"scan.{name}", "value": round(value, 3), "unit": unit, "goal": goal, "better": better}))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--planned", type=int, default=100_000, help="pictures of the large plan; 0 leaves it out")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()

    from sd_scripts.data import collect, scan_index  # noqa: F401 - imported before the clock starts

    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        indexes = place / "cache"
        scan_index.cache_file = lambda: indexes / "hashes.json"

        def forget() -> None:
            for path in (indexes / "pictures").glob("*"):
                path.unlink()

        folder = make_folder(place / "small", args.pictures)
        best = measure(place / "small", folder, args.runs, forget)
        for kind, unit in enumerate(("wall", "cpu")):
            seconds = {name: times[kind] for name, times in best.items()}
            show(f"{unit}.plain", args.pictures / seconds["plain"], "pictures/s")
            show(f"{unit}.first", args.pictures / seconds["first"], "pictures/s", 15_000)
            show(f"{unit}.first_to_plain", seconds["plain"] / seconds["first"], "x")
            show(f"{unit}.second_to_first", seconds["first"] / seconds["second"], "x")
            show(f"{unit}.second_to_plain", seconds["plain"] / seconds["second"], "x", 10)
            show(f"{unit}.trusted_to_first", seconds["first"] / seconds["trusted"], "x", 10)
            show(f"{unit}.whole_plan", args.pictures / seconds["plan"], "pictures/s", 15_000)
        show("memory", bytes_a_picture(place / "small"), "bytes/picture", 2000, "lower")
        if args.planned:
            make_folder(place / "large", args.planned)
            wall, cpu = timed(lambda: plan(place / "large"))
            show("wall.large_plan", wall, "s", 20, "lower")
            show("cpu.large_plan", cpu, "s", 20, "lower")
            each = best["plan"][1] / args.pictures
            show("cpu.large_plan_each", cpu / args.planned / each, "x of the small plan", 1.3, "lower")


if __name__ == "__main__":
    main()
