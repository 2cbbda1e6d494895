"""The runs of a folder: what state each is in, which comes next, how one is stopped.

Everything is read from disk, so a restarted server, a second page and the trainer's own command line see the same.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kohya_gui import launch
from kohya_gui.logs import last_message
from kohya_gui.processes import ProcessMark, exit_words, kill_trees
from sd_scripts.errors import UserError
from sd_scripts.options.launch import Launch
from sd_scripts.options.recipes import Recipe
from sd_scripts.options.schema import Options
from sd_scripts.options.toml_files import settings_toml
from sd_scripts.training.run_folder import RunFolder, Status, write_json

FINAL = frozenset({"done", "stopped", "failed"})
START_GRACE_S = 30.0  # so long a run may be without a process while it is being started
STOP_GRACE_S = 60.0  # so long a run may go on after "stop", to finish its step and write its weights
POLL_S = 1.0
IDLE_POLL_S = 15.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A run as found on disk, its state already judged by whether its process lives."""

    folder: RunFolder
    status: Status
    stop_asked: float | None = None  # when

    @property
    def name(self) -> str:
        return self.folder.path.name

    @property
    def is_over(self) -> bool:
        return self.status.state in FINAL

    @property
    def is_active(self) -> bool:
        return not self.is_over and self.status.state != "queued"


def read_run(path: Path) -> Run | None:
    """The run in a folder; None where the folder is none."""
    folder = RunFolder(path)
    status = folder.read_status()
    if status is None:
        return None
    stop = _read_json(path / "stop.json")
    run = Run(folder, status, stop["time"] if stop else None)
    if run.is_over or not has_vanished(run):
        return run
    status = folder.read_status() or status  # it may have said its last word between the two looks
    return replace(run, status=status if status.state in FINAL else verdict(replace(run, status=status), None))


def has_vanished(run: Run) -> bool:
    """Whether an unfinished run has no process left. A queued one has none yet."""
    if any(mark.process() for mark in marks(run)):
        return False
    if run.status.state == "queued":
        return run.folder.launch.exists() and _age(run.folder.launch) > START_GRACE_S
    return bool(marks(run)) or time.time() - run.status.updated > START_GRACE_S


def marks(run: Run) -> list[ProcessMark]:
    """The launcher's and the trainer's processes, as far as they are known."""
    launched = _read_json(run.folder.launch) or {}
    found = [(launched.get("pid"), launched.get("created")), (run.status.pid, run.status.created)]
    return [ProcessMark(pid, created) for pid, created in found if pid and created]


def verdict(run: Run, exit_code: int | None) -> Status:
    """The final status of a run whose process is gone without having written one."""
    if run.stop_asked is not None:
        return replace(run.status, state="stopped", message="Ended at your request before it could save.")
    said = last_message(run.folder.log)
    if run.status.pid is None and said:  # it never came as far as its own status, so its last line says why
        return replace(run.status, state="failed", message=said)
    code = exit_code if exit_code not in (0, 1) else None  # the launcher turns every failure of its child into 1
    return replace(run.status, state="failed", message=exit_words(code))


