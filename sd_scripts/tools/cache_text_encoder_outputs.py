"""Encode the captions of a data set once, for all runs to come; or verify and purge such a cache.

accelerate launch sd_scripts/tools/cache_text_encoder_outputs.py --config_file settings.toml
python -m sd_scripts.tools.cache_text_encoder_outputs --help
"""

import sys
from pathlib import Path

if __package__ in (None, ""):  # started by its path: make the package importable, and only from where it lies
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from sd_scripts.tools.caching import main

if __name__ == "__main__":
    sys.exit(main("cache_text_encoder_outputs"))
