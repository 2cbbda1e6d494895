"""Garbage collection while a trainer starts: a tenth of its time goes into looking through modules that never go away."""

from __future__ import annotations

import gc


def pause_collection() -> None:
    """Do not look for garbage for now. For scripts only: what a notebook has lying about is its own affair."""
    gc.disable()


def resume_collection() -> None:
    """Look for garbage again, if that was paused, but never again among what has been made until now."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
