"""A sample's picture as it is trained: read, scaled into its bucket, cut, and varied where the options say so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sd_scripts.data.colours import vary_colours
from sd_scripts.data.images import read_scaled
from sd_scripts.data.masks import load_control, load_mask
from sd_scripts.data.resizing import cut, load_cv2
from sd_scripts.data.views import view_of

if TYPE_CHECKING:
    import numpy as np

    from sd_scripts.data.plan import Sample
    from sd_scripts.data.randomness import Use
    from sd_scripts.data.views import View
    from sd_scripts.options.dataset import Images


@dataclass(frozen=True)
class Picture:
    """Pixels of the bucket's size."""

    rgb: np.ndarray  # (h, w, 3) uint8
    mask: np.ndarray | None = None  # (h, w) uint8, 255 where the loss counts in full
    control: np.ndarray | None = None  # (h, w, 3) uint8, what a ControlNet is guided by

    def flipped(self) -> Picture:
        return Picture(
            *(None if pixels is None else mirrored(pixels) for pixels in (self.rgb, self.mask, self.control))
        )


def load_picture(sample: Sample, options: Images, use: Use | None = None) -> Picture:
    """The sample's picture with its mask and guiding picture, not flipped.

    Args:
        sample: a planned sample.
        options: those of its subset.
        use: where random cuts and colours come from; None takes the middle and the true colours, as caches do.

    Raises:
        PictureProblem: the file cannot be read.
        UserError: its mask or guiding picture cannot.
    """
    view = view_of(sample, options, use)
    with_alpha = is_masked_by_opacity(sample, options)
    pixels = read_scaled(sample.path, view.resized, options.resize_interpolation, with_alpha=with_alpha)
    rgb = cut(pixels.rgb, view.offset, view.bucket)
    if use is not None and options.color_aug:
        rgb = vary_colours(rgb, use.draws("colour"))
    mask = None if pixels.alpha is None else cut(pixels.alpha, view.offset, view.bucket)
    return Picture(
        rgb, load_mask(sample.mask, view) if isinstance(sample.mask, Path) else mask, load_guide(sample, options, view)
    )


def load_guide(sample: Sample, options: Images, view: View) -> np.ndarray | None:
    """The guiding picture of a sample, where it has one."""
    return None if sample.control is None else load_control(sample.control, view, options.resize_interpolation)


def is_masked_by_opacity(sample: Sample, options: Images) -> bool:
    """Whether a picture's opacity is its mask; its colours are then those that are stored, not those on a background."""
    return sample.mask == "alpha" or (options.alpha_mask and sample.mask is None)


def is_flipped(options: Images, use: Use) -> bool:
    """Whether this use of a sample is mirrored."""
    return options.flip_aug and use.is_heads("flip")


def mirrored(pixels: np.ndarray) -> np.ndarray:
    """Pixels with left and right exchanged."""
    return load_cv2().flip(pixels, 1)
