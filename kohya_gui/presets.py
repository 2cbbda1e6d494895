"""Presets: training settings as TOML files, those that come with the program and the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kohya_gui.browse import at_home
from kohya_gui.form_values import FieldValue, from_state
from kohya_gui.forms import FAMILY, FORMS, HIDDEN, TrainingForm
from kohya_gui.network_items import gather
from sd_scripts.errors import UserError
from sd_scripts.options.build import build, stranger
from sd_scripts.options.file_names import why_no_file_name
from sd_scripts.options.gui_presets.fields import METHOD_LABELS
from sd_scripts.options.network_arguments import NetworkArguments
from sd_scripts.options.preset_files import implied_family, load_file
from sd_scripts.options.problems import CheckFailed
from sd_scripts.options.toml_files import settings_toml

USER_FOLDER = "user_presets"
LEVELS = {  # of a finding in the list of remarks
    "recognised": "note",
    "renamed": "note",
    "converted": "note",
    "ignored": "warning",
    "invalid": "error",
}


@dataclass(frozen=True)
class Loaded:
    """What a settings file gave.

    `notes`: what was converted, renamed or left aside: (level, words). `meant_for`: the tab it was made for, where that
    is another one.
    """

    source: str
    values: dict[str, Any]
    notes: tuple[tuple[str, str], ...] = ()
    meant_for: str = ""


class PresetFolder:
    """The presets of one form. Those of users lie in a folder inside and are called "user_presets/<name>"."""

    def __init__(self, root: Path):
        self.root = root

    def names(self) -> list[str]:
        """Every preset, the program's own first."""
        shipped = sorted(path.stem for path in self.root.glob("*.toml"))
        own = sorted(f"{USER_FOLDER}/{path.stem}" for path in (self.root / USER_FOLDER).glob("*.toml"))
        return shipped + own

    def path(self, name: str) -> Path:
        """The file of a preset, or the path itself where the name is one of a file."""
        if name in self.names():
            return self.root / f"{name}.toml"
        return at_home(name)

    def load(self, name: str, form: TrainingForm) -> Loaded:
        """Read a preset or any settings file.

        Raises:
            UserError: no such file; broken; a dataset file.
        """
        if not name.strip():
            raise UserError("no preset is chosen; choose one, or type the path of a settings file")
        return load_settings(self.path(name.strip()), form)

    def target(self, name: str) -> Path:
        """Where a user's preset is saved. Only the name is used, so that nothing lands elsewhere.

        Raises:
            UserError: a name that cannot be a file's.
        """
        bare = name.strip().removeprefix(f"{USER_FOLDER}/").removesuffix(".toml").strip()
        if not bare:
            raise UserError("the preset has no name; type one")
        if reason := why_no_file_name(bare):
            raise UserError("; ".join(reason))
        if bare.strip(". ") != bare:
            raise UserError(f"{bare!r} cannot be a file name; leave out the dots at its ends")
        return self.root / USER_FOLDER / f"{bare}.toml"

    def save(self, name: str, content: str) -> Path:
        """Write a user's preset, over an older one of the name.

        Raises:
            UserError: a name that cannot be a file's; a folder that cannot be written.
        """
        target = self.target(name)
        temporary = target.with_name(target.name + ".tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(content.encode("utf-8"))
            temporary.replace(target)
        except OSError as failure:
            raise UserError(f"{target}: cannot be written: {failure.strerror or failure}") from None
        return target


def preset_toml(form: TrainingForm, state: Mapping[str, FieldValue]) -> str:
    """What a form holds as the text of a preset; never secrets.

    Raises:
        UserError: a value does not fit its option.
    """
    values, problems = from_state(form, state)
    values, found = gather(form, values)
    if problems + found:
        raise CheckFailed([*problems, *found])
    written = [model for model in form.models if model is not NetworkArguments]  # whose items are in a list by now
    family = state.get(FAMILY)
    texts = [f'{FAMILY} = "{family}"\n'] if family and family != implied_family(values) else []
    texts += [settings_toml(build(model, form.part(model, values))) for model in written]
    return "\n".join(text for text in texts if text)


def load_settings(path: Path, form: TrainingForm) -> Loaded:
    """What a settings file of any kind says to this form, with every remark on it.

    Raises:
        UserError: as `PresetFolder.load`.
    """
    file = load_file(path)
    notes = [(LEVELS[finding.kind], str(finding)) for finding in file.findings]
    unknown = [name for name in file.values if name not in form.specs and name not in HIDDEN]
    notes += [("warning", str(stranger(name, form.specs))) for name in unknown]
    values = {name: value for name, value in file.values.items() if name in form.specs}
    if file.architecture in form.families:
        values[FAMILY] = file.architecture
    return Loaded(path.name, values, tuple(notes), other_tab(file.method, form))


def other_tab(method: str | None, form: TrainingForm) -> str:
    """The tab that a file was made for, "" where it is this one or nobody can tell."""
    if method in (None, form.method) or (method, form.method) == ("full", "dreambooth"):  # they share their options
        return ""
    return next((other.title for other in FORMS.values() if other.method == method), METHOD_LABELS[method])
