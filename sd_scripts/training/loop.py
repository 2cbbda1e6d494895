"""The training loop. It knows no architecture and no method by name; everything else answers a question that it asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from sd_scripts.errors import UserError
from sd_scripts.seeds import seed_of
from sd_scripts.training.batch_loss import batch_loss
from sd_scripts.training.optimizers import is_fused
from sd_scripts.training.schedulers import advance

if TYPE_CHECKING:
    from sd_scripts.data.batch import Batch
    from sd_scripts.training.run import Run


def fit(run: Run) -> Literal["done", "stopped"]:
    """Train from `run.step` to the end, or until someone asks for a stop. The finished weights are written in both cases."""
    run.report.started(run.step)
    run.before_first_step()
    run.method.set_training()  # who changes modes on the way puts them back: going through all modules takes a while
    while run.step < run.steps.total and not run.is_stopped:
        epoch = run.steps.epoch_of(run.step)
        batches = run.loader.epoch(epoch, skip_batches=run.steps.batches_before(run.step))
        for group in grouped(batches, run.steps.accumulation):
            optimizer_step(run, epoch, group)
            if run.step >= run.steps.total or run.is_stopped:
                break
        if run.step % run.steps.per_epoch == 0:
            run.after_epoch(epoch + 1)
    run.finish()
    return "stopped" if run.is_stopped else "done"


def optimizer_step(run: Run, epoch: int, group: list[Batch]) -> None:
    """One optimizer step on the batches of a group, and what is due after it."""
    losses = []
    for position, batch in enumerate(group):
        is_last = position == len(group) - 1
        number = run.step * run.steps.accumulation + position
        torch.manual_seed(seed_of(run.seed, "batch", number, run.accelerator.process_index))
        run.method.begin_batch(number, run.accelerator.process_index)
        with nullcontext() if is_last else run.accelerator.no_sync(run.trainee):
            batch_mean = batch_loss(run, epoch, batch)
            run.accelerator.backward(batch_mean / len(group))
        losses.append(batch_mean.detach())
    loss = mean_over_processes(run, torch.stack(losses).mean())
    is_stepped = is_fused(run.optimizer.optimizer)  # and its gradients, already cut to length, are gone
    if run.step == run.first_step and not is_stepped and (silent := run.method.parts_without_gradient()):
        raise UserError(
            f"{' and '.join(silent)}: the first backward pass left no gradient, so nothing would be learnt; "
            "check mixed_precision and the network's arguments"
        )
    numbers = run.numbers(loss, None if is_stepped else gradient_norm(run), group)
    if run.guard is not None and not run.guard.accepts(numbers):
        run.optimizer.zero_grad(set_to_none=True)
        run.after_skipped_step(numbers)
        return
    run.optimizer.step()
    if not run.optimizer.step_was_skipped:  # fp16: the scaler found an overflow and lowers its scale instead
        advance(run.scheduler, loss)
    run.optimizer.zero_grad(set_to_none=True)
    run.report.extra(run.method.after_step())
    if run.ema is not None:
        run.ema.update()
    run.after_step(numbers)


def gradient_norm(run: Run) -> Tensor | None:
    """Length of all gradients together, which are cut to the greatest that is allowed; still on the device."""
    if run.options.max_grad_norm:
        return run.accelerator.clip_grad_norm_(run.parameters, run.options.max_grad_norm)
    if run.accelerator.scaler is not None:  # they are still scaled
        return None
    return torch.nn.utils.get_total_norm([p.grad for p in run.parameters if p.grad is not None])


def mean_over_processes(run: Run, loss: Tensor) -> Tensor:
    """The loss over the whole batch of all processes, still on the device."""
    return run.accelerator.reduce(loss, "mean") if run.accelerator.num_processes > 1 else loss


def grouped(batches: Iterable[Batch], size: int) -> Iterator[list[Batch]]:
    """Lists of `size` batches; the last one of an epoch may be shorter, and is not lost."""
    group: list[Batch] = []
    for batch in batches:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
