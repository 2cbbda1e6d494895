"""The learning-rate schedules that `lr_scheduler` can name, and what is wrong with a choice. No torch.

`choose_schedule` reads the options; `sd_scripts.training.schedulers` builds what it chose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from sd_scripts.errors import ConfigError
from sd_scripts.options.arguments import check_arguments, did_you_mean, parse_arguments
from sd_scripts.options.class_files import Signature, class_names, is_installed, signature
from sd_scripts.options.optimizer_names import choose_optimizer
from sd_scripts.options.problems import Problem, as_problem, note, warning

Steps = int | float | str


class SchedulerOptions(Protocol):
    """The options read here; every recipe has them."""

    lr_scheduler: str
    lr_scheduler_type: str | None
    lr_scheduler_args: list[str] | None
    lr_warmup_steps: Steps
    lr_decay_steps: Steps
    lr_scheduler_num_cycles: int
    lr_scheduler_power: float
    lr_scheduler_timescale: int | None
    lr_scheduler_min_lr_ratio: float | None
    learning_rate: float


_PLATEAU = ("mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps", "window")
_TEXTS = {"mode", "threshold_mode", "warmup_type", "decay_type", "step_rules"}
_FLOOR = ("min_lr", "min_lr_rate", "num_cycles")

# Name -> arguments that lr_scheduler_args may give it.
SCHEDULES: dict[str, Signature] = {
    name: Signature(accepted, required, not_text=frozenset(accepted) - _TEXTS)
    for name, accepted, required in (
        ("constant", (), ()),
        ("constant_with_warmup", (), ()),
        ("linear", (), ()),
        ("cosine", ("num_cycles",), ()),
        ("cosine_with_restarts", ("num_cycles",), ()),
        ("polynomial", ("lr_end", "power"), ()),
        ("inverse_sqrt", ("timescale",), ()),
        ("cosine_with_min_lr", _FLOOR, ()),
        ("cosine_warmup_with_min_lr", (*_FLOOR, "warmup_lr_rate"), ()),
        ("warmup_stable_decay", ("warmup_type", "decay_type", "min_lr_ratio", "num_cycles"), ()),
        ("piecewise_constant", ("step_rules",), ("step_rules",)),
        ("reduce_lr_on_plateau", _PLATEAU, ()),
        ("adafactor", (), ()),
    )
}
WITHOUT_WARMUP = ("piecewise_constant", "reduce_lr_on_plateau", "adafactor")
_PLATEAU_CLASS = "torch.optim.lr_scheduler.ReduceLROnPlateau"
_UNUSABLE = {
    "LambdaLR": "it needs Python functions",
    "MultiplicativeLR": "it needs Python functions",
    "SequentialLR": "it needs other schedulers",
    "ChainedScheduler": "it needs other schedulers",
    "LRScheduler": "it is only the base of the others",
}


@dataclass(frozen=True)
class ScheduleChoice:
    """What the options ask for: a name of the table or the path of a class, and what lr_scheduler_args gives it."""

    name: str | None
    path: str | None
    arguments: dict[str, Any]


def choose_schedule(cfg: SchedulerOptions) -> ScheduleChoice:
    """Resolve name and arguments.

    Raises ConfigError: unknown name, missing package, wrong argument, a warm-up that is not possible.
    """
    arguments = parse_arguments("lr_scheduler_args", cfg.lr_scheduler_args)
    for option in ("lr_warmup_steps", "lr_decay_steps"):
        count_steps(option, getattr(cfg, option), total=1)
    if cfg.lr_scheduler_type:
        return _choose_class(cfg, arguments)
    name = (cfg.lr_scheduler or "constant").casefold()
    if name not in SCHEDULES:
        hint = did_you_mean(name, SCHEDULES) or "; known: " + ", ".join(SCHEDULES)
        raise ConfigError("lr_scheduler", cfg.lr_scheduler, f"unknown{hint}")
    check_arguments("lr_scheduler_args", arguments, name, SCHEDULES[name])
    floors = [n for n in ("min_lr", "min_lr_rate", "min_lr_ratio") if n in arguments and name != "reduce_lr_on_plateau"]
    floors += ["lr_scheduler_min_lr_ratio"] if cfg.lr_scheduler_min_lr_ratio is not None and floors else []
    if len(floors) > 1:
        raise ConfigError("lr_scheduler_args", floors[0], f"excludes {floors[1]}; give one of them")
    if name == "piecewise_constant":
        parse_step_rules(arguments["step_rules"])
    return ScheduleChoice(name, None, arguments)


def check_scheduler(cfg: SchedulerOptions, total_steps: int | None = None) -> list[Problem]:
    """Everything that can be said about the scheduler options without importing it.

    Args:
        total_steps: optimizer steps of the run, where they are known.
    """
    try:
        choice = choose_schedule(cfg)
        if total_steps is not None:
            phase_steps(cfg, total_steps)
        _adafactor_fits(cfg, choice)
    except ConfigError as failure:
        return [as_problem(failure)]
    if _is_schedule_free(cfg):
        return _schedule_free_notes(cfg)
    return _notes(cfg, choice)


def count_steps(option: str, value: Steps, total: int) -> int:
    """Steps from a number of steps (whole, >= 1), a share of the run (below 1) or a text like "10%". 0 is none.

    A share of `total` steps is rounded down. Raises ConfigError for anything else.
    """
    number, is_share = _number(option, value)
    if number < 0:
        raise ConfigError(option, value, "must not be negative")
    if is_share or number < 1:
        if not number <= 1:
            raise ConfigError(option, value, "is more than the whole run")
        return int(number * total)
    if not number.is_integer():  # nor are NaN and infinity
        raise ConfigError(option, value, 'must be a whole number of steps, a share below 1, or a text like "10%"')
    return int(number)


def phase_steps(cfg: SchedulerOptions, total_steps: int) -> tuple[int, int]:
    """(warm-up, decay) in optimizer steps. Raises ConfigError if warmup_stable_decay has no room for both."""
    warmup = count_steps("lr_warmup_steps", cfg.lr_warmup_steps, total_steps)
    decay = count_steps("lr_decay_steps", cfg.lr_decay_steps, total_steps)
    is_named = not cfg.lr_scheduler_type and (cfg.lr_scheduler or "").casefold() == "warmup_stable_decay"
    if is_named and warmup + decay > total_steps:
        text = f"with {warmup} steps of warm-up it is longer than the run of {total_steps} steps"
        raise ConfigError("lr_decay_steps", cfg.lr_decay_steps, text)
    return warmup, decay


def parse_step_rules(rules: object) -> tuple[list[tuple[int, float]], float]:
    """([(until step, factor), …], factor afterwards) from a text like `1:10,0.1:20,0.01`."""
    text = str(rules)
    *steps, last = text.split(",")
    try:
        found = [(int(until), float(factor)) for factor, until in (rule.split(":") for rule in steps)]
        return sorted(found), float(last)
    except ValueError:
        reason = "must look like '1:10,0.1:20,0.01': factor 1 until step 10, 0.1 until step 20, then 0.01"
        raise ConfigError("lr_scheduler_args", f"step_rules={text}", reason) from None


def _number(option: str, value: Steps) -> tuple[float, bool]:
    """(number, whether it is a share) of a number or text."""
    text = str(value).strip()
    try:
        return (float(text[:-1]) / 100, True) if text.endswith("%") else (float(text), False)
    except ValueError:
        raise ConfigError(option, value, 'must be a number of steps, a share below 1, or a text like "10%"') from None


def _choose_class(cfg: SchedulerOptions, arguments: dict[str, Any]) -> ScheduleChoice:
    """The class that lr_scheduler_type names: one of torch, in any case, or any by its path."""
    name = cfg.lr_scheduler_type or ""
    library = "torch.optim.lr_scheduler"
    path = name
    if "." not in name:
        by_folded = {n.casefold(): n for n in class_names(library)}
        if name.casefold() not in by_folded:
            hint = did_you_mean(name, by_folded.values())
            raise ConfigError("lr_scheduler_type", name, f"no class of {library}{hint}")
        path = f"{library}.{by_folded[name.casefold()]}"
    short = path.split(".")[-1]
    if path.startswith(library) and short in _UNUSABLE:
        raise ConfigError("lr_scheduler_type", name, f"cannot be made from options: {_UNUSABLE[short]}")
    if not is_installed(path):
        raise ConfigError("lr_scheduler_type", name, f"needs a package that is missing: {path.split('.')[0]}")
    if count_steps("lr_warmup_steps", cfg.lr_warmup_steps, total=1000):
        text = f"lr_scheduler_type ({short}) has no warm-up; set it to 0, or choose a name in lr_scheduler"
        raise ConfigError("lr_warmup_steps", cfg.lr_warmup_steps, text)
    if path == _PLATEAU_CLASS:
        check_arguments("lr_scheduler_args", arguments, short, SCHEDULES["reduce_lr_on_plateau"])
        return ScheduleChoice("reduce_lr_on_plateau", None, arguments)
    if found := signature(path):
        check_arguments("lr_scheduler_args", arguments, short, found)
    return ScheduleChoice(None, path, arguments)


def _adafactor_fits(cfg: SchedulerOptions, choice: ScheduleChoice) -> None:
    if choice.name != "adafactor" or not hasattr(cfg, "optimizer_type"):
        return
    if not choose_optimizer(cfg).has_relative_step:
        raise ConfigError("lr_scheduler", choice.name, "works only with optimizer_type AdaFactor and its relative_step")


def _is_schedule_free(cfg: SchedulerOptions) -> bool:
    return "schedulefree" in (getattr(cfg, "optimizer_type", None) or "").casefold()


def _schedule_free_notes(cfg: SchedulerOptions) -> list[Problem]:
    if cfg.lr_scheduler_type or (cfg.lr_scheduler or "constant").casefold() != "constant":
        return [note("lr_scheduler", "does not act with a schedule-free optimizer")]
    if count_steps("lr_warmup_steps", cfg.lr_warmup_steps, total=1000):
        remedy = 'give "warmup_steps=…" in optimizer_args'
        return [note("lr_warmup_steps", "does not act with a schedule-free optimizer", remedy)]
    return []


def _notes(cfg: SchedulerOptions, choice: ScheduleChoice) -> list[Problem]:
    notes = []
    if choice.name in WITHOUT_WARMUP and count_steps("lr_warmup_steps", cfg.lr_warmup_steps, total=1000):
        notes.append(warning("lr_warmup_steps", f"{choice.name} has no warm-up", "set it to 0"))
    is_floored = choice.name in ("cosine_with_min_lr", "cosine_warmup_with_min_lr")
    if is_floored and cfg.lr_scheduler_min_lr_ratio is None and not choice.arguments.keys() & {"min_lr", "min_lr_rate"}:
        text = f"{choice.name} without a floor falls to 0"
        notes.append(note("lr_scheduler_min_lr_ratio", text, "set it, e.g. to 0.1"))
    return notes
