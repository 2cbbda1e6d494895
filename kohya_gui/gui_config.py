"""The keys of `config.toml`, under the names that users know, as values of fields.

Nearly every key is the name of a field of the known GUI, or the section's prefix and that; those go the way of preset
files. `EXCEPTIONS`, `FOLDERS` and `NOT_USED` hold the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kohya_gui.browse import MODEL_SUFFIXES
from kohya_gui.form_values import State, to_state
from kohya_gui.forms import TrainingForm
from sd_scripts.options.gui_presets import convert, keys_of
from sd_scripts.options.gui_presets.findings import Finding

Key = tuple[str, str]  # section ("" above all sections), name

PREFIXES: Mapping[str, tuple[str, ...]] = {
    "metadata": ("metadata_",),
    "huggingface": ("huggingface_",),
    "flux1": ("flux1_", "flux_", ""),
    "sd3": ("sd3_", ""),
    "hunyuan_image": ("hunyuan_", "hunyuan_image_"),
    "anima": ("anima_",),
    "lumina": ("lumina_",),
}
FAMILY_BOXES: Mapping[str, tuple[str, Mapping[str, Any]]] = {  # section: family, and what says so in a preset file
    "sdxl": ("sdxl", {"sdxl": True, "sdxl_checkbox": True}),
    "flux1": ("flux", {"flux1_checkbox": True}),
    "sd3": ("sd3", {"sd3_checkbox": True}),
    "hunyuan_image": ("hunyuan_image", {"hunyuan_image_checkbox": True}),
    "anima": ("anima", {"anima_checkbox": True}),
    "lumina": ("lumina", {"lumina_checkbox": True}),
}
METHOD_MARKS: Mapping[str, Mapping[str, Any]] = {  # what tells in a preset file which tab wrote it
    "adapter": {"LoRA_type": "Standard"},
    "dreambooth": {"no_token_padding": False},
    "full": {"image_folder": ""},
    "textual_inversion": {"token_string": ""},
}
EXCEPTIONS: Mapping[Key, tuple[str, ...]] = {  # keys with a name of their own, and the fields that may be meant
    ("model", "train_data_dir"): ("image_folder", "train_data_dir"),
    ("huggingface", "save_state_to_huggingface"): ("save_state_to_huggingface",),
    ("huggingface", "resume_from_huggingface"): ("resume_from_huggingface",),
    ("huggingface", "async_upload"): ("async_upload",),
    **{
        (section, f"{section}_{name}"): (f"{section}_{name}",)
        for section, names in (
            ("huggingface", ("path_in_repo", "repo_id", "repo_type", "repo_visibility", "token")),
            ("metadata", ("author", "description", "license", "tags", "title")),
        )
        for name in names
    },
}
FOLDERS: Mapping[Key, str] = {  # folders in which "Browse…" begins, and the option of its field
    ("", "output_dir"): "output_dir",
    ("", "logging_dir"): "logging_dir",
    ("", "reg_data_dir"): "reg_data_dir",
    ("", "train_data_dir"): "train_data_dir",
    ("", "log_tracker_config_dir"): "log_tracker_config",
    ("advanced", "log_tracker_config_dir"): "log_tracker_config",
    ("advanced", "vae_dir"): "vae",
    ("advanced", "state_dir"): "resume",
    ("model", "models_dir"): "pretrained_model_name_or_path",
}
NOT_USED: Mapping[Key, str] = {  # a key of "*" is every other one of the section
    ("", "config_dir"): "presets lie in the folder presets",
    ("configuration", "config_dir"): "presets lie in the folder presets",
    ("settings", "enable_info_tooltip"): "help is always shown",
    ("settings", "use_shell"): "no shell is ever used",
    ("advanced", "lowvram"): "no trainer has such an option; see lowram and blocks_to_swap",
    ("server", "allowed_paths"): "read when the server starts",
    ("dataset_preparation", "*"): "it is for the preparation of folders, which is not there yet",
    ("wd14_caption", "*"): "it is for captioning, which is not there yet",
    ("leco", "*"): "it is for the LECO tab, which is not there yet",
    ("network", "*"): "it is for the LECO tab, which is not there yet",
    ("training", "*"): "it is for the LECO and LLLite tabs, which are not there yet",
    ("save", "*"): "it is for the LECO and LLLite tabs, which are not there yet",
    ("anima_lllite", "*"): "it is for the LLLite tab, which is not there yet",
}
OWN_SECTIONS = frozenset(  # no settings file of a trainer has one of these
    (
        *("accelerate_launch", "advanced", "anima_lllite", "basic", "configuration", "dataset_preparation", "flux1"),
        *("folders", "server", "settings", "wd14_caption"),
    )
)


@dataclass
class FormDefaults:
    """What a config.toml says for a form: values for every family, those for one only, and where "Browse…" begins."""

    state: State = field(default_factory=dict)
    by_family: dict[str, State] = field(default_factory=dict)
    browse: dict[str, str] = field(default_factory=dict)


def is_gui_config(content: Mapping[str, Any]) -> bool:
    """Whether a TOML file is a config.toml of the GUI, not a trainer's settings."""
    return any(name in OWN_SECTIONS and isinstance(value, dict) for name, value in content.items())


