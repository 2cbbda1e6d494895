"""The optimizers that `optimizer_type` can name, and what is wrong with a choice.

No torch: the GUI and the checks use this. `choose_optimizer` reads the options; `sd_scripts.training.optimizers` builds
what it chose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from sd_scripts.errors import ConfigError
from sd_scripts.options.arguments import check_arguments, did_you_mean, parse_arguments
from sd_scripts.options.class_files import class_names, is_certainly_missing, is_installed, signature
from sd_scripts.options.problems import Problem, as_problem, error, note, warning


class OptimizerOptions(Protocol):
    """The options read here; every recipe has them."""

    optimizer_type: str | None
    optimizer_args: list[str] | None
    use_8bit_adam: bool
    use_lion_optimizer: bool
    learning_rate: float
    max_grad_norm: float


@dataclass(frozen=True)
class KnownOptimizer:
    """One name of the table."""

    name: str
    path: str
    install: str  # what to install, as package installers know it
    is_adaptive: bool = False  # estimates the rate itself; learning_rate is a factor, usually 1
    is_schedule_free: bool = False
    defaults: dict[str, Any] = field(default_factory=dict)  # of the arguments, where ours differ from the class's


def _named(name: str, module: str, install: str, **traits: Any) -> KnownOptimizer:
    return KnownOptimizer(name, f"{module}.{name}", install, **traits)


_NESTEROV = {"momentum": 0.9, "nesterov": True}
_ADAPTIVE = ("DAdaptAdaGrad", "DAdaptAdam", "DAdaptAdan", "DAdaptLion", "DAdaptSGD")
_BITS = ("AdamW8bit", "PagedAdamW", "PagedAdamW8bit", "PagedAdamW32bit", "Lion8bit", "PagedLion8bit")

OPTIMIZERS = {
    known.name.casefold(): known
    for known in (
        _named("AdamW", "torch.optim", "torch"),
        *(_named(name, "bitsandbytes.optim", "bitsandbytes") for name in _BITS),
        KnownOptimizer("SGDNesterov8bit", "bitsandbytes.optim.SGD8bit", "bitsandbytes", defaults=_NESTEROV),
        KnownOptimizer("SGDNesterov", "torch.optim.SGD", "torch", defaults=_NESTEROV),
        _named("Lion", "lion_pytorch", "lion-pytorch"),
        KnownOptimizer(
            "AdaFactor", "transformers.optimization.Adafactor", "transformers", defaults={"relative_step": True}
        ),
        KnownOptimizer("DAdaptation", "dadaptation.experimental.DAdaptAdamPreprint", "dadaptation", is_adaptive=True),
        _named("DAdaptAdamPreprint", "dadaptation.experimental", "dadaptation", is_adaptive=True),
        _named("DAdaptAdanIP", "dadaptation.experimental", "dadaptation", is_adaptive=True),
        *(_named(name, "dadaptation", "dadaptation", is_adaptive=True) for name in _ADAPTIVE),
        _named("Prodigy", "prodigyopt", "prodigyopt", is_adaptive=True),
        _named("CAME", "pytorch_optimizer", "pytorch-optimizer"),
        _named("RAdamScheduleFree", "schedulefree", "schedulefree", is_schedule_free=True),
        _named("AdamWScheduleFree", "schedulefree", "schedulefree", is_schedule_free=True),
        _named("SGDScheduleFree", "schedulefree", "schedulefree", is_schedule_free=True),
    )
}

# Libraries whose classes may be named without their path, in this order; the name to install of those with another one.
_LIBRARIES = ("torch.optim", "bitsandbytes.optim", "pytorch_optimizer.optimizer")
_INSTALL = {"pytorch_optimizer": "pytorch-optimizer", "prodigyplus": "prodigy-plus-schedule-free"}
_MANY_LOSSES = "it must evaluate the loss several times per step, which training with noise cannot give it"
_SECOND_ORDER = "it needs second derivatives of the loss"
_SORTED = "it needs its weights sorted into groups of a special kind"
_BASE = "it is only the base of the others"
_UNUSABLE = {
    "torch": {"LBFGS": _MANY_LOSSES, "SparseAdam": "it takes sparse gradients only", "Optimizer": _BASE},
    "bitsandbytes": {"GlobalOptimManager": "it is no optimizer"},
    "pytorch_optimizer": {
        **dict.fromkeys(("LBFGS", "AliG", "BSAM"), _MANY_LOSSES),
        **dict.fromkeys(("AdaHessian", "SophiaH"), _SECOND_ORDER),
        **dict.fromkeys(("AdaGO", "AdaMuon", "DistributedMuon", "Muon", "MuonClip", "NorMuon"), _SORTED),
        **dict.fromkeys(("Optimizer", "BaseOptimizer"), _BASE),
        "DeMo": "it works with several processes only",
        "DynamicLossScaler": "it is no optimizer",
    },
}
_NOT_WEIGHTS = (
    "optimizer",
    "base_optimizer",
    "model",
    "backbone",
)  # what some classes are made from instead of weights


@dataclass(frozen=True)
class OptimizerChoice:
    """What the options ask for: a class, its arguments (without the rate), and how it behaves."""

    path: str
    arguments: dict[str, Any]
    install: str
    is_adaptive: bool
    is_schedule_free: bool

    @property
    def has_relative_step(self) -> bool:
        """Adafactor computing its own rate from the step number."""
        return self.path.endswith(".Adafactor") and bool(self.arguments.get("relative_step"))

    @property
    def takes_one_rate(self) -> bool:
        """Whether all parts must have the same rate: adaptive ones but Prodigy Plus, which treats each group by itself."""
        return self.is_adaptive and not (
            self.path.startswith("prodigyplus.") and self.arguments.get("split_groups", True)
        )


def choose_optimizer(cfg: OptimizerOptions) -> OptimizerChoice:
    """Resolve name and arguments.

    Raises ConfigError: unknown name, missing package, wrong argument, options that exclude each other.
    """
    name = _asked_name(cfg)
    known = OPTIMIZERS.get(name.casefold()) or _library_class(name)
    if not is_installed(known.path):
        raise ConfigError("optimizer_type", name, f"needs a package that is missing; run: pip install {known.install}")
    library, _, short = known.path.rpartition(".")
    if why := _UNUSABLE.get(library.split(".")[0], {}).get(short):
        raise ConfigError("optimizer_type", name, f"cannot be used here: {why}")
    arguments = {**known.defaults, **parse_arguments("optimizer_args", cfg.optimizer_args)}
    for rate in ("lr", "params"):
        if rate in arguments:
            raise ConfigError("optimizer_args", rate, "cannot be given here; the rate is set by learning_rate")
    if known.path.endswith(".Adafactor") and arguments.get("warmup_init"):
        arguments["relative_step"] = True  # the class demands it
    if found := signature(known.path):
        if needed := [n for n in (found.subject, *found.required) if n in _NOT_WEIGHTS]:
            raise ConfigError(
                "optimizer_type", name, f"cannot be used here: it is made from {needed[0]}, not from weights"
            )
        check_arguments("optimizer_args", arguments, known.name, found.without("lr"))
    elif is_certainly_missing(known.path):
        hint = did_you_mean(short, class_names(library))
        raise ConfigError("optimizer_type", name, f"{library} has no such class{hint}")
    return OptimizerChoice(known.path, arguments, known.install, known.is_adaptive, known.is_schedule_free)


def check_optimizer(cfg: OptimizerOptions) -> list[Problem]:
    """Everything that can be said about the optimizer options without importing it."""
    try:
        choice = choose_optimizer(cfg)
    except ConfigError as failure:
        return [as_problem(failure)]
    if choice.is_adaptive:
        return _adaptive_problems(cfg, choice)
    if choice.path.endswith(".Adafactor"):
        return _adafactor_problems(cfg, choice)
    return []


def optimizer_names() -> list[str]:
    """Names to offer, as they are usually written."""
    return [known.name for known in OPTIMIZERS.values()]


def _asked_name(cfg: OptimizerOptions) -> str:
    asked = [("optimizer_type", cfg.optimizer_type or "")]
    asked += [("use_8bit_adam", "AdamW8bit" if cfg.use_8bit_adam else "")]
    asked += [("use_lion_optimizer", "Lion" if cfg.use_lion_optimizer else "")]
    given = [(option, name) for option, name in asked if name]
    if len(given) > 1:
        others = " and ".join(option for option, _ in given[:-1])
        raise ConfigError(given[-1][0], True, f"excludes {others}; keep only optimizer_type")
    return given[0][1] if given else "AdamW"


def _library_class(name: str) -> KnownOptimizer:
    """A class by its path, or by its bare name in one of the libraries."""
    if "." in name:
        top = name.split(".")[0]
        return _described(name, _INSTALL.get(top, top))
    for library in _LIBRARIES:
        by_folded = {n.casefold(): n for n in class_names(library)}
        exact = by_folded.get(name.casefold(), name)
        if exact in by_folded.values():
            top = library.split(".")[0]
            return _described(f"{library}.{exact}", _INSTALL.get(top, top))
    hint = did_you_mean(name, [*optimizer_names(), *class_names("torch.optim")])
    more = (
        ""
        if is_installed("pytorch_optimizer")
        else "; for those of pytorch-optimizer run: pip install pytorch-optimizer"
    )
    raise ConfigError("optimizer_type", name, f"unknown{hint or '; known: ' + ', '.join(optimizer_names())}{more}")


def _described(path: str, install: str) -> KnownOptimizer:
    name = path.split(".")[-1]
    folded = name.casefold()
    if (known := OPTIMIZERS.get(folded)) and known.path == path:  # not SGDNesterov for SGD: that has its own arguments
        return known
    defaults = {"relative_step": True} if path == "transformers.Adafactor" else {}
    return KnownOptimizer(
        name, path, install, folded.startswith(("dadapt", "prodigy")), "schedulefree" in folded, defaults
    )


def _adaptive_problems(cfg: OptimizerOptions, choice: OptimizerChoice) -> list[Problem]:
    problems = []
    rates = sorted(part_rates(cfg) - {0.0})
    if len(rates) > 1 and choice.takes_one_rate:
        text = f"this optimizer finds one rate for all parts; {', '.join(f'{r:g}' for r in rates)} cannot differ"
        problems.append(error("optimizer_type", text, "give all parts the same rate, usually 1, or 0 to leave one out"))
    if rates and rates[0] <= 0.1:
        text = f"{rates[0]:g} is a factor on the rate that this optimizer finds itself"
        problems.append(warning("learning_rate", text, "1 is usual"))
    return problems


def part_rates(cfg: OptimizerOptions) -> set[float]:
    """Effective rates of the parts that are trained, as far as all families have them."""
    base = cfg.learning_rate
    unet = getattr(cfg, "unet_lr", None)
    text = getattr(cfg, "text_encoder_lr", None)
    rates = set()
    if not getattr(cfg, "network_train_text_encoder_only", False):
        rates.add(base if unet is None else unet)
    if hasattr(cfg, "text_encoder_lr") and not getattr(cfg, "network_train_unet_only", False):
        rates.update([base] if text in (None, []) else text if isinstance(text, list) else [text])
    if getattr(cfg, "train_text_encoder", False):
        own = (getattr(cfg, name, None) for name in ("learning_rate_te", "learning_rate_te1", "learning_rate_te2"))
        rates.update(rate for rate in own if rate is not None)
    return rates


def _adafactor_problems(cfg: OptimizerOptions, choice: OptimizerChoice) -> list[Problem]:
    if choice.has_relative_step:
        problems = []
        remedy = 'add "relative_step=False" to optimizer_args to use'
        if len(part_rates(cfg)) > 1:
            text = "AdaFactor with relative_step sets one rate itself; those of the parts do not act"
            problems.append(warning("optimizer_type", text, f"{remedy} them"))
        schedule = getattr(cfg, "lr_scheduler", "constant")
        if schedule not in ("constant", "adafactor"):
            text = f"{schedule} does not act: AdaFactor with relative_step sets the rate itself"
            problems.append(warning("lr_scheduler", text, f"{remedy} it"))
        return problems
    advice = []
    if cfg.max_grad_norm != 0:
        advice.append(note("max_grad_norm", "AdaFactor limits its steps itself", "0 is usual with it"))
    if choice.arguments.get("clip_threshold", 1.0) != 1.0:
        advice.append(note("optimizer_args", "clip_threshold is usually 1.0 with a fixed rate"))
    return advice
