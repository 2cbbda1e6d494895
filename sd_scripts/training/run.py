"""A run: its parts, where it stands, and the questions that the loop asks it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn

from sd_scripts.training.optimizers import d_times_lr, evaluation_weights

if TYPE_CHECKING:
    from accelerate import Accelerator

    from sd_scripts.data.loader import Loader
    from sd_scripts.methods.base import Method
    from sd_scripts.models.base import Architecture
    from sd_scripts.options.recipes import TrainingOptions
    from sd_scripts.training.ema import Ema
    from sd_scripts.training.report import Report
    from sd_scripts.training.run_folder import RunFolder
    from sd_scripts.training.samples import SampleDrawer
    from sd_scripts.training.saving import Saver
    from sd_scripts.training.steps import Steps


@dataclass
class Run:
    """What the loop works on. Only `step` and `is_stopped` change."""

    options: TrainingOptions
    seed: int
    steps: Steps
    accelerator: Accelerator
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
    saver: Saver | None = field(default=None)  # these two exist in the first process only
    samples: SampleDrawer | None = field(default=None)
    first_step: int = 0  # where this process began; above 0 after a resume
    step: int = 0  # optimizer steps made
    is_stopped: bool = False

    @property
    def epoch(self) -> int:
        """Epochs begun so far; what files and events call the epoch."""
        return self.steps.epoch_of(max(self.step - 1, 0)) + 1

    def learning_rates(self) -> dict[str, float]:
        """The rate of each group by its name, as it will act in the next step; for self-tuning optimizers what
        they make of it."""
        groups = self.optimizer.param_groups
        rates = d_times_lr(self.optimizer.optimizer) or [group["lr"] for group in groups]
        return {group["name"]: rate for group, rate in zip(groups, rates, strict=True)}

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
        return torch.cat(parts).float()

    @contextmanager
    def final_weights(self) -> Iterator[None]:
        """Within it the model holds the weights that are saved: the running average, or a schedule-free optimizer's."""
        average = self.ema.swapped() if self.ema is not None else nullcontext()
        with evaluation_weights(self.optimizer.optimizer), average, self.accelerator.autocast():
            yield

    def before_first_step(self) -> None:
        if self.step == 0 and self.samples is not None:
            self.samples.at_first()
        self.accelerator.wait_for_everyone()

    def between_steps(self) -> None:
        """Write, draw and look for requests, as is due at this step."""
        if self.saver is not None and self.samples is not None:
            self.saver.after_step(self.step)
            self.samples.after_step(self.step, self.epoch)
        self._follow_requests()

    def after_epoch(self, epoch: int) -> None:
        """`epoch` epochs are complete."""
        if self.saver is not None and self.samples is not None:
            self.report.fetch()
            self.saver.after_epoch(epoch)
            self.samples.after_epoch(self.step, epoch)

    def finish(self) -> None:
        """The run is over or stopped: write the final files."""
        self.report.fetch()
        if self.saver is not None:
            self.saver.at_end()
        self.accelerator.wait_for_everyone()
        self.loader.close()

    def _follow_requests(self) -> None:
        """Stop, save or draw when someone asked for it; all processes stop at the same step."""
        if self.saver is not None and self.samples is not None:
            if self.folder.take_request("save"):
                self.saver.now(self.step)
            if self.folder.take_request("sample"):
                self.samples.draw(f"{self.step:06d}", self.step, self.epoch)
            self.is_stopped = self.folder.take_request("stop")
        if self.accelerator.num_processes > 1:
            self.is_stopped = self._first_process_says(self.is_stopped)

    def _first_process_says(self, answer: bool) -> bool:
        from accelerate.utils import broadcast

        return bool(broadcast(torch.tensor([answer], device=self.accelerator.device)).item())


def scaled_pixels(pixels: Tensor) -> Tensor:
    """Pictures in -1…1 from uint8; made on the device, so that a quarter of the bytes travels."""
    return pixels.float() / 127.5 - 1
