"""Decode, resize and crop of photographs: images per CPU second against Pillow's full decode and OpenCV's area resize.

Run `python bench/decode.py`; prints JSON lines. The photographs are drawn from noise with the spectrum of natural pictures
and saved as JPEG of quality 90: soft ones, as phones and most sites give them, have little in the finest octaves; detailed
ones are sharp to the last pixel. In those most of the time goes into the bits themselves, which every way must read.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sd_scripts.data.buckets import Fit, fit_exactly
from sd_scripts.data.images import read_scaled
from sd_scripts.data.resizing import cut, load_cv2

SIZES = ((1632, 1224), (2448, 1836), (3264, 2448), (4000, 3000))  # 2, 4.5, 8 and 12 megapixels
SIDES = (512, 1024)
ROUNDS = 3


def photograph(width: int, height: int, softness: float) -> Image.Image:
    """A picture with the amplitudes of natural ones: they fall with frequency, and steeply beyond 1 / softness."""
    draws = np.random.default_rng(width)
    fine = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    fine[0, 0] = 1
    falls = 1 / fine**1.2 / (1 + (fine * softness) ** 4)
    layers = []
    for _ in range(3):
        waves = draws.normal(size=fine.shape) + 1j * draws.normal(size=fine.shape)
        layer = np.fft.irfft2(waves * falls, (height, width))
        layers.append(layer / layer.std())
    channels = [128 + 45 * (layers[0] + weight * layer) for weight, layer in zip((0, 0.1, 0.2), layers, strict=True)]
    return Image.fromarray(np.clip(np.stack(channels, -1), 0, 255).astype(np.uint8))


def ours(path: Path, fit: Fit) -> np.ndarray:
    """The way of training: `data.pictures.load_picture` without its sample."""
    return cut(read_scaled(path, fit.resized).rgb, fit.crop, fit.bucket)


def baseline(path: Path, fit: Fit) -> np.ndarray:
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    cv2 = load_cv2()
    return cut(cv2.resize(pixels, fit.resized, interpolation=cv2.INTER_AREA), fit.crop, fit.bucket)


def lanczos(path: Path, fit: Fit) -> np.ndarray:
    with Image.open(path) as image:
        scaled = image.convert("RGB").resize(fit.resized, Image.Resampling.LANCZOS)
    return cut(np.asarray(scaled), fit.crop, fit.bucket)


def psnr(left: np.ndarray, right: np.ndarray) -> float:
    error = np.mean((left.astype(np.float64) - right) ** 2)
    return float(10 * np.log10(255**2 / error)) if error else 99.0


def cpu_seconds(way: Callable[[Path, Fit], np.ndarray], path: Path, fit: Fit) -> float:
    """The best of some rounds, of all threads."""
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        way(path, fit)
        times.append(time.process_time() - begin)
    return min(times)


def tell(name: str, value: float, unit: str, goal: float | None = None) -> None:
    print(
        json.dumps({"name": name, "value": round(value, 3), "unit": unit, "goal": goal, "better": "higher"}), flush=True
    )


def measure(kind: str, paths: dict[tuple[int, int], Path], side: int, goal: float | None) -> None:
    """All photographs of a kind to one size."""
    totals, worst = [0.0, 0.0], 99.0
    for size, path in paths.items():
        fit = fit_exactly(size, (side, side))
        seconds = cpu_seconds(baseline, path, fit), cpu_seconds(ours, path, fit)
        totals = [total + one for total, one in zip(totals, seconds, strict=True)]
        made = ours(path, fit)
        likeness = max(psnr(made, lanczos(path, fit)), psnr(made, baseline(path, fit)))
        worst = min(worst, likeness)
        tell(f"{kind}, {size[0]}x{size[1]} to {side}: ratio", seconds[0] / seconds[1], "x")
        tell(f"{kind}, {size[0]}x{size[1]} to {side}: PSNR", likeness, "dB")
    tell(f"{kind}, to {side}: baseline", len(paths) / totals[0], "images/CPU s")
    tell(f"{kind}, to {side}: ours", len(paths) / totals[1], "images/CPU s")
    tell(f"{kind}, to {side}: ours to baseline", totals[0] / totals[1], "x", goal)
    tell(f"{kind}, to {side}: worst PSNR", worst, "dB", goal=45)


def main() -> None:
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for kind, softness, goal in (("soft", 9, 3), ("detailed", 4, None)):
            paths = {size: Path(folder) / f"{kind}{size[0]}.jpg" for size in SIZES}
            for size, path in paths.items():
                photograph(*size, softness).save(path, quality=90)
                tell(f"{kind}, {size[0]}x{size[1]}", path.stat().st_size * 8 / (size[0] * size[1]), "bits/pixel")
            for side in SIDES:
                measure(kind, paths, side, goal)


if __name__ == "__main__":
    main()