def field_of(key: Key, method: str) -> str | None:
    """The field of a tab's preset files that a key is for; None where it has none there."""
    section, name = key
    known = keys_of(method)
    candidates = EXCEPTIONS.get(key) or tuple(f"{prefix}{name}" for prefix in PREFIXES.get(section, ("",)))
    return next((candidate for candidate in candidates if candidate in known), None)


def why_not_used(key: Key) -> str | None:
    """Why a known key sets nothing; None where it does, or is not known."""
    return NOT_USED.get(key) or NOT_USED.get((key[0], "*"))


def remarks(content: Mapping[str, Any]) -> Iterator[str]:
    """A line for each key that is not known or sets nothing."""
    for key, value in entries(content):
        name = ".".join(filter(None, key))
        if reason := why_not_used(key):
            if key != ("server", "allowed_paths"):
                yield f"{name} is not used: {reason}"
        elif isinstance(value, dict) or (
            key not in FOLDERS and not any(field_of(key, method) for method in METHOD_MARKS)
        ):
            yield f"{name} is not known and was ignored"


def entries(content: Mapping[str, Any]) -> Iterator[tuple[Key, Any]]:
    """Every key with its section and value."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from (((name, inner), item) for inner, item in value.items())
        else:
            yield ("", name), value


def defaults_of(content: Mapping[str, Any], form: TrainingForm) -> tuple[FormDefaults, list[Finding]]:
    """What a config.toml says for a form, and what is odd about its values."""
    found = FormDefaults(browse=_browse_folders(content, form))
    general: dict[str, Any] = {}
    of_family: dict[str, dict[str, Any]] = {}
    for key, value in entries(content):
        if why_not_used(key) or FOLDERS.get(key) in found.browse:
            continue
        name = FOLDERS.get(key) if key in FOLDERS else field_of(key, form.method)
        if name:
            (of_family.setdefault(key[0], {}) if key[0] in FAMILY_BOXES else general)[name] = value
    converted = convert(general | METHOD_MARKS[form.method])
    found.state = to_state(form, _differing(form, converted.values))
    findings = [finding for finding in converted.findings if finding.key in general]
    for section, given in of_family.items():
        family, boxes = FAMILY_BOXES[section]
        if family not in form.families:
            continue
        marks = {**METHOD_MARKS[form.method], **boxes}
        converted, implied = convert(general | given | marks), convert(marks).values
        said = {name: value for name, value in converted.values.items() if implied.get(name) != value}
        state = to_state(form, _differing(form, said, family))
        found.by_family[family] = {name: shown for name, shown in state.items() if found.state.get(name) != shown}
        findings += [finding for finding in converted.findings if finding.key in given]
    return found, findings


def _differing(form: TrainingForm, values: Mapping[str, Any], family: str | None = None) -> dict[str, Any]:
    known = form.specs
    return {name: value for name, value in values.items() if name in known and value != known[name].default_for(family)}


def _browse_folders(content: Mapping[str, Any], form: TrainingForm) -> dict[str, str]:
    """Where "Browse…" begins, by option. A folder key that names a model is meant as the field's value."""
    given = {FOLDERS[key]: str(value) for key, value in entries(content) if key in FOLDERS and str(value).strip()}
    return {option: path for option, path in given.items() if option in form.specs and not _is_model(Path(path))}


def _is_model(path: Path) -> bool:
    return path.suffix.lower() in MODEL_SUFFIXES or os.path.isfile(  # noqa: PTH113 - for odd texts Path.is_file raises
        path / "model_index.json"
    )
