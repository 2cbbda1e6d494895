"""A run from its plan to its end: the run folder, the log, and what is said and saved when it fails."""

from __future__ import annotations

import logging
import secrets
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from sd_scripts.errors import UserError
from sd_scripts.options.recipes import Recipe, TrainingOptions
from sd_scripts.options.schema import specs
from sd_scripts.options.toml_files import write_settings
from sd_scripts.plan import Plan
from sd_scripts.training.devices import make_accelerator
from sd_scripts.training.disk import CannotSave
from sd_scripts.training.guards import out_of_memory
from sd_scripts.training.loop import fit
from sd_scripts.training.processes import Processes
from sd_scripts.training.progress import NowAndThen
from sd_scripts.training.report import Report
from sd_scripts.training.run import Run
from sd_scripts.training.run_folder import RunFolder, Status, new_run_path, write_json
from sd_scripts.training.setup import build_run
from sd_scripts.training.tracking import make_boards
from sd_scripts.versions import version_lines

logger = logging.getLogger(__name__)


def run_plan(recipe: Recipe, plan: Plan) -> None:
    """Train as planned; the run folder says at any time how it stands, and at the end how it went.

    Raises:
        UserError: anything a user can mend, out of memory included.
    """
    accelerator = make_accelerator(plan.options)
    processes = Processes(accelerator)
    accelerator.wait_for_everyone = processes.wait  # whoever only knows the accelerator waits with the same patience
    plan = with_seed(plan, accelerator)
    options = plan.options
    if not processes.is_first:
        silent = Report(None, Status("starting"))
        try:
            fit(build_run(recipe, options, plan, accelerator, processes, RunFolder(Path()), silent))
        except torch.OutOfMemoryError as failure:
            raise UserError(out_of_memory(options)) from failure
        return
    folder = open_run_folder(options, plan)
    with logged_to(folder.log):
        report = make_report(options, folder)
        run: Run | None = None
        try:
            with stopped_by_signals(folder):
                run = build_run(recipe, options, plan, accelerator, processes, folder, report)
                state = fit(run)
        except KeyboardInterrupt:
            report.ended("stopped", "interrupted")
            raise
        except Exception as failure:
            message = told(failure, options) + rescued(run, failure)
            report.ended("failed", message)
            if isinstance(failure, (UserError, torch.OutOfMemoryError)):
                raise UserError(message) from failure
            logger.error("%s", message)
            raise
        report.ended(state)
    accelerator.end_training()


def told(failure: Exception, options: TrainingOptions) -> str:
    """What happened, in one line."""
    if isinstance(failure, torch.OutOfMemoryError):
        return out_of_memory(options)
    if isinstance(failure, UserError):
        return str(failure)
    return f"{type(failure).__name__}: {(str(failure) or 'no message').splitlines()[0]}"


def rescued(run: Run | None, failure: Exception) -> str:
    """Write the weights that a failed run has got, where there are some; what was done, to be added to the message."""
    if run is None or run.saver is None or run.step == run.first_step or isinstance(failure, CannotSave):
        return ""
    before = run.report.last_checkpoint
    if not run.weights_are_finite():
        return f"; its weights are spoilt too and were not saved, the last good ones are in {before}" if before else ""
    try:
        return f"; the weights after step {run.step} were saved as {run.saver.rescue(run.step)}"
    except Exception as second:  # noqa: BLE001 - the first failure is what has to be told
        logger.warning("the weights of the failed run could not be saved: %s", second)
        return ""


def with_seed(plan: Plan, accelerator: Accelerator) -> Plan:
    """The plan with a seed: the one given, or one drawn now for all processes, which the run folder then records."""
    assert plan.data is not None
    seed = plan.options.seed
    if seed is None:
        (seed,) = (
            broadcast_object_list([secrets.randbits(31)]) if accelerator.num_processes > 1 else (secrets.randbits(31),)
        )
    options = plan.options.model_copy(update={"seed": seed})
    return replace(plan, options=options, data=replace(plan.data, seed=seed))


def open_run_folder(options: TrainingOptions, plan: Plan) -> RunFolder:
    """The run's folder with its settings, plan, command and versions."""
    name = options.output_name or "last"
    path = Path(options.run_dir) if options.run_dir else new_run_path(Path(options.output_dir) / "runs", name)
    folder = RunFolder(path).make()
    write_settings(folder.config, options, leave_out=frozenset({"run_dir"}))
    write_json(folder.plan, plan.summary())
    if not folder.command.exists():
        command = shlex.join([sys.executable, *without_secrets(sys.argv, options)])
        folder.command.write_text(command + "\n", encoding="utf-8")
    folder.versions.write_text("\n".join(version_lines()) + "\n", encoding="utf-8")
    return folder


def without_secrets(arguments: Sequence[str], options: TrainingOptions) -> list[str]:
    """A command line on which secrets are dots."""
    flags = tuple(f"--{name}" for name, spec in specs(type(options)).items() if spec.secret)
    told = []
    for at, argument in enumerate(arguments):
        flag, equals, _ = argument.partition("=")
        if equals and flag in flags:
            told.append(f"{flag}=…")
        else:
            told.append("…" if at and arguments[at - 1] in flags else argument)
    return told


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Within it the log also goes to this file; unless it exists: whoever redirected the output there has made it."""
    if path.exists():
        yield
        return
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(NowAndThen())
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


@contextmanager
def stopped_by_signals(folder: RunFolder) -> Iterator[None]:
    """Within it the first Ctrl-C or termination asks for a stop, so that the weights are written; a second one ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, _frame: object) -> None:
        logger.warning("stopping after this step; once more ends at once")
        folder.request("stop")
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def make_report(options: TrainingOptions, folder: RunFolder) -> Report:
    """Where the run tells of itself: events, status, curves."""
    process = psutil.Process()
    status = Status("starting", "loading", pid=process.pid, created=process.create_time())
    boards = None
    try:
        boards = make_boards(options, folder.tensorboard)
    finally:
        report = Report(folder, status, boards)
        if boards is None:
            report.ended("failed", "the curves cannot be logged")
    report.phase("loading the model")
    return report
