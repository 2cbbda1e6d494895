"""Run benchmarks: `python bench/run.py [name …]`, all of them without a name.

Each is a script beside this one that prints JSON lines {name, value, unit, goal, better}; better: "lower", "higher".
This script prints the same lines with "ok", and ends with code 1 if a goal was missed or a script failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def names() -> list[str]:
    """Benchmarks there are."""
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem != "run")


def is_reached(line: dict) -> bool | None:
    """Whether a result reaches its goal; None if it has none."""
    if line.get("goal") is None:
        return None
    return line["value"] <= line["goal"] if line["better"] == "lower" else line["value"] >= line["goal"]


def run(name: str) -> bool:
    """Run one script and print its lines; True if it ran and reached its goals."""
    command = [sys.executable, str(HERE / f"{name}.py")]
    done = subprocess.run(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=False)
    reached = done.returncode == 0
    for text in done.stdout.splitlines():
        line = json.loads(text)
        line["ok"] = is_reached(line)
        reached = reached and line["ok"] is not False
        print(json.dumps(line), flush=True)
    return reached


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*", help=f"any of {', '.join(names())}")
    chosen = parser.parse_args().name or names()
    if unknown := [name for name in chosen if name not in names()]:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(names())}")
    results = [run(name) for name in chosen]  # all of them, even after a failure
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
