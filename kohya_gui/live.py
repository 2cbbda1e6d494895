"""The views of runs that pages look at, shared between pages; only a run that changed is read and drawn again."""

from __future__ import annotations

import threading
from collections import OrderedDict

from kohya_gui.run_view import RunView
from kohya_gui.runs import Run

MOST_VIEWS = 4


class ViewCache:
    """The last few `RunView`s that were looked at."""

    def __init__(self) -> None:
        self._views: OrderedDict[str, RunView] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, run: Run) -> RunView:
        """The run's view, up to date."""
        with self._lock:
            view = self._views.pop(run.name, None) or RunView(run.folder)
            view.update()
            self._views[run.name] = view
            while len(self._views) > MOST_VIEWS:
                self._views.popitem(last=False)
            return view


def mark(run: Run, view: RunView) -> tuple:
    """Equal as long as nothing of the run that a page shows has changed."""
    log_bytes = run.folder.log.stat().st_size if run.folder.log.exists() else 0
    return run.name, run.status, run.stop_asked, view.offset, log_bytes
