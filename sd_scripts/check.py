"""Print the plan of a run without starting it.

python -m sd_scripts.check --config_file settings.toml [--trainer train_network] [--json]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sd_scripts.entry import main as run_trainer
from sd_scripts.options.recipes import RECIPES


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 without errors in the plan, 1 with; everything but `--trainer` goes to the trainer's own command line."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--trainer", choices=list(RECIPES), default="train_network")
    known, rest = parser.parse_known_args(arguments)
    return run_trainer(known.trainer, [*rest, "--check"])


if __name__ == "__main__":
    sys.exit(main())
