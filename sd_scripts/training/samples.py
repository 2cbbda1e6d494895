"""Sample pictures during training: when they are drawn, under which name, and that nothing else changes by it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

from sd_scripts.options.output import Samples
from sd_scripts.seeds import seed_of
from sd_scripts.training.guards import is_black
from sd_scripts.training.report import Report
from sd_scripts.training.saving import FileNames

if TYPE_CHECKING:
    from sd_scripts.models.base import Architecture
    from sd_scripts.training.prompts import SamplePrompt

logger = logging.getLogger(__name__)


class SampleDrawer:
    """Draws the prompts with the model as it is. A failure is reported and training goes on.

    Args:
        final_weights: context in which the model holds the weights that would be saved (average, evaluation mode).
    """

    def __init__(
        self,
        options: Samples,
        prompts: Sequence[SamplePrompt],
        architecture: Architecture,
        names: FileNames,
        report: Report,
        seed: int,
        final_weights: Callable[[], AbstractContextManager],
    ):
        self._options = options
        self._prompts = prompts
        self._architecture = architecture
        self._names = names
        self._report = report
        self._seed = seed
        self._final_weights = final_weights

    def at_first(self) -> None:
        if self._options.sample_at_first:
            self.draw("e000000", 0, 0)

    def after_step(self, step: int, epoch: int) -> None:
        every = self._options.sample_every_n_steps
        if every and not self._options.sample_every_n_epochs and step % every == 0:
            self.draw(f"{step:06d}", step, epoch)

    def after_epoch(self, step: int, epoch: int) -> None:
        every = self._options.sample_every_n_epochs
        if every and epoch % every == 0:
            self.draw(f"e{epoch:06d}", step, epoch)

    def draw(self, mark: str, step: int, epoch: int) -> None:
        """Draw all prompts now."""
        self._report.phase("drawing samples")
        with self._final_weights():
            for index, prompt in enumerate(self._prompts):
                try:
                    self._draw_one(mark, step, epoch, index, prompt)
                except Exception as failure:  # noqa: BLE001 - whatever it is: training is worth more than a picture
                    reason = str(failure).splitlines()[0] if str(failure) else type(failure).__name__
                    self._report.warning(f"sample {index} could not be drawn ({reason}); training goes on")
                    empty_cache()
        self._report.phase("training")

    def _draw_one(self, mark: str, step: int, epoch: int, index: int, prompt: SamplePrompt) -> None:
        # A prompt without a seed gets a fixed one of its own, so that its pictures can be compared over the run.
        seed = seed_of(self._seed, "sample", index, bits=32) if prompt.seed is None else prompt.seed
        picture = self._architecture.sample(
            prompt.prompt,
            prompt.negative_prompt,
            width=prompt.width,
            height=prompt.height,
            steps=prompt.steps,
            scale=prompt.scale,
            seed=seed,
            sampler=prompt.sampler or self._options.sample_sampler,
        )
        path = self._names.sample(mark, index, time.strftime("%Y%m%d%H%M%S"), prompt.seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        picture.save(temporary, format="PNG")
        temporary.replace(path)
        self._report.sample(step, epoch, index, prompt.prompt, seed, path)
        if is_black(picture):
            self._report.warning(
                f"sample {index} is black: its values are no numbers, most likely because the VAE cannot compute in half "
                "precision; set no_half_vae, or give another vae"
            )


def empty_cache() -> None:
    """Give back what a failed picture has left on the GPU: training needs the room."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
