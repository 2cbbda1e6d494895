"""What only the first process of a run does: write files and draw samples, and upload what was written."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from sd_scripts.errors import UserError
from sd_scripts.training.disk import CannotSave, bytes_when_saved, require_space
from sd_scripts.training.guards import NotFinite
from sd_scripts.training.hub import Uploader, make_client
from sd_scripts.training.model_writer import ModelWriter
from sd_scripts.training.samples import SampleDrawer
from sd_scripts.training.saving import FileNames, Saver
from sd_scripts.training.state import Trained, write_state
from sd_scripts.training.state_folder import Position
from sd_scripts.training.state_record import Record

if TYPE_CHECKING:
    from sd_scripts.plan import Plan
    from sd_scripts.training.run import Run

logger = logging.getLogger(__name__)

WIDTHS = {None: None, "float": 4, "fp16": 2, "bf16": 2}  # bytes of a number in a file


class Outputs:
    """Writes a run's files: under their names, told to the report, and uploaded where that is asked for."""

    def __init__(self, run: Run, plan: Plan, trained: Trained, optimizer_name: str, record: Record):
        self._run = run
        self._trained = trained
        self._record = record
        self._writer = ModelWriter(run, plan, optimizer_name)
        self._model_bytes = model_bytes(run, trained)
        options = run.options
        self.uploader = (
            Uploader(options, run.report, make_client(options.huggingface_token))
            if options.huggingface_repo_id
            else None
        )

    def write_model(self, path: Path) -> None:
        """Write the weights that are saved: the average, where there is one."""
        run = self._run
        run.report.phase("saving")
        require_space(path, self._model_bytes)
        self._settle(path)
        with run.final_weights():
            self._writer.write(path)
        run.report.checkpoint("model", run.step, run.epoch, path)
        run.report.phase("training")
        if self.uploader is not None:
            self.uploader.upload(path)

    def write_final_model(self, path: Path) -> None:
        """As `write_model`; where the disk is full, the weights are kept somewhere else before the run fails."""
        try:
            self.write_model(path)
        except NotFinite:
            raise
        except UserError as failure:
            raise CannotSave(f"{failure}{self._kept_elsewhere(path)}") from failure

    def write_state(self, path: Path) -> None:
        run = self._run
        run.report.phase("saving")
        position = Position(
            run.step, run.epoch, run.seed, run.steps.batches_per_epoch, run.steps.accumulation, run.skipped_steps
        )
        self._settle(path)
        write_state(path, position, self._trained, self._record)
        run.report.checkpoint("state", run.step, run.epoch, path)
        run.report.phase("training")
        if self.uploader is not None and run.options.save_state_to_huggingface:
            self.uploader.upload(path)

    def before_removal(self, path: Path) -> None:
        self._settle(path)

    def finish(self) -> None:
        if self.uploader is not None:
            self.uploader.finish()

    def _settle(self, path: Path) -> None:
        """What is being uploaded must not change meanwhile."""
        if self.uploader is not None:
            self.uploader.settle(path)

    def _kept_elsewhere(self, path: Path) -> str:
        for place in (self._run.folder.path, Path(tempfile.gettempdir())):
            other = place / path.name
            try:
                require_space(other, self._model_bytes)
                with self._run.final_weights():
                    self._writer.write(other)
            except UserError as failure:
                logger.warning("%s", failure)
                continue
            return f"; the weights are kept in {other}: move them once there is room"
        return ""


def model_bytes(run: Run, trained: Trained) -> int:
    """What the finished file takes: what is trained, or the whole model."""
    architecture = run.architecture
    tensors = list(trained.parameters.values())
    if run.method.trains_base_weights:
        networks = (architecture.denoiser, architecture.vae, *architecture.text_encoders)
        tensors = [tensor for network in networks for tensor in network.parameters()]
    return bytes_when_saved(tensors, WIDTHS[run.options.save_precision])


def add_outputs(run: Run, plan: Plan, trained: Trained, optimizer_name: str, record: Record) -> None:
    """Give the run its saver and its drawer of samples."""
    options = run.options
    is_folder = options.save_model_as.startswith("diffusers")
    suffix = "" if is_folder else f".{options.save_model_as}"
    names = FileNames(Path(options.output_dir), options.output_name, suffix)
    outputs = Outputs(run, plan, trained, optimizer_name, record)
    run.saver = Saver(
        options,
        run.steps,
        names,
        outputs.write_model,
        outputs.write_state,
        write_final_model=outputs.write_final_model,
        on_failure=run.report.warning,
        before_removal=outputs.before_removal,
    )
    run.samples = SampleDrawer(options, plan.prompts, run.architecture, names, run.report, run.seed, run.final_weights)
    run.outputs = outputs
