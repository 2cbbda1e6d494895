"""Rules: optimizer, learning rates, schedule, length."""

from __future__ import annotations

from collections.abc import Iterator

from sd_scripts.errors import ConfigError
from sd_scripts.options.memory import Memory
from sd_scripts.options.methods import Network
from sd_scripts.options.optimizer_names import OptimizerChoice, check_optimizer, choose_optimizer
from sd_scripts.options.problems import Problem, error, note
from sd_scripts.options.rules.base import FUSED, Rule, items
from sd_scripts.options.scheduler_names import check_scheduler
from sd_scripts.options.training import Length, Optimizer, Scheduler

LORA_PLUS = ("loraplus_lr_ratio", "loraplus_unet_lr_ratio", "loraplus_text_encoder_lr_ratio")


def optimizer_is_known(options: Optimizer) -> Iterator[Problem]:
    yield from check_optimizer(options)


def scheduler_is_known(options: Scheduler) -> Iterator[Problem]:
    yield from check_scheduler(options)


def epochs_decide_over_steps(options: Length) -> Iterator[Problem]:
    if options.max_train_epochs is not None and "max_train_steps" in options.model_fields_set:
        yield note("max_train_steps", "not used, because max_train_epochs is set", "leave one of the two out")


def adaptive_optimizers_take_one_rate(options: Network) -> Iterator[Problem]:
    """LoRA+ is two rates in one part."""
    choice = _chosen(options)
    if choice is None or not choice.takes_one_rate:
        return
    for name, ratio in items(options.network_args).items():
        if name in LORA_PLUS and ratio not in ("", "1", "1.0"):
            yield error(
                "network_args",
                f"{name}={ratio}: this optimizer finds one rate for all weights",
                "leave it out, or choose another optimizer",
            )


def fused_passes_fit_the_optimizer(options: Memory) -> Iterator[Problem]:
    """Weights can be stepped one after the other unless what is done to one depends on all."""
    choice = _chosen(options)
    names = [name for name in FUSED if getattr(options, name)]
    if choice is None or not names:
        return
    if choice.is_adaptive:
        yield error(names[0], "this optimizer finds one rate from all weights together", "choose another optimizer")
    if getattr(options, "max_grad_norm", 0):
        what = "weight" if names[0] == "fused_backward_pass" else "group of weights"
        yield note(
            "max_grad_norm", f"acts on each {what} by itself with {names[0]}", "set it to 0 to leave them as they are"
        )


def _chosen(options: Optimizer) -> OptimizerChoice | None:
    """The optimizer that is asked for; None where that has problems of its own."""
    try:
        return choose_optimizer(options)
    except ConfigError:
        return None


RULES: tuple[Rule, ...] = (
    optimizer_is_known,
    scheduler_is_known,
    epochs_decide_over_steps,
    adaptive_optimizers_take_one_rate,
    fused_passes_fit_the_optimizer,
)
