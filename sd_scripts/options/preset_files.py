"""Settings and preset files that circulate: which kind a file is, and what it says, as options by name.

Flat and sectioned training TOML, preset files (JSON) of the known GUI of any age, JSON of trainer options. Others are
refused with a word on what they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sd_scripts.errors import UserError
from sd_scripts.options.build import NO_OPTIONS
from sd_scripts.options.families import FAMILIES, MODEL_FAMILY
from sd_scripts.options.gui_presets import convert, form_keys, keys_of, known, omitted
from sd_scripts.options.gui_presets.fields import METHOD_LABELS
from sd_scripts.options.gui_presets.findings import Finding, shown
from sd_scripts.options.gui_presets.known import is_secret
from sd_scripts.options.gui_presets.readers import Unreadable, is_blank
from sd_scripts.options.lenient_json import read_json
from sd_scripts.options.network_arguments import unfold
from sd_scripts.options.small_files import is_json
from sd_scripts.options.toml_files import load_toml, read_settings, with_suffix

__all__ = ["Finding", "LoadedFile", "load_file"]

FileKind = Literal["settings_toml", "settings_json", "gui_json"]
MAX_KEYS = 2000  # five times what the largest form has
MAX_SECTIONS = 16  # levels of objects in objects
_IMAGE_ENTRY = {"caption", "tags", "image_size", "train_resolution"}  # of a metadata file of pictures
_METHODS = (  # the first of which an option is there
    ("lllite", ("cond_emb_dim", "lllite_mlp_dim")),
    ("leco", ("prompts_file", "max_denoising_steps")),
    ("textual_inversion", ("token_string", "num_vectors_per_token")),
    ("adapter", ("network_module", "network_dim")),
    ("full", ("train_text_encoder", "learning_rate_te1", "block_lr")),
)


@dataclass(frozen=True)
class LoadedFile:
    """What a file says: options by name (of a trainer, the launch, or the items of `network_args`), and what was found."""

    path: Path
    kind: FileKind
    method: str | None
    architecture: str | None
    values: dict[str, Any]
    findings: tuple[Finding, ...]


def load_file(path: Path) -> LoadedFile:
    """Read a settings or preset file of any kind that circulates.

    Raises:
        UserError: it cannot be read (with line and column), or is no settings file (with what it is).
    """
    return _load_json(path) if is_json(path) else _load_toml(path)


def _load_toml(path: Path) -> LoadedFile:
    values = read_settings(path)
    _refuse_too_many(path, values)
    source = with_suffix(path)
    repeated = _repeated_in_sections(load_toml(source))
    findings = [Finding("converted", key, "stands in several sections; the last one counts") for key in repeated]
    return _of_options(source, "settings_toml", values, findings)


def _repeated_in_sections(content: Mapping[str, Any]) -> list[str]:
    keys = [key for key, value in content.items() if not isinstance(value, dict)]
    keys += [key for section in content.values() if isinstance(section, dict) for key in section]
    return [key for key in dict.fromkeys(keys) if keys.count(key) > 1]


def _load_json(path: Path) -> LoadedFile:
    content, repeated = read_json(path)
    _refuse_other_kinds(path, content)
    findings = [Finding("converted", key, "stands in the file twice; the last one counts") for key in repeated]
    flat, unwrapped = _flattened(content)
    _refuse_too_many(path, flat)
    findings += unwrapped
    ours = [key for key in flat if key in keys_of(None) or key in known.options_by_name() or key in form_keys()]
    said = [key for key, value in flat.items() if not is_blank(value)]  # headings of sections are keys with null
    if not ours or (len(ours) < 3 and 2 * len(ours) < len(said)):
        raise UserError(f"{path}: this is no settings file: it holds no settings that are known here")
    own_names = [key for key in flat if key in known.options_by_name() and key not in keys_of(None)]
    if own_names and not any(key in form_keys() for key in flat):
        return _of_options(path, "settings_json", flat, findings)
    form = convert(flat)
    label = METHOD_LABELS[form.method] if form.method else "a training"
    what = f"a preset of the GUI for {label}{_for_family(form.architecture)}: {len(form.values)} options are set"
    found = (Finding("recognised", "", what), *findings, *form.findings)
    return LoadedFile(path, "gui_json", form.method, form.architecture, form.values, tuple(dict.fromkeys(found)))


def _refuse_other_kinds(path: Path, content: Any) -> None:
    """Raise for JSON that is something else."""
    if isinstance(content, list):
        what = "a list (of prompts, or of pictures?)" if content else "an empty list"
        raise UserError(f"{path}: this is {what}, not settings; choose a settings or preset file")
    if not isinstance(content, dict):
        raise UserError(f"{path}: this is a single {type(content).__name__}, not settings; choose a settings file")
    if isinstance(content.get("datasets"), list):
        raise UserError(f"{path}: this is a dataset file, not a settings file; give it as dataset_config")
    entries = [value for value in content.values() if isinstance(value, dict)]
    if entries and all(entry and entry.keys() <= _IMAGE_ENTRY for entry in entries):
        raise UserError(f"{path}: this is a metadata file of pictures, not a settings file; give it as in_json")


def _refuse_too_many(path: Path, keys: Mapping[str, Any]) -> None:
    if len(keys) > MAX_KEYS:
        raise UserError(f"{path}: this is no settings file: it holds {len(keys)} keys")


def _flattened(content: Mapping[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """The keys of all objects in the file on one level, and what is to be said about that."""
    flat: dict[str, Any] = {}
    findings: list[Finding] = []
    for key, value, depth in _entries(content, 0):
        if depth > MAX_SECTIONS:
            findings.append(Finding("ignored", key, f"nested deeper than {MAX_SECTIONS} levels"))
            continue
        if key in flat and not is_blank(flat[key]) and flat[key] != value:
            findings.append(Finding("converted", key, "stands in several places; the last one counts"))
        flat[key] = value
    return flat, findings


def _entries(content: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Any, int]]:
    for key, value in content.items():
        is_section = isinstance(value, dict) and (not _is_known(key) or any(_is_known(inner) for inner in value))
        if is_section and depth <= MAX_SECTIONS:
            yield from _entries(value, depth + 1)
        else:
            yield key, value, depth


def _is_known(key: str) -> bool:
    return key in keys_of(None) or key in form_keys() or key in known.options_by_name()


def _of_options(path: Path, kind: FileKind, content: Mapping[str, Any], findings: list[Finding]) -> LoadedFile:
    """A file of trainer options under their own names. Names that are not known stay, for the check to point out."""
    values: dict[str, Any] = {}
    family = _said_family(content, findings)
    for key, value in content.items():
        if key == MODEL_FAMILY:
            continue
        if key in NO_OPTIONS:
            findings.append(Finding("ignored", key, f"{shown(value)} is not used: {NO_OPTIONS[key]}"))
            continue
        key = _current_name(key, findings)
        spec = known.options_by_name().get(key)
        if is_blank(value):
            continue
        try:
            found = known.read_option(spec, value) if spec else value
        except Unreadable as failure:
            said = "the value cannot be read" if is_secret(key) else f"{failure}; left out"
            findings.append(Finding("invalid", key, said))
            continue
        if found is not None:
            values[spec.name if spec else key] = found
    if "network_args" in values:
        items, rest = unfold(values.pop("network_args"))
        values |= items | ({"network_args": rest} if rest else {})
    method = next((method for method, names in _METHODS if any(name in values for name in names)), None)
    architecture = family or implied_family(values)
    wording = {"settings_toml": "training settings (TOML)", "settings_json": "trainer options as JSON"}[kind]
    recognised = Finding("recognised", "", f"{wording}{_for_family(architecture)}: {len(values)} options are set")
    return LoadedFile(path, kind, method, architecture, values, tuple(dict.fromkeys((recognised, *findings))))


def implied_family(values: Mapping[str, Any]) -> str | None:
    """The model family that options are only for; None where they do not say."""
    return "chroma" if values.get("model_type") == "chroma" else "sd2" if values.get("v2") is True else None


def _said_family(content: Mapping[str, Any], findings: list[Finding]) -> str | None:
    """The model family that a preset names."""
    name = content.get(MODEL_FAMILY)
    if name in (None, ""):
        return None
    if isinstance(name, str) and name in FAMILIES:
        return name
    findings.append(Finding("invalid", MODEL_FAMILY, f"{shown(name)} is none of {', '.join(FAMILIES)}; left out"))
    return None


def _current_name(key: str, findings: list[Finding]) -> str:
    spec = known.options_by_name().get(key)
    new = spec.name if spec else omitted.RENAMED.get(key, key)
    if new != key:
        findings.append(Finding("renamed", key, f"is now called {new}"))
    return new


def _for_family(architecture: str | None) -> str:
    return f", {FAMILIES[architecture].label}" if architecture else ""
