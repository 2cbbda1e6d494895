"""What stood in each form last, kept in a file, so that a reload or a restart of the server loses nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from kohya_gui.form_values import FieldValue, State, read_state, without_secrets, write_state
from kohya_gui.forms import TrainingForm

log = logging.getLogger(__name__)


class Drafts:
    """The last state of each form, without its secrets: those stay in the browser.

    Args:
        folder: for the files.
        start: by the form's name, what a form begins with where it has no draft.
        asked_for: what forms begin with although they have one, until something is typed.
    """

    def __init__(self, folder: Path, start: Mapping[str, State], asked_for: Mapping[str, State]):
        self._folder = folder
        self._start = dict(start)
        self._first = dict(asked_for)
        self._lock = threading.Lock()

    def load(self, form: TrainingForm) -> State:
        """What the form shows when a page is opened."""
        if form.name in self._first:
            return dict(self._first[form.name])
        try:
            return read_state(form, self._path(form).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            return dict(self._start.get(form.name, {}))

    def save(self, form: TrainingForm, state: Mapping[str, FieldValue]) -> None:
        """Keep a state, over the last one. A disk that is full must not stop the work in the form: it is logged."""
        state = without_secrets(form, state)
        with self._lock:
            if state == self.load(form):
                return
            self._first.pop(form.name, None)
            self._write(self._path(form), write_state(state))

    def _write(self, path: Path, text: str) -> None:
        temporary = path.with_name(path.name + ".tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)
        except OSError as failure:
            log.warning("%s: the form cannot be kept: %s", path, failure)

    def _path(self, form: TrainingForm) -> Path:
        return self._folder / f"{form.name}.json"