class RunManager:
    """Starts runs one after the other, watches them and stops them. One for a server, whatever the number of pages."""

    def __init__(self, root: Path, stop_grace_s: float = STOP_GRACE_S):
        self.root = root
        self.stop_grace_s = stop_grace_s
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._over: dict[str, Run] = {}
        self._secrets: dict[str, dict[str, str]] = {}  # of runs that wait; never written
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    def watch(self) -> None:
        """Begin supervising in a thread of its own."""
        self._thread = threading.Thread(target=self._supervise, name="runs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the supervising; runs go on."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def runs(self) -> list[Run]:
        """All runs, newest first."""
        found = [run for name in self._names() if (run := self._look(name)) is not None]
        return sorted(found, key=lambda run: run.name, reverse=True)

    def find(self, name: str) -> Run | None:
        """A run by the name of its folder; a name with path parts in it is none."""
        return self._look(name) if name in self._names() else None

    def _look(self, name: str) -> Run | None:
        if name in self._over:
            return self._over[name]
        run = read_run(self.root / name)
        if run is not None and run.is_over and run.folder.read_status() == run.status:
            self._over[name] = run  # written down and final: never looked at again
        return run

    def active(self) -> Run | None:
        """The run that has a process, if any."""
        return next((run for run in self.runs() if run.is_active), None)

    def submit(self, recipe: Recipe, options: Options, launched: Launch) -> Run:
        """Queue a run; it starts at once when nothing else runs.

        Raises:
            UserError: the same settings are running or waiting already; the folder for runs cannot be written.
        """
        with self._lock:
            self._refuse_twin(options)
            try:
                folder = launch.prepare(self.root, recipe, options, launched)
            except OSError as failure:
                reason = failure.strerror or failure
                raise UserError(f"{self.root}: cannot be written: {reason}; choose another with --runs_dir") from None
            self._secrets[folder.path.name] = launch.secrets_of(options)
            self.advance()
            self._wake.set()
            return self.find(folder.path.name) or Run(folder, Status("queued"))

    def stop(self, name: str) -> str:
        """Ask a run to end after its step and to save; asked a second time, end it at once.

        Returns:
            A sentence for the page.
        """
        with self._lock:
            run = self.find(name)
            if run is None or run.is_over:
                return "This run is over already."
            if run.status.state == "queued":
                run.folder.write_status(replace(run.status, state="stopped", message="Taken from the queue."))
                return "Taken from the queue."
            if run.stop_asked is not None:
                self._kill(run)
                return "Ended."
            write_json(run.folder.path / "stop.json", {"time": time.time()})
            run.folder.request("stop")
            self._wake.set()
            return "Stopping after this step; the weights are saved. Press again to end it at once, without saving."

    def request(self, name: str, what: str) -> str:
        """Ask a running run to save or to draw samples now."""
        run = self.find(name)
        if run is None or not run.is_active:
            return "This run is not running."
        run.folder.request("save" if what == "save" else "sample")
        return "The weights are written after this step." if what == "save" else "Samples are drawn after this step."

    def advance(self) -> None:
        """One look: settle what ended, end what does not obey, start what waits."""
        with self._lock:
            waiting, active = [], False
            for run in reversed(self.runs()):
                self._settle(run)
                run = self.find(run.name) or run
                active |= run.is_active
                if run.status.state == "queued" and not run.folder.launch.exists():
                    waiting.append(run)
                if run.is_active and run.stop_asked and time.time() - run.stop_asked > self.stop_grace_s:
                    self._kill(run)
            while waiting and not active:
                active = self._start(waiting.pop(0))

    def _start(self, run: Run) -> bool:
        """Start a run that waits; False if this server cannot."""
        queued = _read_json(run.folder.path / "queued.json") or {}
        secrets = self._secrets.get(run.name, {})
        if lacking := [name for name in queued.get("secrets", ()) if name not in secrets and name not in os.environ]:
            self._give_up(run, queued, lacking)
            return False
        run.folder.write_status(replace(run.status, state="starting", phase="starting the trainer"))
        try:
            self._children[run.name] = launch.start(run.folder, queued.get("argv", []), secrets)
        except FileExistsError:
            return True  # another server was faster
        except (OSError, ValueError, IndexError) as failure:
            message = f"The trainer cannot be started: {failure}"
            run.folder.write_status(replace(run.status, state="failed", message=message))
        self._secrets.pop(run.name, None)
        return True

    def _give_up(self, run: Run, queued: Mapping[str, Any], lacking: list[str]) -> None:
        """Say that secrets were lost with the server that kept them; while that one lives, the run is its own."""
        server = queued.get("server") or {}
        if server.get("pid") != os.getpid() and ProcessMark(server.get("pid", 0), server.get("created", 0.0)).process():
            return
        words = (
            f"Not started: {' and '.join(lacking)} of its form were kept in memory only, and the server was restarted. "
        )
        run.folder.write_status(replace(run.status, state="failed", message=f"{words}Start it again from the form."))

    def _settle(self, run: Run) -> None:
        """Write down the end of a run whose process is gone."""
        child = self._children.get(run.name)
        code = child.poll() if child else None
        if child and code is not None:
            del self._children[run.name]
        on_disk = run.folder.read_status()
        if on_disk is None or on_disk.state in FINAL or not run.is_over:
            return
        run.folder.write_status(verdict(replace(run, status=on_disk), code))

    def _kill(self, run: Run) -> None:
        kill_trees(marks(run))
        child = self._children.pop(run.name, None)
        if child:
            child.poll()
        status = run.folder.read_status() or run.status
        if status.state not in FINAL:
            message = f"Ended at once at your request, at step {status.step}; what was saved before is kept."
            run.folder.write_status(replace(status, state="stopped", message=message))

    def _refuse_twin(self, options: Options) -> None:
        text = settings_toml(options, leave_out=launch.GUI_SETS)
        for run in self.runs():
            if not run.is_over and _read_text(run.folder.config) == text:
                state = "waiting" if run.status.state == "queued" else "running"
                raise UserError(f"these settings are {state} already, as {run.name}; change something or stop that run")

    def _names(self) -> set[str]:
        try:
            return {path.name for path in self.root.iterdir() if path.is_dir()}
        except (FileNotFoundError, NotADirectoryError):
            return set()

    def _supervise(self) -> None:
        while not self._closing:
            try:
                self.advance()
            except OSError:  # a disk that is full or gone for a while must not end the watching
                log.exception("cannot look after the runs in %s", self.root)
            busy = any(not run.is_over for run in self.runs())
            self._wake.wait(POLL_S if busy else IDLE_POLL_S)
            self._wake.clear()


def _read_json(path: Path) -> dict | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def newest_active_or_last(runs: Iterable[Run]) -> Run | None:
    """The run a page shows when nobody chose one. `runs` come newest first."""
    listed = list(runs)
    return next((run for run in listed if run.is_active), listed[0] if listed else None)
