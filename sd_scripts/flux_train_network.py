"""Train a LoRA for FLUX.1 or Chroma.

accelerate launch sd_scripts/flux_train_network.py --config_file settings.toml
python -m sd_scripts.flux_train_network --help
"""

import sys
from pathlib import Path

if __package__ in (None, ""):  # started by its path: make the package importable, and only from where it lies
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from sd_scripts.entry import main

if __name__ == "__main__":
    sys.exit(main("flux_train_network"))
