"""Where things of the project lie. Everything relative in a form is meant from the project's root."""

from __future__ import annotations

from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parent.parent
TRAINERS = PROJECT_ROOT / "sd_scripts"
PRESETS = PROJECT_ROOT / "presets"
ASSETS = Path(__file__).resolve().parent / "assets"
CONFIG = PROJECT_ROOT / "config.toml"
DEFAULT_RUNS = PROJECT_ROOT / "runs"


def asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
