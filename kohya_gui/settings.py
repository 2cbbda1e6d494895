"""What the forms begin with: `config.toml` or any settings file, read once when the server starts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kohya_gui.form_values import State, to_state
from kohya_gui.forms import FORMS, FRESH
from kohya_gui.gui_config import defaults_of, is_gui_config, remarks
from kohya_gui.paths import CONFIG
from kohya_gui.presets import load_settings
from sd_scripts.options.preset_files import load_file
from sd_scripts.options.toml_files import load_toml

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """What the forms begin with, by their names.

    Attributes:
        defaults: for "Start from defaults", and for a page that is opened where there is no draft.
        by_family: values that come in once the model's family is known, as long as nothing else was loaded.
        browse: by option, the folder in which "Browse…" begins.
        asked_for: what was named on the command line for a form, so that its draft stands back.
        notes: what was not understood.
        source: the file.
    """

    defaults: Mapping[str, State] = field(default_factory=dict)
    by_family: Mapping[str, Mapping[str, State]] = field(default_factory=dict)
    browse: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    asked_for: Mapping[str, State] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    source: str = ""
    allowed_paths: tuple[str, ...] = ()


def read_start(config: Path | None) -> Start:
    """What a file says: one named on the command line, else config.toml in the project's folder, if it is there.

    Raises:
        UserError: it cannot be read, or is no settings file.
    """
    if config is None and not CONFIG.is_file():
        return Start()
    path = config or CONFIG
    content = load_toml(path) if path.suffix.lower() == ".toml" else {}
    start = _of_gui_config(path, content) if is_gui_config(content) else _of_settings(path)
    for note in start.notes:
        log.warning("%s: %s", path, note)
    if config is None:
        return start
    given = {name: state for name, state in start.defaults.items() if state}
    return replace(start, asked_for=start.asked_for or given)


def _of_gui_config(path: Path, content: dict) -> Start:
    notes = list(remarks(content))
    found = {}
    for form in FORMS.values():
        found[form.name], findings = defaults_of(content, form)
        notes += [str(finding) for finding in findings if finding.kind in ("invalid", "ignored")]
    server = content.get("server")
    paths = server.get("allowed_paths", []) if isinstance(server, dict) else []
    return Start(
        defaults={name: of.state | ({FRESH: True} if of.by_family else {}) for name, of in found.items()},
        by_family={name: of.by_family for name, of in found.items()},
        browse={name: of.browse for name, of in found.items()},
        notes=tuple(dict.fromkeys(notes)),
        source=path.name,
        allowed_paths=tuple(str(item) for item in paths) if isinstance(paths, list) else (),
    )


def _of_settings(path: Path) -> Start:
    """A trainer's settings or a preset: it fills the form that it is for."""
    method = load_file(path).method
    form = next((form for form in FORMS.values() if form.method == method), FORMS["lora"])
    loaded = load_settings(path, form)
    notes = tuple(words for level, words in loaded.notes if level != "note")
    return Start(asked_for={form.name: to_state(form, loaded.values)}, notes=notes, source=path.name)
