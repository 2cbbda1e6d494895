"""The `ss_*` metadata of a network file: what it was trained on and how, in the text forms that other programs parse.

Values are Python's `str()` of the option ("None", "True", "0.0001", "(512, 512)"), JSON where the field expects it.
No path is written: of files and folders only the last name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath, PureWindowsPath

from sd_scripts.adapters.modelspec import modelspec
from sd_scripts.models.family import ModelIdentity
from sd_scripts.models.hashes import FileHashes
from sd_scripts.options.network_arguments import split_items

MINIMUM = (
    "ss_network_module", "ss_network_dim", "ss_network_alpha", "ss_network_args", "ss_v2", "ss_base_model_version",
)  # fmt: skip

# Options written as they are, under `ss_` + their name; the value stands in for options that a trainer does not have.
OPTIONS = {
    "output_name": None, "learning_rate": None, "unet_lr": None, "text_encoder_lr": None,
    "gradient_checkpointing": False, "gradient_accumulation_steps": 1, "lr_warmup_steps": 0,
    "network_module": None, "network_dropout": None,
    "mixed_precision": "no", "full_fp16": False, "fp8_base": False, "fp8_base_unet": False,
    "clip_skip": None, "max_token_length": None, "cache_latents": False, "lowram": False,
    "noise_offset": None, "noise_offset_random_strength": False, "adaptive_noise_scale": None,
    "multires_noise_iterations": None, "multires_noise_discount": 0.3,
    "ip_noise_gamma": None, "ip_noise_gamma_random_strength": False, "zero_terminal_snr": False,
    "min_snr_gamma": None, "loss_type": "l2", "huber_schedule": "snr", "huber_scale": 1.0, "huber_c": 0.1,
    "prior_loss_weight": 1.0, "scale_weight_norms": None, "max_grad_norm": 1.0,
    "caption_dropout_rate": 0.0, "caption_dropout_every_n_epochs": 0, "caption_tag_dropout_rate": 0.0,
    "face_crop_aug_range": None, "resize_interpolation": None,
    "validation_seed": None, "validation_split": 0.0, "max_validation_steps": None,
    "validate_every_n_epochs": None, "validate_every_n_steps": None,
    "training_comment": None,
}  # fmt: skip
# The same, written only where no dataset file describes the datasets.
FOLDER_OPTIONS = {
    "color_aug": False, "flip_aug": False, "random_crop": False, "shuffle_caption": False, "keep_tokens": 0,
    "bucket_no_upscale": False,
}  # fmt: skip


@dataclass(frozen=True)
class SubsetSummary:
    """One folder (or metadata file) of a dataset. Paths are cut to their last name when they are written."""

    img_count: int  # without repeats
    num_repeats: int
    image_dir: str | None = None
    class_tokens: str | None = None
    is_reg: bool = False
    metadata_file: str | None = None  # of a fine-tuning dataset
    color_aug: bool = False
    flip_aug: bool = False
    random_crop: bool = False
    shuffle_caption: bool = False
    keep_tokens: int = 0
    keep_tokens_separator: str | None = None
    secondary_separator: str | None = None
    enable_wildcard: bool = False
    caption_prefix: str | None = None
    caption_suffix: str | None = None
    resize_interpolation: str | None = None

    @property
    def name(self) -> str:
        """Last name of its folder or metadata file."""
        return last_name(self.metadata_file or self.image_dir or "")


@dataclass(frozen=True)
class DatasetSummary:
    """One dataset: pictures of one resolution."""

    batch_size_per_device: int
    num_train_images: int  # with repeats
    num_reg_images: int  # with repeats
    resolution: tuple[int, int]  # width, height, px
    enable_bucket: bool
    min_bucket_reso: int | None
    max_bucket_reso: int | None
    tag_frequency: Mapping[str, Mapping[str, int]]  # folder → tag → count
    bucket_info: Mapping[str, object] | None  # {"buckets": {index: {"resolution", "count"}}, "mean_img_ar_error"}
    subsets: tuple[SubsetSummary, ...]
    is_dreambooth: bool = True
    resize_interpolation: str | None = None


@dataclass(frozen=True)
class DataSummary:
    """All that is trained on."""

    datasets: tuple[DatasetSummary, ...]
    is_from_file: bool  # a dataset file describes them
    num_batches_per_epoch: int  # per process
    num_validation_images: int = 0


@dataclass(frozen=True)
class ModelFile:
    """A base model or VAE as files name it. Hashes are None for what is no file."""

    name: str
    short_hash: str | None = None
    sha256: str | None = None

    @classmethod
    def of(cls, source: str, hashes: FileHashes | None = None) -> ModelFile:
        """From an option's value and, of a file, its hashes, when those are to be written."""
        path = Path(source)
        if path.is_dir():
            return cls(last_name(source), "IsADirectory", "IsADirectory")
        if not path.is_file():
            return cls(last_name(source) if _is_absolute(source) else source)
        return cls(path.name, hashes.old, hashes.sha256) if hashes else cls(path.name)


