"""Rules: what a run writes - weights, states, samples, logs, uploads."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sd_scripts.options.families import FAMILIES
from sd_scripts.options.file_names import why_no_file_name
from sd_scripts.options.output import Hub, Logging, Metadata, Samples, Saving
from sd_scripts.options.problems import Problem, error, note, warning
from sd_scripts.options.rules.base import Families, Rule, all_are, named_file
from sd_scripts.options.schema import specs
from sd_scripts.options.validation import Validation
from sd_scripts.training.state_folder import find_state

FOLDERS = ("output_dir", "logging_dir", "run_dir")


def output_folder_is_given(options: Saving) -> Iterator[Problem]:
    if options.output_dir is None:
        yield error("output_dir", "no output folder is given", "name the folder for the finished files")


def folders_can_be_written(options: Saving) -> Iterator[Problem]:
    for name in FOLDERS:
        folder = getattr(options, name, None)
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


def name_is_a_file_name(options: Saving) -> Iterator[Problem]:
    if options.output_name is not None and (reason := why_no_file_name(options.output_name)):
        yield error("output_name", *reason)


def finished_file_is_new(options: Saving) -> Iterator[Problem]:
    """A run that goes on from a state replaces its own file."""
    if options.output_dir is None or options.resume is not None or options.save_model_as.startswith("diffusers"):
        return
    name = f"{options.output_name or 'last'}.{options.save_model_as}"
    if (Path(options.output_dir) / name).is_file():
        yield note("output_name", f"{name} in the output folder will be replaced", "choose another name to keep it")


def ratio_decides_over_epochs(options: Saving) -> Iterator[Problem]:
    if options.save_n_epoch_ratio and options.save_every_n_epochs:
        yield note("save_every_n_epochs", "not used, because save_n_epoch_ratio is set", "leave one of the two out")


def saved_states_have_files(options: Saving) -> Iterator[Problem]:
    keeps = options.save_every_n_epochs or options.save_every_n_steps or options.save_n_epoch_ratio
    if options.save_state and not keeps:
        yield note(
            "save_state", "a state is written at the end only", "set save_every_n_epochs or save_every_n_steps for more"
        )
    if options.save_state and options.save_state_on_train_end:
        yield note("save_state_on_train_end", "changes nothing: save_state writes that one too", "remove it")


def resume_folder_is_a_state(options: Saving) -> Iterator[Problem]:
    if options.resume is None or getattr(options, "resume_from_huggingface", False):
        return
    folder = Path(options.resume)
    if find_state(folder) is not None:
        return
    if not folder.is_dir():
        yield error("resume", f"{folder}: no such folder", "name a folder that ends in -state")
    else:
        yield error("resume", f"{folder}: not a state (no train_state.json)", "name a folder that ends in -state")


def file_format_can_be_written(options: Saving, families: Families) -> Iterator[Problem]:
    if options.save_model_as.startswith("diffusers") and all_are(families, "dit"):
        found = " or ".join(FAMILIES[family].label for family in families)
        yield error("save_model_as", f"{found} is written as a single file only", 'set it to "safetensors"')


def file_format_is_chosen_once(options: Saving) -> Iterator[Problem]:
    if options.use_safetensors and "save_model_as" in options.model_fields_set:
        yield note("use_safetensors", f"not used, because save_model_as is {options.save_model_as}", "remove it")


def run_folder_is_fresh(options: Logging) -> Iterator[Problem]:
    if options.run_dir is not None and (Path(options.run_dir) / "events.jsonl").exists():
        yield error("run_dir", f"{options.run_dir}: is the folder of another run", "leave it out, or name a new folder")


def trackers_are_installed(options: Logging) -> Iterator[Problem]:
    if options.log_with in ("tensorboard", "all") and importlib.util.find_spec("tensorboard") is None:
        yield error("log_with", "the package tensorboard is not installed", 'install it, or set log_with = "none"')
    if options.log_with in ("wandb", "all") and importlib.util.find_spec("wandb") is None:
        yield error("log_with", "the package wandb is not installed", 'install it, or set log_with = "tensorboard"')


def tracker_settings_are_read(options: Logging) -> Iterator[Problem]:
    if options.log_tracker_config is not None:
        yield from named_file("log_tracker_config", options.log_tracker_config)
        if options.wandb_run_name is not None:
            yield note("wandb_run_name", "not used, because log_tracker_config is given", "name the run there")


def secrets_are_better_kept_elsewhere(options: Hub) -> Iterator[Problem]:
    """They stand in settings files and in the history of the command line; neither is written by this program."""
    for name, spec in specs(type(options)).items():
        if spec.secret and getattr(options, name) is not None:
            yield warning(name, "a secret in settings is easily shown to others", "log in once with their program")


def uploads_are_public(options: Hub) -> Iterator[Problem]:
    if options.huggingface_repo_id is not None and options.huggingface_repo_visibility == "public":
        yield note("huggingface_repo_visibility", "everyone will see the files", 'set it to "private" to keep them')


def samples_are_drawn(options: Samples) -> Iterator[Problem]:
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


def thumbnail_exists(options: Metadata) -> Iterator[Problem]:
    picture = options.metadata_thumbnail
    if picture is not None and not picture.startswith("data:") and not Path(picture).is_file():
        yield error("metadata_thumbnail", f"{picture}: no such picture", "name a picture file, or give a data: URL")


def pictures_remain_to_train(options: Validation) -> Iterator[Problem]:
    if options.validation_split >= 1:
        yield error("validation_split", "holds all pictures out, so none is left to train on", "0.1 is usual")


RULES: tuple[Rule, ...] = (
    output_folder_is_given,
    folders_can_be_written,
    name_is_a_file_name,
    finished_file_is_new,
    ratio_decides_over_epochs,
    saved_states_have_files,
    resume_folder_is_a_state,
    file_format_can_be_written,
    file_format_is_chosen_once,
    run_folder_is_fresh,
    trackers_are_installed,
    tracker_settings_are_read,
    secrets_are_better_kept_elsewhere,
    uploads_are_public,
    samples_are_drawn,
    thumbnail_exists,
    pictures_remain_to_train,
)
