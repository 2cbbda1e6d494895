"""Processes that turn keys into results, ahead of time and in order.

A process that dies is replaced and what it had to do is done again; results depend on their keys alone, so nothing else
changes. torch's DataLoader cannot do this: it ends the run, from a signal handler, wherever the run happens to be.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from sd_scripts.data.transport import receive, send, widen

K = TypeVar("K")
R = TypeVar("R")
Note = Callable[[str], None]
Make = Callable[[K, Note | None], R]

AHEAD = 3  # results that each process makes ahead
MOST_DEATHS = 3  # at one key
SECONDS_TO_END = 2.0


class WorkerDeath(Exception):
    """Processes died again and again at one key; `note` is what the last of them was at."""

    def __init__(self, reason: str, note: str):
        super().__init__(reason)
        self.note = note


@dataclass
class _Task(Generic[K]):
    """One key and what has become of it."""

    run: int
    number: int
    key: K
    deaths: int = 0
    note: str = ""


@dataclass(frozen=True)
class _Noted:
    text: str


@dataclass(frozen=True)
class _Failed:
    trace: str


@dataclass(frozen=True)
class _Died:
    pass


class Pool(Generic[K, R]):
    """Args:
    make: makes the result of a key in a process. It gets a second argument, None or, at a key where one died before, what
        to call with a text that says where it stands.
    workers: how many processes.
    start_method: how they are started; None is the platform's way.
    prepare: called first in each process.
    on_death: told in words of a process that died and was replaced.
    finish: applied to each result as it arrives, in a thread.
    """

    def __init__(
        self,
        make: Make[K, R],
        workers: int,
        *,
        start_method: str | None = None,
        prepare: Callable[[], None] = lambda: None,
        on_death: Callable[[str], None] = lambda reason: None,
        finish: Callable[[R], R] = lambda result: result,
        ahead: int = AHEAD,
    ):
        self._make = make
        self._count = workers
        self._context = multiprocessing.get_context(start_method)
        self._prepare = prepare
        self._on_death = on_death
        self._finish = finish
        self._ahead = ahead
        self._workers: list[_Worker] = []
        self._arrived: SimpleQueue[tuple[_Worker, Any]] = SimpleQueue()
        self._run = 0

    def results(self, keys: Sequence[K]) -> Iterator[R]:
        """The results of the keys, in order. A second call ends what the first had begun.

        Raises:
            WorkerDeath: processes died again and again at one key.
            RuntimeError: making a result failed; with the traceback of the process.
        """
        self._run += 1
        waiting = [_Task(self._run, number, key) for number, key in reversed(list(enumerate(keys)))]
        found: dict[int, R] = {}
        self._start_missing()
        for number in range(len(keys)):
            while number not in found:
                self._hand_out(waiting, until=number + self._count * self._ahead)
                self._take(waiting, found)
            yield found.pop(number)

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.ask_to_end()
        for worker in self._workers:
            worker.end()
        self._workers.clear()
        self._run += 1

    def _hand_out(self, waiting: list[_Task[K]], until: int) -> None:
        """Give tasks, which lie in reverse order, to the processes that have the fewest."""
        while waiting and waiting[-1].number < until:
            worker = min(self._workers, key=lambda worker: len(worker.tasks))
            if len(worker.tasks) >= self._ahead:
                return
            worker.give(waiting.pop())

    def _take(self, waiting: list[_Task[K]], found: dict[int, R]) -> None:
        """Wait for what comes next from any process."""
        worker, message = self._arrived.get()
        match message:
            case _Died():
                self._replace(worker, waiting)
            case _Noted(text):
                next(iter(worker.tasks)).note = text
            case _Failed(trace):
                raise RuntimeError(f"a loader process failed:\n{trace}")
            case result:
                task = worker.tasks.pop(0)
                if task.run == self._run:
                    found[task.number] = result

    def _replace(self, dead: _Worker, waiting: list[_Task[K]]) -> None:
        """Start another process for one that died; its tasks of this run wait again."""
        if dead not in self._workers:  # ended by `close`
            return
        self._workers.remove(dead)
        reason = dead.end()
        open_tasks = [task for task in dead.tasks if task.run == self._run]
        if open_tasks:
            suspect = open_tasks[0]
            suspect.deaths += 1
            if suspect.deaths >= MOST_DEATHS:
                raise WorkerDeath(reason, suspect.note)
        waiting.extend(open_tasks)
        waiting.sort(key=lambda task: -task.number)
        self._on_death(reason)
        self._start_missing()

    def _start_missing(self) -> None:
        while len(self._workers) < self._count:
            try:
                worker = _Worker(self._context, self._make, self._prepare, self._finish, self._arrived)
            except OSError:  # no memory for another process
                if not self._workers:
                    raise
                return
            self._workers.append(worker)


class _Worker:
    """One process with its pipes, and the thread that receives from it. The operating system closes its end of the pipe
    when it dies, however it dies."""

    def __init__(
        self,
        context: Any,
        make: Make,
        prepare: Callable[[], None],
        finish: Callable[[Any], Any],
        arrived: SimpleQueue[tuple[_Worker, Any]],
    ):
        self.tasks: list[_Task] = []  # given and not done; it works on the first
        reader, self._sender = context.Pipe(duplex=False)
        receiver, writer = context.Pipe(duplex=False)
        widen(writer)
        # A forked process has our ends too; were it to keep them, it would not see when this process is gone.
        ours = (self._sender, receiver) if context.get_start_method() == "fork" else ()
        self._process = context.Process(target=_work, args=(make, prepare, reader, writer, ours), daemon=True)
        try:
            self._process.start()
        except OSError:
            self._sender.close()
            receiver.close()
            raise
        finally:
            reader.close()
            writer.close()
        self._thread = threading.Thread(target=self._receive, args=(receiver, finish, arrived), daemon=True)
        self._thread.start()

    def give(self, task: _Task) -> None:
        self.tasks.append(task)
        try:
            self._sender.send((task.key, task.deaths > 0))
        except OSError:  # it is dead, which its other pipe tells in its turn
            return

    def ask_to_end(self) -> None:
        self._sender.close()

    def end(self) -> str:
        """Make sure that it is gone; why it went, in words."""
        self._sender.close()
        self._process.join(SECONDS_TO_END)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._thread.join()
        code = self._process.exitcode
        self._process.close()
        return _reason(code)

    def _receive(
        self, receiver: Connection, finish: Callable[[Any], Any], arrived: SimpleQueue[tuple[_Worker, Any]]
    ) -> None:
        with receiver:
            while True:
                try:
                    message = receive(receiver)
                except (EOFError, OSError):
                    break
                if not isinstance(message, (_Noted, _Failed)):
                    try:
                        message = finish(message)
                    except Exception:  # noqa: BLE001 - whatever it is, it is reported and ends the run
                        message = _Failed(traceback.format_exc())
                arrived.put((self, message))
        arrived.put((self, _Died()))


def _work(
    make: Make, prepare: Callable[[], None], tasks: Connection, results: Connection, foreign: tuple[Connection, ...]
) -> None:
    """A process's life: make results until the pipe of tasks ends."""
    # A Ctrl-C is for the training process, which ends us; its handler for terminations came along with a fork.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for connection in foreign:
        connection.close()
    prepare()
    try:
        while True:
            key, is_careful = tasks.recv()
            note = (lambda text: send(results, _Noted(text))) if is_careful else None
            try:
                result = make(key, note)
            except Exception:  # noqa: BLE001 - whatever it is, it is reported and ends the run
                result = _Failed(traceback.format_exc())
            send(results, result)
    except (EOFError, OSError):  # the training process is gone, or done
        return


def _reason(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
        hint = ", perhaps because memory ran out" if name == "SIGKILL" else ""
        return f"was killed ({name}{hint})"
    return f"ended by itself (code {code})"
