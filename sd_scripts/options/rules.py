"""Rules between options. Each is a small function that yields problems; trainer, GUI and `check` run the same ones.

A rule reads only options. What needs the model file or the pictures is found where those are read (`sd_scripts.plan`).
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, get_type_hints

from sd_scripts.options.dataset import Caching, DatasetSource
from sd_scripts.options.memory import Precision
from sd_scripts.options.methods import Network
from sd_scripts.options.objective import Noise
from sd_scripts.options.optimizer_names import check_optimizer
from sd_scripts.options.output import Metadata, Saving
from sd_scripts.options.problems import Problem, error, note, warning
from sd_scripts.options.recipes import CommonOptions, TrainingOptions
from sd_scripts.options.scheduler_names import check_scheduler
from sd_scripts.options.schema import Options

Rule = Callable[[Any], Iterator[Problem]]


def check_options(options: CommonOptions, architectures: tuple[str, ...]) -> list[Problem]:
    """All problems that the options have between themselves, in the order of the rules.

    Args:
        architectures: the families that the model may be of: one once it is known.
    """
    return [problem for rule in RULES if isinstance(options, _concerns(rule)) for problem in rule(options)]


@lru_cache
def _concerns(rule: Rule) -> type[Options]:
    """The group of options that a rule reads, from its annotation: it is asked only where a trainer has them."""
    return get_type_hints(rule)["options"]


def pictures_are_given(options: DatasetSource) -> Iterator[Problem]:
    if options.train_data_dir is None and options.dataset_config is None:
        yield error(
            "train_data_dir", "no pictures are given", "name a picture folder, or a dataset file in dataset_config"
        )


def essentials_are_given(options: CommonOptions) -> Iterator[Problem]:
    if options.pretrained_model_name_or_path is None:
        yield error("pretrained_model_name_or_path", "no model is given", "name the file or folder to train on")
    if options.output_dir is None:
        yield error("output_dir", "no output folder is given", "name the folder for the finished files")


def dataset_file_replaces_folders(options: TrainingOptions) -> Iterator[Problem]:
    if options.dataset_config is None:
        return
    for name in ("train_data_dir", "reg_data_dir"):
        if getattr(options, name) is not None:
            yield warning(name, "not used, because dataset_config is given", "remove one of the two")


def folders_can_be_written(options: CommonOptions) -> Iterator[Problem]:
    for name in ("output_dir", "logging_dir", "run_dir"):
        folder = getattr(options, name)
        if folder is not None and (reason := why_not_writable(Path(folder))):
            yield error(name, reason, "choose another folder")


def why_not_writable(folder: Path) -> str | None:
    """Why files cannot be written in a folder (which may not exist yet), found by trying beside it; None if they
    can."""
    place = folder.absolute()
    while not place.exists():
        if place.parent == place:
            return f"{folder}: the drive does not exist"
        place = place.parent
    if not place.is_dir():
        return f"{folder}: {place} is a file, not a folder"
    try:
        with tempfile.TemporaryFile(dir=place):
            return None
    except OSError as failure:
        return f"{folder}: cannot be written to ({failure.strerror or failure})"


def run_folder_is_fresh(options: CommonOptions) -> Iterator[Problem]:
    if options.run_dir is not None and (Path(options.run_dir) / "events.jsonl").exists():
        yield error("run_dir", f"{options.run_dir}: is the folder of another run", "leave it out, or name a new folder")


def epochs_decide_over_steps(options: CommonOptions) -> Iterator[Problem]:
    if options.max_train_epochs is not None and "max_train_steps" in options.model_fields_set:
        yield note("max_train_steps", "not used, because max_train_epochs is set", "leave one of the two out")


def name_is_a_file_name(options: CommonOptions) -> Iterator[Problem]:
    name = options.output_name
    if name and (set(name) & set('/\\:*?"<>|') or name.strip() in (".", "..")):
        yield error("output_name", f"{name!r} cannot be part of a file name", 'leave out / \\ : * ? " < > |')


def resume_folder_is_a_state(options: CommonOptions) -> Iterator[Problem]:
    if options.resume is None:
        return
    folder = Path(options.resume)
    if not folder.is_dir():
        yield error("resume", f"{folder}: no such folder", "name a folder that ends in -state")
    elif not (folder / "train_state.json").is_file():
        yield error("resume", f"{folder}: not a state (no train_state.json)", "name a folder that ends in -state")


def full_precision_fits_mixed(options: Precision) -> Iterator[Problem]:
    for kind in ("fp16", "bf16"):
        if getattr(options, f"full_{kind}") and options.mixed_precision != kind:
            yield error(f"full_{kind}", f"needs mixed_precision {kind}", f'set mixed_precision = "{kind}"')


def noise_options_fit(options: Noise) -> Iterator[Problem]:
    if options.adaptive_noise_scale is not None and options.noise_offset is None:
        yield error("adaptive_noise_scale", "works only together with noise_offset", "set noise_offset too")
    low, high = options.min_timestep or 0, options.max_timestep or 1000
    if low > high:
        yield error("min_timestep", f"{low} is above max_timestep {high}", "leave a range between them")


def loss_options_fit_prediction(options: CommonOptions) -> Iterator[Problem]:
    if options.scale_v_pred_loss_like_noise_pred and not options.v_parameterization:
        yield error(
            "scale_v_pred_loss_like_noise_pred", "is for v-prediction models", "set v_parameterization, or leave it off"
        )
    if options.v_pred_like_loss and options.v_parameterization:
        yield error("v_pred_like_loss", "is for noise-prediction models", "leave it out with v_parameterization")
    if options.zero_terminal_snr and not options.v_parameterization:
        yield warning(
            "zero_terminal_snr", "is meant for v-prediction models", "set v_parameterization if the model is one"
        )


def cached_latents_do_not_change(options: TrainingOptions) -> Iterator[Problem]:
    if not (options.cache_latents or options.cache_latents_to_disk):
        return
    for name in ("random_crop", "color_aug"):
        if getattr(options, name):
            yield error(
                name,
                "changes the picture each time, which cached latents cannot",
                f"set cache_latents = false, or leave {name} off",
            )


def clip_skip_fits(options: CommonOptions) -> Iterator[Problem]:
    if options.v2 and options.clip_skip is not None:
        yield warning(
            "clip_skip", "SD 2.x models are made for their last layer but one, which is built in", "leave clip_skip out"
        )


def network_parts_remain(options: Network) -> Iterator[Problem]:
    if options.network_train_unet_only and options.network_train_text_encoder_only:
        yield error("network_train_unet_only", "excludes network_train_text_encoder_only", "choose one of them")
    if options.dim_from_weights and options.network_weights is None:
        yield error("dim_from_weights", "needs a LoRA file to take the rank from", "set network_weights")
    if options.network_weights is not None and not Path(options.network_weights).is_file():
        yield error("network_weights", f"{options.network_weights}: no such file", "check the path")
    for path in options.base_weights or []:
        if not Path(path).is_file():
            yield error("base_weights", f"{path}: no such file", "check the path")
    if len(options.base_weights_multiplier or []) > len(options.base_weights or []):
        yield error("base_weights_multiplier", "has more entries than base_weights", "give one strength per file")
    if options.network_train_text_encoder_only and options.network_train_unet_only is False and options.unet_lr:
        yield warning("unet_lr", "has no effect: the U-Net is not trained", "leave it out")


def samples_are_drawn(options: CommonOptions) -> Iterator[Problem]:
    asked = options.sample_every_n_epochs or options.sample_every_n_steps or options.sample_at_first
    if asked and options.sample_prompts is None:
        yield error(
            "sample_prompts", "samples are asked for, but there are no prompts", "write some, or name a prompt file"
        )
    if options.sample_prompts is not None:
        if options.prompt_lines is None and not Path(options.sample_prompts).is_file():
            yield error("sample_prompts", f"{options.sample_prompts}: no such file", "check the path")
        if not asked:
            yield note("sample_prompts", "no samples are drawn", "set sample_every_n_epochs or sample_every_n_steps")
    if options.sample_every_n_epochs and options.sample_every_n_steps:
        yield warning("sample_every_n_steps", "not used, because sample_every_n_epochs is set", "remove one of the two")


def saved_states_have_files(options: CommonOptions) -> Iterator[Problem]:
    keeps = options.save_every_n_epochs or options.save_every_n_steps or options.save_n_epoch_ratio
    if options.save_state and not keeps:
        yield note(
            "save_state", "a state is written at the end only", "set save_every_n_epochs or save_every_n_steps for more"
        )


def tensorboard_is_installed(options: CommonOptions) -> Iterator[Problem]:
    if options.log_with == "tensorboard" and importlib.util.find_spec("tensorboard") is None:
        yield error("log_with", "the package tensorboard is not installed", 'install it, or set log_with = "none"')
    if options.log_with in ("wandb", "all"):
        yield error("log_with", f"{options.log_with} is not yet available", 'set log_with = "tensorboard"')


def sizes_are_read_anew(options: Caching) -> Iterator[Problem]:
    if options.cache_info:
        yield note(
            "cache_info", "has no effect: sizes and captions are read anew at each start, which is fast", "remove it"
        )


def thumbnail_exists(options: Metadata) -> Iterator[Problem]:
    picture = options.metadata_thumbnail
    if picture is not None and not picture.startswith("data:") and not Path(picture).is_file():
        yield error("metadata_thumbnail", f"{picture}: no such picture", "name a picture file, or give a data: URL")


def file_format_can_be_written(options: Saving) -> Iterator[Problem]:
    if options.save_model_as.startswith("diffusers"):
        yield error("save_model_as", f"{options.save_model_as} is not yet available", 'set it to "safetensors"')


def optimizer_is_known(options: CommonOptions) -> Iterator[Problem]:
    yield from check_optimizer(options)


def scheduler_is_known(options: CommonOptions) -> Iterator[Problem]:
    yield from check_scheduler(options)


RULES: tuple[Rule, ...] = (
    essentials_are_given,
    pictures_are_given,
    dataset_file_replaces_folders,
    folders_can_be_written,
    run_folder_is_fresh,
    epochs_decide_over_steps,
    name_is_a_file_name,
    resume_folder_is_a_state,
    optimizer_is_known,
    scheduler_is_known,
    full_precision_fits_mixed,
    noise_options_fit,
    loss_options_fit_prediction,
    cached_latents_do_not_change,
    clip_skip_fits,
    network_parts_remain,
    samples_are_drawn,
    saved_states_have_files,
    tensorboard_is_installed,
    file_format_can_be_written,
    thumbnail_exists,
    sizes_are_read_anew,
)
