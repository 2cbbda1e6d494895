"""Small things that many tests need: pictures with captions, tiny models, and a trainer in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: tests start trainers beside themselves
os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # bit for bit the same, however busy the cores; files of tests run side by side
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def tiny_sd1(tmp_path_factory) -> Path:
    """A tiny SD 1.x model as one file."""
    from test.tiny import tiny_model

    return tiny_model("sd1", tmp_path_factory.mktemp("models") / "tiny.safetensors")


@pytest.fixture
def pictures(tmp_path) -> Path:
    """A training folder: 3_thing with five pictures of two shapes, four of them with captions."""
    from PIL import Image

    folder = tmp_path / "pictures" / "3_thing"
    folder.mkdir(parents=True)
    for number in range(5):
        size = (96, 64) if number % 2 else (64, 64)
        Image.new("RGB", size, (40 * number, 90, 255 - 50 * number)).save(folder / f"p{number}.png")
        if number:
            (folder / f"p{number}.txt").write_text(f"a thing, number {number}", encoding="utf-8")
    return folder.parent


def trainer_environment(threads: int = 1) -> dict[str, str]:
    """Environment of a trainer's process: our package, and so many threads that tests beside it still run."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}


def run_trainer(*arguments: str, script: str = "train_network", launch: bool = False, timeout: float = 240):
    """Run a trainer in a process of its own, plainly or as the GUI does through accelerate."""
    start = ["-m", f"sd_scripts.{script}"]
    if launch:
        start = [
            "-m",
            "accelerate.commands.launch",
            "--quiet",
            "--num_cpu_threads_per_process",
            "1",
            f"sd_scripts/{script}.py",
        ]
    return subprocess.run(
        [sys.executable, *start, *map(str, arguments)],
        capture_output=True, text=True, encoding="utf-8", env=trainer_environment(), cwd=ROOT, timeout=timeout,
    )  # fmt: skip


def watch_memory(process: psutil.Popen) -> list[int]:
    """Start watching a process and its children; returns the list to which their memory in bytes is added."""
    seen = [0]

    def watch() -> None:
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            try:
                family = [process, *process.children(recursive=True)]
                seen.append(sum(member.memory_info().rss for member in family))
            except psutil.NoSuchProcess:
                break
            time.sleep(0.2)

    threading.Thread(target=watch, daemon=True).start()
    return seen
