"""Erase or change a concept of an SD 1.x or 2.x model by prompts.

accelerate launch sd_scripts/train_leco.py --config_file settings.toml
python -m sd_scripts.train_leco --help
"""

import sys
from pathlib import Path

if __package__ in (None, ""):  # started by its path: make the package importable, and only from where it lies
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from sd_scripts.entry import main

if __name__ == "__main__":
    sys.exit(main("train_leco"))
