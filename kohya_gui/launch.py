"""Options become a run folder and the argument list of `accelerate launch`. No shell ever sees a value."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from kohya_gui.accelerate import launch_arguments
from kohya_gui.paths import PROJECT_ROOT, TRAINERS
from kohya_gui.processes import ProcessMark
from sd_scripts.options.launch import Launch
from sd_scripts.options.recipes import Recipe
from sd_scripts.options.schema import Options, specs
from sd_scripts.options.toml_files import write_settings
from sd_scripts.training.run_folder import RunFolder, Status, new_run_path, write_json
from sd_scripts.versions import version_lines

GUI_SETS = frozenset({"run_dir"})  # given on the command line, not in the settings file


def training_command(
    recipe: Recipe, options: Options, launch: Launch, config_file: Path, run_dir: Path | None
) -> list[str]:
    """The argument list that starts a trainer with a settings file."""
    command = [
        *(sys.executable, "-m", "accelerate.commands.launch"),
        *launch_arguments(launch, options),
        *(str(TRAINERS / f"{recipe.script}.py"), "--config_file", str(config_file)),
    ]
    return command if run_dir is None else [*command, "--run_dir", str(run_dir)]


def command_text(command: list[str]) -> str:
    """The command as a line to paste into a terminal of this system."""
    return subprocess.list2cmdline(command) if os.name == "nt" else shlex.join(command)


def prepare(runs_dir: Path, recipe: Recipe, options: Options, launch: Launch) -> RunFolder:
    """Make the folder of a run that waits for its start: settings, command, versions, status "queued"."""
    name = getattr(options, "output_name", None) or "last"
    run = RunFolder(new_run_path(runs_dir, name)).make()
    write_settings(run.config, options, leave_out=GUI_SETS)
    command = training_command(recipe, options, launch, run.config, run.path)
    run.command.write_text(command_text(command) + "\n", encoding="utf-8")
    run.versions.write_text("\n".join(version_lines()) + "\n", encoding="utf-8")
    me = asdict(ProcessMark.of(os.getpid()))
    queued = {"argv": command, "script": recipe.script, "server": me, "secrets": list(secrets_of(options))}
    write_json(run.path / "queued.json", queued)
    run.write_status(Status("queued"))
    return run


def secrets_of(options: Options) -> dict[str, str]:
    """Secrets by the environment variable in which the trainer finds them, as they stand in no file of the run."""
    given = {spec.environment: getattr(options, name) for name, spec in specs(type(options)).items() if spec.secret}
    return {variable: value for variable, value in given.items() if variable and value is not None}


def start(run: RunFolder, command: list[str], secrets: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a prepared run as a process of its own that outlives this one; its output goes to the run's log.

    Args:
        secrets: variables of its environment only.

    Raises:
        FileExistsError: the run was started already, by this server or another one.
        OSError: the process cannot be started.
    """
    with run.launch.open("x", encoding="utf-8"):
        pass  # whoever creates the file owns the start
    with run.log.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=PROJECT_ROOT,
            env=trainer_environment() | secrets,
            **_detached(),
        )
    mark = ProcessMark.of(process.pid)
    write_json(run.launch, {"pid": mark.pid, "created": mark.created, "argv": command})
    return process


def trainer_environment() -> dict[str, str]:
    """This process's environment, with the project importable and all output in UTF-8 and at once."""
    paths = [str(PROJECT_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        "PYTHONIOENCODING": "utf-8",
    }


def _detached() -> dict[str, int | bool]:
    """Closing the server's terminal must not reach the trainer."""
    if os.name == "nt":  # a hidden console of its own: with none at all every helper process would open a window
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return {"start_new_session": True}