@dataclass(frozen=True)
class RunSummary:
    """What the run knows when it saves."""

    session_id: int  # 0 … 2**32, one for all files of a run
    seed: int
    started_at: float  # Unix time, s
    finished_at: float  # of this save
    epoch: int
    step: int
    num_epochs: int
    max_train_steps: int
    optimizer: str  # "torch.optim.adamw.AdamW(weight_decay=0.1)"
    lr_scheduler: str
    model: ModelFile
    identity: ModelIdentity
    num_processes: int = 1
    vae: ModelFile | None = None
    commit: str = "(unknown)"
    network_dim: int | str | None = None  # `AdapterNetwork.recorded_size`
    network_alpha: float | str | None = None


def network_metadata(cfg: object, run: RunSummary, data: DataSummary) -> dict[str, str]:
    """All metadata of a network file except its hashes, which belong to its tensors; with `no_metadata` the minimum.

    Args:
        cfg: options of a network trainer.
    """
    keys = _option_keys(cfg, OPTIONS) | _run_keys(cfg, run) | _model_keys(run) | _data_keys(cfg, run, data)
    if cfg.no_metadata:
        keys = {key: value for key, value in keys.items() if key in MINIMUM}
    resolution = data.datasets[0].resolution if data.datasets else None
    return {key: _text(value) for key, value in keys.items()} | modelspec(
        cfg, run.identity, "lora", made_at=run.finished_at, resolution=resolution, version=run.commit
    )


def last_name(path: str) -> str:
    """Last name of a path of any system."""
    parts = PureWindowsPath(path).parts
    return parts[-1] if parts else path


def _is_absolute(text: str) -> bool:
    return text.startswith("~") or PurePosixPath(text).is_absolute() or PureWindowsPath(text).is_absolute()


def _option_keys(cfg: object, options: Mapping[str, object]) -> dict[str, object]:
    return {f"ss_{name}": getattr(cfg, name, absent) for name, absent in options.items()}


def _run_keys(cfg: object, run: RunSummary) -> dict[str, object]:
    keys = {
        "ss_session_id": run.session_id,
        "ss_training_started_at": run.started_at,
        "ss_training_finished_at": run.finished_at,
        "ss_epoch": run.epoch,
        "ss_steps": run.step,
        "ss_num_epochs": run.num_epochs,
        "ss_max_train_steps": run.max_train_steps,
        "ss_lr_scheduler": run.lr_scheduler,
        "ss_optimizer": run.optimizer,
        "ss_seed": run.seed,
        "ss_sd_scripts_commit_hash": run.commit,
        "ss_network_dim": run.network_dim,
        "ss_network_alpha": run.network_alpha,
        "ss_debiased_estimation": getattr(cfg, "debiased_estimation_loss", False),
    }
    if cfg.network_args:
        arguments: dict[str, object] = dict(split_items(cfg.network_args))
        arguments.setdefault("dropout", cfg.network_dropout)
        keys["ss_network_args"] = json.dumps(arguments)
    return keys


def _model_keys(run: RunSummary) -> dict[str, object]:
    keys: dict[str, object] = {"ss_v2": run.identity.is_v2, "ss_base_model_version": run.identity.base_version}
    for prefix, file in (("sd_model", run.model), ("vae", run.vae)):
        if file is None:
            continue
        keys[f"ss_{prefix}_name"] = file.name
        hashes = {f"ss_{prefix}_hash": file.short_hash, f"ss_new_{prefix}_hash": file.sha256}
        keys |= {key: value for key, value in hashes.items() if value}
    return keys


