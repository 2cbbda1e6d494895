"""Make the learning-rate schedule that the options name. It advances once per optimizer step.

Names and arguments are resolved without torch in `sd_scripts.options.scheduler_names`; the formulas are those of
diffusers and transformers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from sd_scripts.errors import ConfigError
from sd_scripts.options.optimizer_names import part_rates
from sd_scripts.options.scheduler_names import (
    ScheduleChoice,
    SchedulerOptions,
    choose_schedule,
    parse_step_rules,
    phase_steps,
)
from sd_scripts.training.optimizers import construct, import_class, is_schedule_free, make_optimizer
from sd_scripts.training.split_optimizer import SplitOptimizer


def make_scheduler(cfg: SchedulerOptions, optimizer: Optimizer, total_steps: int) -> LRScheduler:
    """The schedule over `total_steps` optimizer steps; call `advance` after each of them.

    Steps are optimizer steps whatever the number of processes. Schedule-free optimizers get a constant rate, Adafactor
    with relative step a schedule that only reports the rate it sets itself.

    Raises ConfigError for everything that the user can mend.
    """
    if is_schedule_free(optimizer):
        return LambdaLR(optimizer, _constant)
    if any(group.get("relative_step") for group in optimizer.param_groups):
        return RelativeStep(optimizer, cfg.learning_rate)
    choice = choose_schedule(cfg)
    if choice.path:
        cls = import_class("lr_scheduler_type", choice.path, choice.path.split(".")[0])
        return construct("lr_scheduler_args", cls, optimizer, choice.arguments)
    if choice.name == "reduce_lr_on_plateau":
        return construct("lr_scheduler_args", PlateauLR, optimizer, choice.arguments)
    warmup, decay = phase_steps(cfg, total_steps)
    return _named_schedule(cfg, choice, optimizer, warmup, decay, total_steps)


def try_out(cfg: SchedulerOptions, total_steps: int) -> None:
    """Make optimizer and schedule for a weight of no account: what they refuse is said before a model is loaded.

    Raises ConfigError as `make_optimizer` and `make_scheduler` do.
    """
    group = {"params": [nn.Parameter(torch.zeros(8, 8))], "lr": max(part_rates(cfg)) or 1.0, "name": "tried"}
    optimizer, _ = make_optimizer(cfg, [group])
    make_scheduler(cfg, optimizer, total_steps)


def advance(scheduler: LRScheduler, loss: Tensor) -> None:
    """Move on by one optimizer step.

    Args:
        loss: the step's loss, a scalar equal on all processes (only reduce_lr_on_plateau reads it).
    """
    if isinstance(scheduler, PlateauLR):
        scheduler.step(loss)
    else:
        scheduler.step()


def load_schedule(scheduler: LRScheduler, state: dict[str, Any]) -> None:
    """Go on where a saved schedule was; of one of another kind only its position counts."""
    if state.keys() == scheduler.state_dict().keys():
        scheduler.load_state_dict(state)
        return
    for group in scheduler.optimizer.param_groups:
        group["lr"] = group.get("initial_lr", group["lr"])  # not what the other one had made of it
    position = int(state.get("steps_seen", state["last_epoch"]))
    if isinstance(scheduler, PlateauLR):
        scheduler.steps_seen = position
    else:
        scheduler.last_epoch = position


def use_rates(scheduler: LRScheduler, rates: Sequence[float]) -> None:
    """Let these be the full rates of the groups, and the schedule that of the settings, from where it stands."""
    if isinstance(scheduler, RelativeStep):
        return
    groups = scheduler.optimizer.param_groups
    for group, rate in zip(groups, rates, strict=True):
        before = group.get("initial_lr", group["lr"])
        if before != rate:
            group["lr"] = group["lr"] * rate / before if before else rate
        group["initial_lr"] = rate
    if hasattr(scheduler, "base_lrs"):
        scheduler.base_lrs = list(rates)
    if isinstance(
        scheduler, LambdaLR
    ):  # a function of the step: exact, and of the present settings where those changed
        for group, rate, factor in zip(groups, rates, scheduler.lr_lambdas, strict=True):
            group["lr"] = rate * factor(scheduler.last_epoch)
    scheduler._last_lr = [group["lr"] for group in groups]


class PlateauLR(ReduceLROnPlateau):
    """Lower the rate when the mean loss of a window of steps no longer falls; `patience` counts windows.

    The losses are added up on their device and read once per window, so a step does not wait for the device.
    """

    def __init__(self, optimizer: Optimizer, *, window: int = 50, **arguments: Any):
        if window < 1:
            raise ValueError(f"window {window} is not at least 1")
        super().__init__(optimizer, **arguments)
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.window = window
        self.steps_seen = 0
        self.loss_sum: Tensor | float = 0.0

    def step(self, loss: Tensor) -> None:  # type: ignore[override]
        """Take the loss of one optimizer step."""
        self.loss_sum = self.loss_sum + torch.as_tensor(loss).detach().float()
        self.steps_seen += 1
        if self.steps_seen % self.window == 0:
            super().step(float(self.loss_sum) / self.window)
            self.loss_sum = 0.0


class RelativeStep(LRScheduler):
    """Reports the rate that Adafactor computes from the step number and the size of the weights; changes nothing."""

    def __init__(self, optimizer: Optimizer, learning_rate: float):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        """The last step's rate per group, that of the group's first stepped parameter.

        Reading it waits for the device, as Adafactor itself does for every parameter.
        """
        owner = self.optimizer.whole if isinstance(self.optimizer, SplitOptimizer) else self.optimizer
        rates = []
        for group, initial in zip(owner.param_groups, self.base_lrs, strict=True):
            states = [owner.state[p] for p in group["params"] if p in owner.state]
            rates.append(float(owner._get_lr(group, states[0])) if states else initial)
        return rates


# diffusers has the others too, by the same formulas; transformers imports its whole trainer with them, which takes seconds.
FROM_TRANSFORMERS = ("cosine_with_min_lr", "cosine_warmup_with_min_lr", "inverse_sqrt", "warmup_stable_decay")


def _library(package: str) -> ModuleType:
    return importlib.import_module(f"{package}.optimization")


def _named_schedule(
    cfg: SchedulerOptions, choice: ScheduleChoice, optimizer: Optimizer, warmup: int, decay: int, total: int
) -> LRScheduler:
    """A schedule of the table as factors on every group's rate."""
    library = _library("transformers" if choice.name in FROM_TRANSFORMERS else "diffusers")
    given = choice.arguments
    span = {"num_warmup_steps": warmup, "num_training_steps": total}
    half_cycles = {"num_cycles": cfg.lr_scheduler_num_cycles / 2}
    floor = {} if given.keys() & {"min_lr", "min_lr_rate"} else {"min_lr_rate": cfg.lr_scheduler_min_lr_ratio or 0.0}
    match choice.name:
        case "constant" | "constant_with_warmup":
            make, arguments = library.get_constant_schedule_with_warmup, {"num_warmup_steps": warmup}
        case "linear":
            make, arguments = library.get_linear_schedule_with_warmup, span
        case "cosine":
            make, arguments = library.get_cosine_schedule_with_warmup, span
        case "cosine_with_restarts":
            make = library.get_cosine_with_hard_restarts_schedule_with_warmup
            arguments = span | {"num_cycles": cfg.lr_scheduler_num_cycles}
        case "cosine_with_min_lr":
            make, arguments = library.get_cosine_with_min_lr_schedule_with_warmup, span | half_cycles | floor
        case "cosine_warmup_with_min_lr":
            make, arguments = library.get_cosine_with_min_lr_schedule_with_warmup_lr_rate, span | half_cycles | floor
        case "polynomial":
            make = library.get_polynomial_decay_schedule_with_warmup
            arguments = span | {"power": cfg.lr_scheduler_power}
        case "inverse_sqrt":
            make = library.get_inverse_sqrt_schedule
            arguments = {"num_warmup_steps": warmup, "timescale": cfg.lr_scheduler_timescale}
        case "warmup_stable_decay":
            make = library.get_wsd_schedule
            arguments = span | half_cycles | {"num_decay_steps": decay}
            arguments |= {"min_lr_ratio": cfg.lr_scheduler_min_lr_ratio or 0.0}
        case "piecewise_constant":
            return LambdaLR(optimizer, _piecewise(given["step_rules"]))
        case _:
            reason = "works only with optimizer_type AdaFactor and its relative_step"
            raise ConfigError("lr_scheduler", choice.name, reason)
    scheduler = construct("lr_scheduler_args", make, optimizer, arguments | given)
    return _held_at_end(scheduler, total) if choice.name.startswith("cosine") else scheduler


def _held_at_end(scheduler: LambdaLR, total: int) -> LambdaLR:
    """The schedule staying at its last value; the library's cosines rise again when a run goes past its end."""

    def held(factor: Callable[[int], float]) -> Callable[[int], float]:
        return lambda step: factor(min(step, total))

    scheduler.lr_lambdas = [held(factor) for factor in scheduler.lr_lambdas]
    return scheduler


def _piecewise(step_rules: object) -> Callable[[int], float]:
    """Factor at a step, from a text like `1:10,0.1:20,0.01`."""
    rules, last = parse_step_rules(step_rules)
    return lambda step: next((factor for until, factor in rules if step < until), last)


def _constant(_: int) -> float:
    return 1.0
