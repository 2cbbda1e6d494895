"""Masks of the loss and guiding pictures, seen like the pictures they belong to, whatever their own size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sd_scripts.data.images import PictureProblem, read
from sd_scripts.data.resizing import cut, resize, resize_mask
from sd_scripts.data.words import shown
from sd_scripts.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from sd_scripts.data.views import View


def load_mask(path: Path, view: View) -> np.ndarray:
    """The mask (h, w) uint8 of a picture: the red channel of a mask file, 255 where the loss counts in full.

    Raises:
        UserError: it cannot be read.
    """
    return cut(resize_mask(_read(path, view)[..., 0], view.resized), view.offset, view.bucket)


def load_control(path: Path, view: View, interpolation: str | None) -> np.ndarray:
    """The guiding picture (h, w, 3) uint8 of a picture.

    Raises:
        UserError: it cannot be read.
    """
    return cut(resize(_read(path, view), view.resized, interpolation), view.offset, view.bucket)


def _read(path: Path, view: View) -> np.ndarray:
    try:
        return read(path).rgb
    except PictureProblem as problem:
        raise UserError(f"{shown(path)} {problem} - replace it") from problem
