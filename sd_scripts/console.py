"""Where a trainer's messages go besides the run folder's log: the console, or a file instead of it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sd_scripts.errors import ConfigError
from sd_scripts.options.output import Logging
from sd_scripts.training.progress import BarHandler, NowAndThen


@contextmanager
def console(options: Logging, is_first: bool = True) -> Iterator[None]:
    """Messages of the chosen level go where the options say while this is open.

    Where a caller (a notebook, a test) has set up logging itself, that is left as it is.

    Args:
        is_first: of the processes of a run; the others tell of errors only, on the console.
    """
    logging.getLogger("sd_scripts").setLevel(options.console_log_level if is_first else "ERROR")
    root = logging.getLogger()
    if root.handlers and not options.console_log_file:
        yield
        return
    handler = _handler(options, is_first)
    form = "%(message)s" if options.console_log_simple else "%(asctime)s %(levelname)s %(message)s"
    handler.setFormatter(logging.Formatter(form, datefmt="%H:%M:%S"))
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def _handler(options: Logging, is_first: bool) -> logging.Handler:
    if options.console_log_file is None or not is_first:
        stream = sys.stdout if options.console_log_simple else sys.stderr
        return BarHandler(stream) if stream.isatty() else _for_files(logging.StreamHandler(stream))
    try:
        return _for_files(logging.FileHandler(options.console_log_file, mode="w", encoding="utf-8"))
    except OSError as failure:
        reason = f"cannot be written ({failure.strerror or failure}); name a file in a folder that exists"
        raise ConfigError("console_log_file", options.console_log_file, reason) from failure


def _for_files(handler: logging.Handler) -> logging.Handler:
    handler.addFilter(NowAndThen())
    return handler
