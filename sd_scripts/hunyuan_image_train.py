"""Train all weights of a HunyuanImage-2.1 model.

accelerate launch sd_scripts/hunyuan_image_train.py --config_file settings.toml
python -m sd_scripts.hunyuan_image_train --help
"""

import sys
from pathlib import Path

if __package__ in (None, ""):  # started by its path: make the package importable, and only from where it lies
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from sd_scripts.entry import main

if __name__ == "__main__":
    sys.exit(main("hunyuan_image_train"))
