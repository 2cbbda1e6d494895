"""Trainers in processes of their own that start in no time: forked from one that has imported everything already."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

needs_fork = pytest.mark.skipif(os.name == "nt", reason="Windows cannot fork")


def start(script: str, settings: dict[str, Any], count: int = 1, kill_at: int | None = None) -> list[BaseProcess]:
    """Start a trainer, in one or several processes that work together.

    Args:
        kill_at: the step after which the trainer ends without warning, as by kill -9.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sd_scripts.training.session", "sd_scripts.data.cache", "test.runs.forked"])
    shared = {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    if count > 1:
        shared |= {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = []
    for rank in range(count):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if count > 1 else {}
        processes.append(context.Process(target=_train, args=(script, settings, shared | own, kill_at)))
        processes[-1].start()
    return processes


def run(script: str, settings: dict[str, Any], count: int = 1, *, kill_at: int | None = None) -> None:
    """Train in processes of their own, and see that they end as they should."""
    for process in start(script, settings, count, kill_at):
        process.join(timeout=400)
        assert process.exitcode == (0 if kill_at is None else -signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _train(script: str, settings: dict[str, Any], environment: dict[str, str], kill_at: int | None) -> None:
    os.environ.update(environment)
    import torch

    from sd_scripts.entry import train
    from sd_scripts.options.build import build
    from sd_scripts.options.recipes import RECIPES

    torch.set_num_threads(1)
    if kill_at is not None:
        _die_after(kill_at)
    recipe = RECIPES[script]
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    raise SystemExit(train(recipe, build(recipe.options, plain)))


def _die_after(step: int) -> None:
    from sd_scripts.training.run import Run

    after_step = Run.after_step

    def dying(run: Run, numbers: Any) -> None:
        after_step(run, numbers)
        if run.step == step:
            os.kill(os.getpid(), signal.SIGKILL)

    Run.after_step = dying