def _data_keys(cfg: object, run: RunSummary, data: DataSummary) -> dict[str, object]:
    keys: dict[str, object] = {
        "ss_num_train_images": sum(dataset.num_train_images for dataset in data.datasets),
        "ss_num_reg_images": sum(dataset.num_reg_images for dataset in data.datasets),
        "ss_num_validation_images": data.num_validation_images,
        "ss_num_batches_per_epoch": data.num_batches_per_epoch,
        "ss_dataset_dirs": json.dumps(_folders(data, is_reg=False)),
        "ss_tag_frequency": json.dumps(_merged_tags(data)),
    }
    if data.is_from_file or len(data.datasets) != 1:
        return keys | {"ss_datasets": json.dumps([_dataset_entry(dataset) for dataset in data.datasets])}
    only = data.datasets[0]
    per_step = only.batch_size_per_device * run.num_processes * getattr(cfg, "gradient_accumulation_steps", 1)
    return keys | _option_keys(cfg, FOLDER_OPTIONS) | {
        "ss_batch_size_per_device": only.batch_size_per_device,
        "ss_total_batch_size": per_step,
        "ss_resolution": tuple(only.resolution),
        "ss_enable_bucket": only.enable_bucket,
        "ss_min_bucket_reso": only.min_bucket_reso,
        "ss_max_bucket_reso": only.max_bucket_reso,
        "ss_reg_dataset_dirs": json.dumps(_folders(data, is_reg=True)),
        "ss_bucket_info": json.dumps(only.bucket_info),
    }  # fmt: skip


def _folders(data: DataSummary, *, is_reg: bool) -> dict[str, dict[str, int]]:
    """Folder or metadata file → repeats and pictures; a repeated name gets " (2)" and so on."""
    subsets = [subset for dataset in data.datasets for subset in dataset.subsets if subset.is_reg == is_reg]
    folders: dict[str, dict[str, int]] = {}
    for subset in subsets:
        key = _free_name(subset.name, folders)
        folders[key] = {"n_repeats": subset.num_repeats, "img_count": subset.img_count}
    return folders


def _free_name(name: str, taken: Iterable[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name} ({number})", number + 1
    return candidate


def _merged_tags(data: DataSummary) -> dict[str, dict[str, int]]:
    merged: dict[str, dict[str, int]] = {}
    for dataset in data.datasets:
        for folder, counts in _tags(dataset).items():
            into = merged.setdefault(folder, {})
            for tag, count in counts.items():
                into[tag] = into.get(tag, 0) + count
    return merged


def _tags(dataset: DatasetSummary) -> dict[str, dict[str, int]]:
    return {last_name(folder): dict(counts) for folder, counts in dataset.tag_frequency.items()}


def _dataset_entry(dataset: DatasetSummary) -> dict[str, object]:
    return {
        "is_dreambooth": dataset.is_dreambooth,
        "batch_size_per_device": dataset.batch_size_per_device,
        "num_train_images": dataset.num_train_images,
        "num_reg_images": dataset.num_reg_images,
        "resolution": list(dataset.resolution),
        "enable_bucket": dataset.enable_bucket,
        "min_bucket_reso": dataset.min_bucket_reso,
        "max_bucket_reso": dataset.max_bucket_reso,
        "tag_frequency": _tags(dataset),
        "bucket_info": dataset.bucket_info,
        "resize_interpolation": dataset.resize_interpolation,
        "subsets": [_subset_entry(subset) for subset in dataset.subsets],
    }


def _subset_entry(subset: SubsetSummary) -> dict[str, object]:
    entry = {
        name: getattr(subset, name)
        for name in (
            "img_count", "num_repeats", "color_aug", "flip_aug", "random_crop", "shuffle_caption", "keep_tokens",
            "keep_tokens_separator", "secondary_separator", "enable_wildcard", "caption_prefix", "caption_suffix",
            "resize_interpolation",
        )
    }  # fmt: skip
    if subset.metadata_file:
        return entry | {"metadata_file": subset.name}
    return entry | {"image_dir": subset.name, "class_tokens": subset.class_tokens, "is_reg": subset.is_reg}


def _text(value: object) -> str:
    return str(value.value if isinstance(value, Enum) else value)
