"""Processes that outlive the page and the server: are they still the same ones, and how they are ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import psutil

CREATION_TOLERANCE_S = 2.0  # creation times come from clock ticks and boot time; both round


@dataclass(frozen=True)
class ProcessMark:
    """A process id together with its creation time; a pid alone is soon given to somebody else."""

    pid: int
    created: float

    @classmethod
    def of(cls, pid: int) -> ProcessMark:
        """The mark of a running process. A process that is gone already gets the time 0, which matches nothing."""
        try:
            return cls(pid, psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            return cls(pid, 0.0)

    def process(self) -> psutil.Process | None:
        """The process if it still lives; one that ended and waits for its parent to look does not."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) <= CREATION_TOLERANCE_S
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def kill_trees(marks: Iterable[ProcessMark], patience_s: float = 3.0) -> int:
    """End these processes, their descendants and what is left of their groups: a polite signal, then the hard one.

    Returns:
        How many had to be ended.
    """
    victims = {process.pid: process for mark in marks for process in _tree(mark)}
    for process in victims.values():
        _signal(process, hard=False)
    _, stubborn = psutil.wait_procs(victims.values(), timeout=patience_s)
    for process in stubborn:
        _signal(process, hard=True)
    psutil.wait_procs(stubborn, timeout=patience_s)
    return len(victims)


def _tree(mark: ProcessMark) -> list[psutil.Process]:
    found = []
    if (root := mark.process()) is not None:
        with suppress(psutil.NoSuchProcess):  # it ended just now; what it left behind is in its group
            found = [root, *root.children(recursive=True)]
    return found + _group(mark)


def _group(mark: ProcessMark) -> list[psutil.Process]:
    """Members of the session that the process opened. They may have lost their parent, so no tree shows them."""
    if os.name != "posix" or not mark.created:
        return []
    members = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == mark.pid and process.create_time() >= mark.created - CREATION_TOLERANCE_S:
                members.append(process)
        except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            continue
    return members


def _signal(process: psutil.Process, *, hard: bool) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill() if hard else process.terminate()


def exit_words(code: int | None) -> str:
    """What an exit code means, for people.

    Windows gives the reason as a large number, POSIX as the negative number of a signal (a shell as 128 + number).
    """
    if code is None:
        return "The process ended without a word: it was ended from outside, often because memory ran out."
    if code in _WINDOWS:
        return f"{_WINDOWS[code]} (exit code {code})."
    number = -code if code < 0 else code - 128 if 128 < code <= 128 + 64 else None
    if number is None:
        return f"The process ended with exit code {code}."
    name = _signal_name(number)
    return f"{_SIGNALS.get(number, 'The process was ended by a signal')} (exit code {code}{name})."


def _signal_name(number: int) -> str:
    try:
        return f", {signal.Signals(number).name}"
    except ValueError:
        return ""


_SIGNALS = {
    2: "The process was interrupted",
    6: "The process ended itself after an internal error of a library",
    7: "The process crashed with a bus error; the disk or the shared memory may be full",
    9: "The process was killed from outside, often because memory ran out",
    11: "The process crashed inside a library (segmentation fault)",
    15: "The process was asked to end from outside",
}
_WINDOWS = {
    3221225477: "The process crashed with an access violation, often because memory or the page file ran out",
    3221225725: "The process crashed with a stack overflow",
    3221225786: "The process was interrupted from its console",
    3221226505: "The process crashed inside a library",
    3221225495: "The system had no memory left for the process",
}
