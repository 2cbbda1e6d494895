"""The command line of the server: `kohya_gui` or `python kohya_gui.py`."""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from kohya_gui.paths import DEFAULT_RUNS, PROJECT_ROOT

FIRST_PORT = 7860


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the page until Ctrl-C. Returns the exit code."""
    given = make_parser().parse_args(arguments)
    logging.basicConfig(level=logging.DEBUG if given.debug else logging.WARNING)
    try:
        login = login_of(given)
    except ValueError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    return serve(given, login)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kohya_gui", description="The browser interface for training image models.")
    server = parser.add_argument_group("Server")
    server.add_argument(
        "--listen",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to serve on (default: 127.0.0.1, this machine only; 0.0.0.0: the network)",
    )
    server.add_argument(
        "--server_port", type=int, default=0, metavar="N", help=f"port (default: {FIRST_PORT} or the next free one)"
    )
    server.add_argument("--inbrowser", action="store_true", help="open the page in a browser")
    server.add_argument("--share", action="store_true", help="make a public link; asks for a login")
    server.add_argument("--do_not_share", action="store_true", help="no public link, whatever else is said")
    server.add_argument("--username", default="", help="name for the login")
    server.add_argument("--password", default="", help="password for the login")
    server.add_argument("--root_path", default="", metavar="PATH", help="prefix of the page's address behind a proxy")
    server.add_argument("--headless", action="store_true", help="accepted; the page never opens windows on the server")
    places = parser.add_argument_group("Places")
    places.add_argument(
        "--runs_dir", type=Path, default=DEFAULT_RUNS, metavar="FOLDER", help="folder for the runs (default: runs)"
    )
    places.add_argument(
        "--config",
        type=Path,
        default=None,
        metavar="FILE",
        help="defaults of the fields, as in config_example.toml, or settings that fill a form (default: config.toml)",
    )
    other = parser.add_argument_group("Other")
    other.add_argument("--debug", action="store_true", help="log more")
    other.add_argument("--language", default="", help="accepted; the page is in English")
    other.add_argument("--do_not_use_shell", action="store_true", help="always so: no shell is used")
    for name in ("noverify", "use-ipex", "use-rocm"):
        other.add_argument(f"--{name}", action="store_true", help="for gui.sh and gui.bat, while they install")
    other.add_argument("--requirements", default="", help="for gui.sh and gui.bat, while they install")
    return parser


def login_of(given: argparse.Namespace) -> tuple[str, str] | None:
    """The login that the server asks for, None for none. A public link without one gets a password made up.

    Raises:
        ValueError: only one of name and password is given.
    """
    if bool(given.username) != bool(given.password):
        raise ValueError("--username and --password belong together; give both or none")
    if given.username:
        return given.username, given.password
    if given.share and not given.do_not_share:
        return "kohya", secrets.token_urlsafe(12)
    return None


def serve(given: argparse.Namespace, login: tuple[str, str] | None) -> int:
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read while gradio is imported
    os.environ["GRADIO_RUN_HISTORY"] = "False"  # by environment, as older versions of gradio know no such argument
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    runs_dir = given.runs_dir.absolute()
    config = given.config.absolute() if given.config else None
    os.chdir(PROJECT_ROOT)  # relative paths in the form mean the same here and in the trainer
    from kohya_gui.app import look, make_page
    from kohya_gui.settings import read_start
    from sd_scripts.errors import UserError

    try:
        start = read_start(config)
        page, manager = make_page(runs_dir, start=start)
    except UserError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    share = given.share and not given.do_not_share
    try:
        _, address, public = page.launch(
            server_name=given.listen,
            server_port=given.server_port or None,
            share=share,
            auth=login,
            root_path=given.root_path or None,
            inbrowser=given.inbrowser,
            allowed_paths=list(start.allowed_paths),
            prevent_thread_lock=True,
            quiet=True,
            show_error=True,
            enable_monitoring=False,
            ssr_mode=False,
            pwa=False,
            mcp_server=False,
            footer_links=[],
            **look(),
        )
    except OSError as failure:
        port = given.server_port or FIRST_PORT
        print(f"error: port {port} cannot be used ({failure}); choose another with --server_port", file=sys.stderr)
        return 1
    manager.watch()
    print(f"The page is at {address}", flush=True)
    if public:
        print(f"and for everybody at {public}", flush=True)
    if login and not given.username:
        print(f"Login: {login[0]}   Password: {login[1]}", flush=True)
    _wait_for_the_end()
    print("Bye. Runs that were started go on.", flush=True)
    manager.close()
    page.close(verbose=False)
    return 0


def _wait_for_the_end() -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    while not ended.wait(timeout=1.0):  # with a timeout, as Windows delivers Ctrl-C only between waits
        pass
