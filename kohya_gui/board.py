"""TensorBoard as a process of this server: on a free port of this machine, ended with the server or on request."""

from __future__ import annotations

import atexit
import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

from sd_scripts.errors import UserError

HOST = "127.0.0.1"  # it has no login, so it is never opened to the network


class Board:
    """At most one TensorBoard, for one folder."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._port = 0
        atexit.register(self.stop)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}/"

    def start(self, folder: Path) -> str:
        """Show a folder's logs.

        Returns:
            The address; it answers after a few seconds (`answers`).

        Raises:
            UserError: no such folder; TensorBoard is not installed or cannot be started.
        """
        if not folder.is_dir():
            raise UserError(f"{folder}: no logs yet; they come with the first steps, unless log_with is none")
        if importlib.util.find_spec("tensorboard") is None:
            raise UserError("TensorBoard is not installed; install it with: pip install tensorboard")
        if self.is_running and self._folder == folder:
            return self.url
        self.stop()
        self._port, self._folder = _free_port(), folder
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder)]
        command += ["--host", HOST, "--port", str(self._port), "--reload_interval", "5"]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        except OSError as failure:
            raise UserError(f"TensorBoard cannot be started: {failure}") from None
        return self.url

    def answers(self) -> bool:
        """Whether the page can be opened already."""
        try:
            with socket.create_connection((HOST, self._port), timeout=0.2):
                return self.is_running
        except OSError:
            return False

    def stop(self) -> None:
        """End it; harmless when it does not run."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=3)
        self._process = None


def log_folder(run_folder: Path, logging_dir: str | None) -> Path:
    """Where a run's TensorBoard logs are: the folder that its settings name, else the one inside the run folder."""
    return Path(logging_dir) if logging_dir else run_folder / "tensorboard"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]
