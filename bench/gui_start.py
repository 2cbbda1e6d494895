"""How soon the GUI answers, how much memory it takes, and how large its page is.

    python bench/gui_start.py [--runs 3]

The baseline, measured in the same run, is `import gradio` in a fresh process. The best of the runs counts.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent


def import_seconds() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import gradio"], check=True, cwd=ROOT)
    return time.perf_counter() - began


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def start_gui(folder: str) -> tuple[float, float, float]:
    """Seconds to the first answer, MiB of memory after it, kB of the page's configuration."""
    port = free_port()
    began = time.perf_counter()
    command = [sys.executable, "kohya_gui.py", "--headless", "--server_port", str(port), "--runs_dir", folder]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
                    answer.read()
                break
            except (urllib.error.URLError, ConnectionError):
                if time.perf_counter() - began > 120 or process.poll() is not None:
                    raise
                time.sleep(0.02)
        seconds = time.perf_counter() - began
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/config", timeout=30) as answer:
            size = len(answer.read())
        return seconds, psutil.Process(process.pid).memory_info().rss / 2**20, size / 1000
    finally:
        process.terminate()
        process.wait()


def show(name: str, value: float, unit: str, goal: float) -> None:
    print(
        json.dumps({"name": name, "value": round(value, 2), "unit": unit, "goal": goal, "better": "lower"}), flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    baseline = min(import_seconds() for _ in range(runs))
    with tempfile.TemporaryDirectory() as folder:
        starts = [start_gui(folder) for _ in range(runs)]
    show("first answer beyond importing gradio", min(start[0] for start in starts) - baseline, "s", 2.0)
    show("memory of the server", max(start[1] for start in starts), "MiB", 300)
    show("configuration of the page", max(start[2] for start in starts), "kB", 1000)


if __name__ == "__main__":
    main()
