"""The training state on disk: all that is needed to go on exactly as if the run had never stopped.

    train_state.json   position and the settings that must not change
    model.safetensors  trained weights   optimizer.bin  scheduler.bin  scaler.pt  ema.bin
    settings.toml  versions.txt  files.json   what it was made with

Random numbers need no state: every draw is a function of seed, step and process.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from sd_scripts.errors import UserError
from sd_scripts.training.disk import CannotSave, bytes_of, require_space
from sd_scripts.training.schedulers import load_schedule
from sd_scripts.training.state_folder import SET_ASIDE, Position, find_state, write_position
from sd_scripts.training.state_record import Record

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from sd_scripts.training.ema import Ema


DAMAGED = (
    OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, EOFError, pickle.UnpicklingError, SafetensorError,
)  # fmt: skip
"""What reading a file that is cut off, or that belongs to another optimizer, raises."""


@dataclass(frozen=True)
class Trained:
    """The objects whose state is kept."""

    parameters: dict[str, nn.Parameter]
    optimizer: Optimizer
    scheduler: Any
    scaler: Any | None
    ema: Ema | None

    def bytes(self) -> int:
        """What their state takes on disk."""
        states = [self.optimizer.state_dict(), self.ema.state_dict() if self.ema is not None else {}]
        return bytes_of(self.parameters) + bytes_of(states)


def write_state(folder: Path, position: Position, trained: Trained, record: Record) -> None:
    """Write a state folder under a temporary name, then let it take the place of one that has its name.

    At each moment there is a whole state that `find_state` knows by this name, once there was one.

    Raises:
        CannotSave: the disk is full or refuses; the older state is whole.
    """
    _remove_leftovers(folder)
    require_space(folder, trained.bytes())
    temporary = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        _write_files(temporary, position, trained)
        record.write(temporary)
        for file in temporary.iterdir():
            _flush(file)
        _take_place(temporary, folder)
    except (OSError, RuntimeError, SafetensorError) as failure:  # torch and safetensors have their own for a full disk
        shutil.rmtree(temporary, ignore_errors=True)
        reason = getattr(failure, "strerror", None) or str(failure).splitlines()[0]
        raise CannotSave(
            f"{folder}: the state cannot be written ({reason}); make room or choose another folder; "
            "a state of that name from before is unchanged"
        ) from failure


def _write_files(folder: Path, position: Position, trained: Trained) -> None:
    weights = {name: parameter.detach().cpu().contiguous() for name, parameter in trained.parameters.items()}
    save_file(weights, folder / "model.safetensors")
    torch.save(trained.optimizer.state_dict(), folder / "optimizer.bin")
    torch.save(trained.scheduler.state_dict(), folder / "scheduler.bin")
    if trained.scaler is not None:
        torch.save(trained.scaler.state_dict(), folder / "scaler.pt")
    if trained.ema is not None:
        torch.save(trained.ema.state_dict(), folder / "ema.bin")
    write_position(folder, position)


def _flush(file: Path) -> None:
    """Have the system write a file to the disk before its folder is renamed: else a power cut could leave it empty."""
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())


def _take_place(new: Path, folder: Path) -> None:
    aside = folder.with_name(folder.name + SET_ASIDE)
    if folder.exists():
        shutil.rmtree(aside, ignore_errors=True)
        folder.replace(aside)
    new.replace(folder)
    shutil.rmtree(aside, ignore_errors=True)


def _remove_leftovers(folder: Path) -> None:
    """Remove what writers of this state left that were killed at it."""
    for left in folder.parent.glob(f"{_literal(folder.name)}.*.tmp"):
        number = re.fullmatch(r"(\d+)\.tmp", left.name.removeprefix(f"{folder.name}."))
        if number and (int(number[1]) == os.getpid() or not psutil.pid_exists(int(number[1]))):
            shutil.rmtree(left, ignore_errors=True)


def _literal(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def read_state(folder: Path, trained: Trained) -> None:
    """Put a state's weights, optimizer, schedule and average back into the objects of this run.

    Raises:
        UserError: a file is missing or damaged, or belongs to another model, rank or optimizer.
    """
    folder = find_state(folder) or folder
    try:
        weights = load_file(folder / "model.safetensors")
        _load_weights(folder, weights, trained.parameters)
        trained.optimizer.load_state_dict(_load(folder / "optimizer.bin"))
        load_schedule(trained.scheduler, _load(folder / "scheduler.bin"))
        if trained.scaler is not None and (folder / "scaler.pt").exists():
            trained.scaler.load_state_dict(_load(folder / "scaler.pt"))
        if trained.ema is not None and (folder / "ema.bin").exists():
            trained.ema.load_state_dict(_load(folder / "ema.bin"))
        elif trained.ema is not None:
            trained.ema.restart()
    except UserError:
        raise
    except DAMAGED as failure:
        reason = (str(failure) or type(failure).__name__).splitlines()[0]
        raise UserError(
            f"{folder}: the state does not fit this run ({reason}); resume with the settings it was made with"
        ) from failure


def _load(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _load_weights(folder: Path, weights: dict[str, torch.Tensor], parameters: dict[str, nn.Parameter]) -> None:
    different = set(weights) ^ set(parameters)
    if different:
        raise UserError(
            f"{folder}: holds other weights than this run trains ({len(different)} differ, e.g. {min(different)}); "
            "resume with the model and network settings it was made with"
        )
    for name, parameter in parameters.items():
        if weights[name].shape != parameter.shape:
            raise UserError(
                f"{folder}: {name} has shape {tuple(weights[name].shape)}, this run trains "
                f"{tuple(parameter.shape)}; use the same rank and model"
            )
        with torch.no_grad():
            parameter.copy_(weights[name])
