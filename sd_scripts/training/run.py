"""A run: its parts, where it stands, and the questions that the loop asks it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn

from sd_scripts.training.guards import all_finite, what_is_wrong
from sd_scripts.training.optimizers import d_times_lr, evaluation_weights
from sd_scripts.training.report import StepNumbers

if TYPE_CHECKING:
    from accelerate import Accelerator

    from sd_scripts.data.batch import Batch
    from sd_scripts.data.loader import Loader
    from sd_scripts.data.plan import DataPlan
    from sd_scripts.methods.base import Method
    from sd_scripts.models.base import Architecture
    from sd_scripts.options.recipes import TrainingOptions
    from sd_scripts.training.ema import Ema
    from sd_scripts.training.guards import NanGuard
    from sd_scripts.training.outputs import Outputs
    from sd_scripts.training.processes import Processes
    from sd_scripts.training.report import Report
    from sd_scripts.training.run_folder import RunFolder
    from sd_scripts.training.samples import SampleDrawer
    from sd_scripts.training.saving import Saver
    from sd_scripts.training.steps import Steps
    from sd_scripts.training.validation import Validator

SECONDS_BETWEEN_LOOKS = 0.2  # for requests: on a network drive each look takes a while


@dataclass
class Run:
    """What the loop works on. What changes stands at the end."""

    options: TrainingOptions
    seed: int
    steps: Steps
    accelerator: Accelerator
    processes: Processes
    data: DataPlan
    architecture: Architecture
    method: Method
    trainee: nn.Module  # the method's, as wrapped for the devices
    parameters: list[nn.Parameter]  # what is trained
    optimizer: Any
    scheduler: Any
    ema: Ema | None
    loader: Loader
    report: Report
    folder: RunFolder
    saver: Saver | None = field(default=None)  # these three exist in the first process only
    samples: SampleDrawer | None = field(default=None)
    outputs: Outputs | None = field(default=None)
    validator: Validator | None = field(default=None)
    guard: NanGuard | None = field(default=None)
    first_step: int = 0  # where this process began; above 0 after a resume
    step: int = 0  # optimizer steps made
    skipped_steps: int = 0  # of these, by the guard
    is_stopped: bool = False
    _latent_checks: list[Tensor] = field(default_factory=list)
    _next_look: float = 0.0  # for requests; time.monotonic()

    @property
    def epoch(self) -> int:
        """Epochs begun so far; what files and events call the epoch."""
        return self.steps.epoch_of(max(self.step - 1, 0)) + 1

    def learning_rates(self) -> dict[str, float]:
        """The rate of each group by its name, as it will act in the next step; for self-tuning optimizers what
        they make of it."""
        rates = d_times_lr(self.optimizer.optimizer)
        return self.own_rates() if rates is None else dict(zip(self.own_rates(), rates, strict=True))

    def own_rates(self) -> dict[str, float]:
        """The rate of each group by its name, as the schedule has made it."""
        return {group["name"]: group["lr"] for group in self.optimizer.param_groups}

    def has_own_rate(self) -> bool:
        """Whether the optimizer finds the rate itself."""
        return all("d" in group for group in self.optimizer.param_groups)

    def learning_rates_at_full(self) -> dict[str, float]:
        """The rate of each group before the schedule acts on it."""
        return {group["name"]: group.get("initial_lr", group["lr"]) for group in self.optimizer.param_groups}

    def encode(self, pixels: Tensor, generators: Sequence[Generator]) -> Tensor:
        """Latents (b, c, h, w) in float32 of pictures (b, 3, h, w) in uint8; each sample draws from its own
        generator."""
        size = self.options.vae_batch_size
        with torch.no_grad():
            parts = [
                self.architecture.encode_image(scaled_pixels(pixels[i : i + size]), list(generators[i : i + size]))
                for i in range(0, len(pixels), size)
            ]
        latents = torch.cat(parts).float()
        self._latent_checks.append(torch.isfinite(latents).all())
        return latents

    def numbers(self, loss: Tensor, gradient_norm: Tensor | None, group: Sequence[Batch]) -> StepNumbers:
        """What the report needs of the step that is just being made."""
        checks, self._latent_checks = self._latent_checks, []
        return StepNumbers(
            self.step + 1,
            self.steps.epoch_of(self.step) + 1,
            loss,
            gradient_norm,
            torch.stack(checks).all() if checks else None,
            tuple(self.data.samples[i % len(self.data.samples)].path.name for batch in group for i in batch.indices),
        )

    def weights_are_finite(self) -> bool:
        return all_finite(self.parameters)

    @contextmanager
    def final_weights(self) -> Iterator[None]:
        """Within it the model holds the weights that are saved: the running average, or a schedule-free optimizer's."""
        average = self.ema.swapped() if self.ema is not None else nullcontext()
        with evaluation_weights(self.optimizer.optimizer), average, self.accelerator.autocast():
            yield

    def before_first_step(self) -> None:
        if self.step == 0 and self.samples is not None:
            self.samples.at_first()
        self.processes.wait()

    def after_step(self, numbers: StepNumbers) -> None:
        """A step is made: report it; write, draw, measure and look for requests, as is due."""
        self.step += 1
        numbers.rates = self.learning_rates()
        numbers.own_rates = self.own_rates() if self.has_own_rate() else None
        self.report.step(numbers)
        if self.saver is not None and self.samples is not None:
            self.saver.after_step(self.step)
            self.samples.after_step(self.step, self.epoch)
        if self.validator is not None:
            self.validator.after_step(self.step)
        self._follow_requests()

    def after_skipped_step(self, numbers: StepNumbers) -> None:
        """A step whose numbers are not finite is left out; its pictures have had their turn."""
        self.step += 1
        self.skipped_steps += 1
        self.report.fetch()
        self.report.warning(f"{what_is_wrong(numbers)}; this step is left out")
        self._follow_requests()

    def after_epoch(self, epoch: int) -> None:
        """`epoch` epochs are complete."""
        self.report.fetch()
        if self.saver is not None and self.samples is not None:
            self.saver.after_epoch(epoch)
            self.samples.after_epoch(self.step, epoch)
        if self.validator is not None:
            self.validator.after_epoch(epoch)
        self.processes.wait()

    def finish(self) -> None:
        """The run is over or stopped: write the final files."""
        self.report.fetch()
        if self.validator is not None:
            self.validator.at_end()
            self.validator.close()
        if self.saver is not None:
            self.saver.at_end()
        if self.outputs is not None:
            self.outputs.finish()
        self.processes.wait()
        self.loader.close()

    def _follow_requests(self) -> None:
        """Stop, save or draw when someone asked for it; all processes stop at the same step."""
        now = time.monotonic()
        if self.saver is not None and self.samples is not None and now >= self._next_look:
            self._next_look = now + SECONDS_BETWEEN_LOOKS
            if self.folder.take_request("save"):
                self.saver.now(self.step)
            if self.folder.take_request("sample"):
                self.samples.draw(f"{self.step:06d}", self.step, self.epoch)
            if self.folder.take_request("stop_after_save"):
                self.saver.keeps_state_at_end = self.is_stopped = True
            self.is_stopped |= self.folder.take_request("stop")
        self.is_stopped = self.processes.first_says(self.is_stopped)


def scaled_pixels(pixels: Tensor) -> Tensor:
    """Pictures in -1…1 from uint8; made on the device, so that a quarter of the bytes travels."""
    return pixels.float() / 127.5 - 1
