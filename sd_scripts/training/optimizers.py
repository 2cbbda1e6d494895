"""Make the optimizer that the options name, and speak to all of them in one way.

Names, packages and arguments are resolved without torch in `sd_scripts.options.optimizer_names`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.optim import Optimizer

from sd_scripts.errors import ConfigError
from sd_scripts.options.arguments import did_you_mean
from sd_scripts.options.optimizer_names import OptimizerChoice, OptimizerOptions, choose_optimizer
from sd_scripts.training.split_optimizer import SplitOptimizer, Stepping


def make_optimizer(
    cfg: OptimizerOptions, param_groups: Sequence[dict[str, Any]], stepping: Stepping | None = None
) -> tuple[Optimizer, str]:
    """The optimizer, ready to train, and its description for the metadata: `module.Class(key=value,…)`.

    Args:
        param_groups: dicts with "params" and, where it differs from `learning_rate`, "lr".
        stepping: go through the weights in parts.

    Raises ConfigError for everything that the user can mend: unknown name, missing package, wrong argument, rates that
    the optimizer cannot take.
    """
    choice = choose_optimizer(cfg)
    cls = import_class("optimizer_type", choice.path, choice.install)
    groups = [dict(group) for group in param_groups]
    if choice.takes_one_rate:
        _require_one_rate(choice, [group.get("lr", cfg.learning_rate) for group in groups])
    if choice.has_relative_step:
        groups = [{key: value for key, value in group.items() if key != "lr"} for group in groups]
        rate = None
    else:
        rate = _default_rate(cfg.learning_rate, groups)

    def make(some_groups: Sequence[dict[str, Any]]) -> Optimizer:
        optimizer = construct("optimizer_args", cls, some_groups, {"lr": rate, **choice.arguments})
        if not isinstance(optimizer, Optimizer):
            raise ConfigError("optimizer_type", choice.path, "is no optimizer of torch; name a class that is one")
        train_mode(optimizer)
        keep_number_formats(optimizer)
        return optimizer

    if stepping is None:
        optimizer = make(groups)
    elif choice.is_adaptive and not stepping.is_fused:
        everything = [p for group in groups for p in group["params"]]
        optimizer = SplitOptimizer(make, groups, replace(stepping, parts=[everything]))
    elif choice.is_adaptive:
        reason = (
            "finds one rate from all weights together, so they cannot be stepped in parts; choose another optimizer"
        )
        raise ConfigError("optimizer_type", choice.path.split(".")[-1], reason)
    else:
        optimizer = SplitOptimizer(make, groups, stepping)
    return optimizer, describe(cls, choice.arguments)


def keep_number_formats(optimizer: Optimizer) -> None:
    """See that a loaded state keeps the number formats it was saved in.

    torch gives all of it the format of the weights: averages kept in float32 beside bfloat16 weights would lose most of
    their digits, and 8-bit ones all meaning. bitsandbytes has a way of its own, which does not come by here.
    """
    loaded: list[dict[str, Any]] = []

    def remember(_: Optimizer, state_dict: dict[str, Any]) -> None:
        loaded[:] = [state_dict]

    def restore(optimizer: Optimizer) -> None:
        saved = loaded.pop()
        numbers = [number for group in saved["param_groups"] for number in group["params"]]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for number, parameter in zip(numbers, parameters, strict=True):
            state, kept = optimizer.state.get(parameter, {}), saved["state"].get(number, {})
            for key, value in kept.items():
                if torch.is_tensor(value) and value.dtype != state[key].dtype:
                    state[key] = value.to(state[key].device)

    optimizer.register_load_state_dict_pre_hook(remember)
    optimizer.register_load_state_dict_post_hook(restore)


def is_fused(optimizer: Optimizer) -> bool:
    """Whether weights are stepped inside the backward pass: there are no gradients after it."""
    return isinstance(optimizer, SplitOptimizer) and optimizer.is_fused


def describe(cls: type, arguments: dict[str, Any]) -> str:
    """`module.Class`, followed by the arguments in brackets if there are any."""
    listed = ",".join(f"{key}={value}" for key, value in arguments.items())
    return f"{cls.__module__}.{cls.__name__}" + (f"({listed})" if listed else "")


def import_class(option: str, path: str, install: str) -> type:
    """The class at a path. Raises ConfigError if it cannot be imported or is not there."""
    module_path, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_path)
    except ImportError as failure:
        raise ConfigError(
            option, path, f"cannot be imported ({failure}); check the path, or run: pip install {install}"
        ) from failure
    if not isinstance(getattr(module, name, None), type):
        raise ConfigError(option, path, f"{module_path} has no such class{did_you_mean(name, dir(module))}")
    return getattr(module, name)


def construct(option: str, make: Callable[..., Any], subject: object, arguments: dict[str, Any]) -> Any:
    """`make(subject, **arguments)`, with its complaint as a ConfigError."""
    try:
        return make(subject, **arguments)
    except (TypeError, ValueError, AttributeError, AssertionError) as failure:
        given = ", ".join(f"{key}={value}" for key, value in arguments.items())
        raise ConfigError(
            option, given, f"{make.__name__} refuses this: {failure or 'a check of its own'}"
        ) from failure


def train_mode(optimizer: Optimizer) -> None:
    """Put the weights to train into the model (schedule-free optimizers keep two sets); nothing for others."""
    if is_schedule_free(optimizer):
        optimizer.train()


def eval_mode(optimizer: Optimizer) -> None:
    """Put the weights to use into the model (schedule-free optimizers keep two sets); nothing for others."""
    if is_schedule_free(optimizer):
        optimizer.eval()


@contextmanager
def evaluation_weights(optimizer: Optimizer) -> Iterator[None]:
    """The model holds the weights to use inside the block; afterwards, bit for bit, what it held before.

    `eval_mode` and `train_mode` compute one set from the other and round; a run with samples would so drift from one
    without.
    """
    if not is_schedule_free(optimizer):
        yield
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    kept = [p.detach().clone() for p in parameters]
    was_training = [group["train_mode"] for group in optimizer.param_groups]
    eval_mode(optimizer)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, kept, strict=True):
                parameter.copy_(value)
        for group, mode in zip(optimizer.param_groups, was_training, strict=True):
            group["train_mode"] = mode


def is_schedule_free(optimizer: Optimizer) -> bool:
    """Whether the optimizer needs no schedule and has a training and an evaluation mode."""
    return all("train_mode" in group for group in optimizer.param_groups)


def d_times_lr(optimizer: Optimizer) -> list[float] | None:
    """d x rate of every group of an optimizer that finds its rate itself (Prodigy, D-Adaptation); None for others."""
    groups = optimizer.param_groups
    if not all("d" in group for group in groups):
        return None
    return [float(group["d"]) * float(group["lr"]) for group in groups]


def _default_rate(base: float, groups: Sequence[dict[str, Any]]) -> float:
    """The rate given to the constructor. All groups may have rates of their own while the base rate is 0, and Lion and
    others refuse 0 there; so the largest of the groups stands in."""
    return base if base > 0 else max((group.get("lr", base) for group in groups), default=base)


def _require_one_rate(choice: OptimizerChoice, rates: Sequence[float]) -> None:
    different = sorted(set(rates) - {0.0})
    if len(different) > 1:
        text = f"finds one rate for all parts, but they have {', '.join(f'{rate:g}' for rate in different)}"
        raise ConfigError(
            "optimizer_type", choice.path.split(".")[-1], f"{text}; give all the same, or 0 to leave one out"
        )
