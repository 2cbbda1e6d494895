"""How soon the trainer answers: `--help`, a wrong argument, and wrong input found by the plan.

    python bench/cli_start.py [--runs 5]

The baseline, measured in the same run, is importing the schema in a fresh process. The best of the runs counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def measure(arguments: list[str], runs: int) -> tuple[float, float]:
    """Smallest CPU and wall seconds of a process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    cpu, wall = [], []
    for _ in range(runs):
        before, began = os.times(), time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, check=False)
        after = os.times()
        wall.append(time.perf_counter() - began)
        cpu.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(cpu), min(wall)


def show(name: str, value: float, goal: float) -> None:
    print(
        json.dumps({"name": name, "value": round(value, 3), "unit": "s", "goal": goal, "better": "lower"}), flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    schema, _ = measure(["-c", "import sd_scripts.options.cli, sd_scripts.options.recipes"], runs)
    script = ["sd_scripts/train_network.py"]
    show("help: CPU beyond importing the schema", measure([*script, "--help"], runs)[0] - schema, 1.0)
    show("wrong argument: CPU beyond importing the schema", measure([*script, "--lr", "1"], runs)[0] - schema, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        settings = ["--pretrained_model_name_or_path", "missing.safetensors", "--output_dir", folder]
        wall = measure([*script, *settings, "--train_data_dir", folder], runs)[1]
    show("missing model and empty folder: wall from start to exit", wall, 2.0)


if __name__ == "__main__":
    main()
