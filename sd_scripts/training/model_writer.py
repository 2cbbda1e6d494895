"""The finished file with its metadata: what was trained, on what, how."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sd_scripts.adapters.metadata import (
    DatasetSummary,
    DataSummary,
    ModelFile,
    RunSummary,
    SubsetSummary,
)
from sd_scripts.models.hashes import hash_in_background
from sd_scripts.versions import commit

if TYPE_CHECKING:
    from sd_scripts.data.plan import DataPlan
    from sd_scripts.plan import Plan
    from sd_scripts.training.run import Run


def data_summary(data: DataPlan, batches_per_epoch: int) -> DataSummary:
    """What the metadata says of the pictures."""
    content = data.dataset_summary()
    datasets = tuple(
        DatasetSummary(**dataset | {"subsets": tuple(SubsetSummary(**subset) for subset in dataset["subsets"])})
        for dataset in content["datasets"]
    )
    return DataSummary(datasets, content["is_from_file"], batches_per_epoch)


class ModelWriter:
    """Writes a run's weights. The base model's hash is computed beside the training and waited for at the first save."""

    def __init__(self, run: Run, plan: Plan, optimizer_name: str):
        assert plan.model is not None and plan.data is not None
        self._run = run
        self._optimizer_name = optimizer_name
        self._data = data_summary(plan.data, run.steps.batches_per_epoch)
        self._identity = plan.model.family.identity(run.architecture.predicts_v, plan.model.shapes)
        self._session = secrets.randbits(32)
        self._started_at = time.time()
        self._model = plan.model.path
        self._hashes = {path: hash_in_background(path) for path in self._hashed_files()}

    def write(self, path: Path) -> None:
        """Write the weights as they are now, atomically."""
        metadata = self._run.method.metadata(self._summary(), self._data)
        self._run.method.save(path, self._run.options.save_precision, metadata)

    def _hashed_files(self) -> list[Path]:
        if not self._run.method.records_base_files:
            return []
        vae = [Path(self._run.options.vae)] if self._run.options.vae else []
        return [path for path in (self._model, *vae) if path.is_file()]

    def _summary(self) -> RunSummary:
        run, options = self._run, self._run.options
        return RunSummary(
            session_id=self._session,
            seed=run.seed,
            started_at=self._started_at,
            finished_at=time.time(),
            epoch=run.epoch,
            step=run.step,
            num_epochs=run.steps.epochs,
            max_train_steps=run.steps.total,
            optimizer=self._optimizer_name,
            lr_scheduler=options.lr_scheduler_type or options.lr_scheduler,
            model=self._model_file(self._model),
            vae=self._model_file(Path(options.vae)) if options.vae else None,
            identity=self._identity,
            num_processes=run.accelerator.num_processes,
            commit=commit(),
        )

    def _model_file(self, path: Path) -> ModelFile:
        hashing = self._hashes.get(path)
        try:
            return ModelFile.of(str(path), hashing.result() if hashing else None)
        except OSError:  # moved away during the run: the name is still right
            return ModelFile.of(str(path))
