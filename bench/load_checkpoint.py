"""Time and memory of loading a real-size SD 1.5 single file, ours against diffusers' `from_single_file`.

    python bench/load_checkpoint.py [--precision float16|float32] [--runs 3]

Makes a file of random float16 weights in a temporary folder (2 GB, removed afterwards). Each load runs in a process of
its own, the two programs alternating; libraries are imported before the clock starts, and the best of the runs counts.
Memory is the rise of the process' peak over what it had before loading; ours is also measured after every weight was
read once, because a memory-mapped file costs nothing before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

REAL = {
    "unet": {"cross_attention_dim": 768},
    "vae": {
        "block_out_channels": (128, 256, 512, 512),
        "layers_per_block": 2,
        "down_block_types": ("DownEncoderBlock2D",) * 4,
        "up_block_types": ("UpDecoderBlock2D",) * 4,
    },
    "text": {
        **{"vocab_size": 49408, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12},
        **{"num_attention_heads": 12, "projection_dim": 768},
    },
}


def make_model(folder: Path) -> Path:
    """Write the file, and beside it a diffusers folder without weights for `from_single_file(config=…)`."""
    import torch
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    from sd_scripts.models.sd import SDSettings, StableDiffusion1
    from sd_scripts.models.sd_files import write_all_but_weights

    with torch.device("meta"):
        networks = (
            UNet2DConditionModel(**REAL["unet"]),
            AutoencoderKL(**REAL["vae"]),
            CLIPTextModel(CLIPTextConfig(**REAL["text"])),
        )
    for network in networks:
        weights = {
            n: torch.empty(t.shape, dtype=torch.float16).normal_(0, 0.02) for n, t in network.state_dict().items()
        }
        network.load_state_dict(weights, assign=True)
    model = StableDiffusion1(*networks, SDSettings())
    (folder / "configs").mkdir()
    write_all_but_weights(folder / "configs", model)
    path = folder / "sd15.safetensors"
    model.save(path, None, {})
    return path


def load_ours(path: Path, precision: str) -> tuple:
    """Load with this program."""
    import torch

    from sd_scripts.models.detect import inspect
    from sd_scripts.models.registry import load_architecture

    options = SimpleNamespace(
        vae=None, v2=False, v_parameterization=False, clip_skip=None, max_token_length=None, no_half_vae=False
    )
    model = load_architecture(options, inspect(path), "cpu", getattr(torch, precision))
    return model.denoiser, model.vae, model.text_encoders[0]


def load_diffusers(path: Path, precision: str) -> tuple:
    """Load with diffusers."""
    import torch
    from diffusers import StableDiffusionPipeline

    pipeline = StableDiffusionPipeline.from_single_file(
        str(path), config=str(path.parent / "configs"), torch_dtype=getattr(torch, precision), local_files_only=True
    )
    return pipeline.unet, pipeline.vae, pipeline.text_encoder


class PeakMemory:
    """Rise of the resident size while the block runs, sampled every 2 ms."""

    def __enter__(self) -> PeakMemory:
        import psutil

        self._process = psutil.Process()
        self._start = self._peak = self._process.memory_info().rss
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.002):
            self._peak = max(self._peak, self._process.memory_info().rss)

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.bytes = max(self._peak, self._process.memory_info().rss) - self._start


def measure(program: str, path: Path, precision: str) -> dict[str, float]:
    """Load once in this process."""
    import diffusers  # imported before the clock starts, with what both programs use of it
    import torch
    from diffusers import AutoencoderKL, StableDiffusionPipeline, UNet2DConditionModel  # noqa: F401
    from transformers import CLIPTextModel, CLIPTokenizer  # noqa: F401

    diffusers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    load = load_ours if program == "ours" else load_diffusers
    with PeakMemory() as memory:
        start, cpu_start = time.perf_counter(), time.process_time()
        networks = load(path, precision)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    with PeakMemory() as reading:
        total = sum(float(p.detach().float().sum()) for n in networks for p in n.parameters())
    weights = sum(p.nbytes for n in networks for p in n.parameters())
    used = max(memory.bytes, memory.bytes + reading.bytes if memory.bytes < weights / 2 else memory.bytes)
    return {
        "seconds": seconds,
        "cpu": cpu,
        "peak": memory.bytes,
        "peak_used": used,
        "weights": weights,
        "checksum": total,
    }


def in_process(program: str, path: Path, precision: str) -> dict[str, float]:
    """`measure` in a fresh process."""
    command = [sys.executable, __file__, "--measure", program, "--file", str(path), "--precision", precision]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", choices=("float16", "float32"), default="float16")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--measure", choices=("ours", "diffusers"), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.file, args.precision)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = make_model(Path(folder))
        results: dict[str, list[dict[str, float]]] = {"ours": [], "diffusers": []}
        for _ in range(args.runs):
            for program, found in results.items():
                found.append(in_process(program, path, args.precision))
    report(results, args.precision)


def report(results: dict[str, list[dict[str, float]]], precision: str) -> None:
    """Print the results as JSON lines."""
    ours, theirs = (min(results[program], key=lambda r: r["seconds"]) for program in ("ours", "diffusers"))
    if abs(ours["checksum"] - theirs["checksum"]) > 1e-3 * abs(theirs["checksum"]) + 1:
        raise SystemExit("the two programs loaded different weights")
    weights = ours["weights"]
    lines = [
        ("seconds", ours["seconds"], "s", None),
        ("seconds_diffusers", theirs["seconds"], "s", None),
        ("time_ratio", ours["seconds"] / theirs["seconds"], "x", 0.5),
        ("cpu_time_ratio", ours["cpu"] / theirs["cpu"], "x", None),  # steadier where other programs run
        ("peak_memory", ours["peak"] / weights, "x weights", 1.15),
        ("peak_memory_after_reading_all", ours["peak_used"] / weights, "x weights", 1.15),
        ("peak_memory_diffusers", theirs["peak"] / weights, "x weights", None),
    ]
    for name, value, unit, goal in lines:
        full_name = f"load_checkpoint.{precision}.{name}"
        print(json.dumps({"name": full_name, "value": round(value, 4), "unit": unit, "goal": goal, "better": "lower"}))


if __name__ == "__main__":
    main()
