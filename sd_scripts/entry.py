"""What every trainer script does: read the options, make the plan, stop with one readable line or train."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from sd_scripts.console import console
from sd_scripts.errors import UserError
from sd_scripts.options.cli import Invocation, parse
from sd_scripts.options.problems import CheckFailed, Problem, as_problem
from sd_scripts.options.recipes import RECIPES, Recipe, TrainingOptions
from sd_scripts.plan import Plan, make_plan
from sd_scripts.plan_text import plan_lines
from sd_scripts.training.run_folder import RunFolder, Status


def main(script: str, arguments: Sequence[str] | None = None) -> int:
    """Run a trainer by its script's name. Returns the exit code: 0 done or stopped on request, 1 failed, 130 interrupted.

    Args:
        arguments: command line without the script; None takes the process's own.
    """
    speak_utf8()
    recipe = RECIPES[script]
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        invocation = parse(recipe, arguments)
        if invocation.only_check:
            return _check(recipe, invocation)
        return train(recipe, invocation.options, invocation.problems)
    except UserError as failure:
        return say_failure(failure, as_json="--json" in arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as failure:  # noqa: BLE001 - a fault of ours: everything for a report, and then one line like any other's
        traceback.print_exc()
        reason = (str(failure) or "no message").splitlines()[0]
        print(
            f"error: {type(failure).__name__}: {reason} (this is a fault of the program)", file=sys.stderr, flush=True
        )
        return 1


def train(recipe: Recipe, options: TrainingOptions, known_problems: Sequence[Problem] = ()) -> int:
    """Plan and train with these options; what a script or a notebook calls.

    Args:
        known_problems: warnings about how the options were given, to be shown with the plan's.

    Raises:
        UserError: anything a user can mend. The run folder, when one is given, then says that the run failed and why.
    """
    is_first = os.environ.get("RANK", "0") == "0"  # of the processes of this run
    with console(options, is_first):
        _train(recipe, options, known_problems, is_first)
    return 0


def _train(recipe: Recipe, options: TrainingOptions, known_problems: Sequence[Problem], is_first: bool) -> None:
    try:
        plan = make_plan(recipe, options, int(os.environ.get("WORLD_SIZE", "1")), known_problems)
        if is_first:
            for line in plan_lines(plan):
                print(line, file=sys.stderr, flush=True)
        plan.require_no_errors()
    except UserError as failure:
        _record_failure(options, str(failure))
        raise
    # Threads that spin while they wait make a CPU run dozens of times slower as soon as anything else uses the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from sd_scripts.training.session import run_plan

    run_plan(recipe, plan)


def _check(recipe: Recipe, invocation: Invocation) -> int:
    plan = make_plan(recipe, invocation.options, known_problems=invocation.problems)
    if invocation.as_json:
        print(json.dumps({"trainer": recipe.script} | plan.summary(), ensure_ascii=False, indent=1))
    else:
        for line in plan_lines(plan):
            print(line)
    return 1 if plan.errors else 0


def say_failure(failure: UserError, as_json: bool = False) -> int:
    """All problems, the first one last: it is what a reader of a log's end should mend first. Returns the exit code."""
    if as_json:
        problems = failure.problems if isinstance(failure, CheckFailed) else [as_problem(failure)]
        print(json.dumps({"problems": [asdict(problem) for problem in problems]}, ensure_ascii=False, indent=1))
        return 1
    if isinstance(failure, CheckFailed):
        for problem in reversed(failure.problems[1:]):
            print(f"error: {problem}", file=sys.stderr)
    print(f"error: {failure}", file=sys.stderr, flush=True)
    return 1


def _record_failure(options: TrainingOptions, message: str) -> None:
    if options.run_dir is not None and Path(options.run_dir).is_dir():
        RunFolder(Path(options.run_dir)).write_status(Status("failed", message=message))


def speak_utf8() -> None:
    """Prompts and paths hold any script, whatever the terminal's locale."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")


__all__ = ["Plan", "main", "train"]
