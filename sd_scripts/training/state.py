"""The training state on disk: all that is needed to go on exactly as if the run had never stopped.

    train_state.json   position and the settings that must not change
    model.safetensors  trained weights   optimizer.bin  scheduler.bin  scaler.pt  ema.safetensors

Random numbers need no state: every draw is a function of seed, step and process.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from sd_scripts.errors import UserError
from sd_scripts.training.schedulers import load_schedule

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from sd_scripts.training.ema import Ema


DAMAGED = (
    OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, EOFError, pickle.UnpicklingError, SafetensorError,
)  # fmt: skip
"""What reading a file that is cut off, or that belongs to another optimizer, raises."""


@dataclass(frozen=True)
class Position:
    """Where a run stands, and what its future depends on."""

    step: int
    epoch: int
    seed: int
    batches_per_epoch: int
    accumulation: int


@dataclass(frozen=True)
class Trained:
    """The objects whose state is kept."""

    parameters: dict[str, nn.Parameter]
    optimizer: Optimizer
    scheduler: Any
    scaler: Any | None
    ema: Ema | None


def write_state(folder: Path, position: Position, trained: Trained) -> None:
    """Write a state folder under a temporary name, then rename it; an older one of that name is replaced."""
    temporary = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        _write_files(temporary, position, trained)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.replace(folder)
    except (OSError, RuntimeError, SafetensorError) as failure:  # torch and safetensors have their own for a full disk
        shutil.rmtree(temporary, ignore_errors=True)
        reason = getattr(failure, "strerror", None) or str(failure).splitlines()[0]
        raise UserError(
            f"{folder}: the state cannot be written ({reason}); make room or choose another folder"
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
    content = {
        "current_epoch": position.epoch,
        "current_step": position.step,
        "seed": position.seed,
        "batches_per_epoch": position.batches_per_epoch,
        "gradient_accumulation_steps": position.accumulation,
    }
    (folder / "train_state.json").write_text(json.dumps(content, indent=1), encoding="utf-8")


def read_position(folder: Path) -> Position:
    """Where the state was taken.

    Raises:
        UserError: the folder is no state of ours.
    """
    try:
        content = json.loads((folder / "train_state.json").read_text(encoding="utf-8"))
        return Position(
            step=int(content["current_step"]),
            epoch=int(content["current_epoch"]),
            seed=int(content["seed"]),
            batches_per_epoch=int(content["batches_per_epoch"]),
            accumulation=int(content["gradient_accumulation_steps"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise UserError(
            f"{folder}: not a training state that can be read ({failure}); name a folder that ends in -state"
        ) from failure


def read_state(folder: Path, trained: Trained) -> None:
    """Put a state's weights, optimizer, schedule and average back into the objects of this run.

    Raises:
        UserError: a file is missing or damaged, or belongs to another model, rank or optimizer.
    """
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
