"""A sample's picture as it is trained: read, scaled into its bucket, cut, and varied where the options say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sd_scripts.data.images import cut, read, resize, vary_colours

if TYPE_CHECKING:
    import numpy as np

    from sd_scripts.data.plan import Sample
    from sd_scripts.data.randomness import Use
    from sd_scripts.options.dataset import Images


@dataclass(frozen=True)
class Picture:
    """Pixels of the bucket's size."""

    rgb: np.ndarray  # (h, w, 3) uint8
    mask: np.ndarray | None = None  # (h, w) uint8, 255 where the loss counts in full

    def flipped(self) -> Picture:
        return Picture(self.rgb[:, ::-1], None if self.mask is None else self.mask[:, ::-1])


def load_picture(sample: Sample, options: Images, use: Use | None = None) -> Picture:
    """The sample's picture, not flipped.

    Args:
        sample: a planned sample.
        options: those of its subset.
        use: where random cuts and colours come from; None takes the middle and the true colours, as caches do.

    Raises:
        PictureProblem: the file cannot be read.
    """
    fit = sample.fit
    pixels = read(sample.path, fit.resized, with_alpha=options.alpha_mask)
    offset = fit.crop
    if use is not None and options.random_crop:
        draws = use.draws("crop")
        offset = (draws.randint(0, fit.cut[0]), draws.randint(0, fit.cut[1]))
    rgb = cut(resize(pixels.rgb, fit.resized, options.resize_interpolation), offset, fit.bucket)
    if use is not None and options.color_aug:
        rgb = vary_colours(rgb, use.draws("colour"))
    mask = None
    if pixels.alpha is not None:
        mask = cut(resize(pixels.alpha, fit.resized, options.resize_interpolation), offset, fit.bucket)
    return Picture(rgb, mask)


def is_flipped(options: Images, use: Use) -> bool:
    """Whether this use of a sample is mirrored."""
    return options.flip_aug and use.draws("flip").random() < 0.5
