"""How one use of a sample looks at its picture: to which size it is scaled and where it is cut. Masks and guiding
pictures are looked at in the same way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sd_scripts.data.faces import fit_face, parse_range

if TYPE_CHECKING:
    from sd_scripts.data.buckets import Size
    from sd_scripts.data.plan import Sample
    from sd_scripts.data.randomness import Use
    from sd_scripts.options.dataset import Images


@dataclass(frozen=True, slots=True)
class View:
    """The picture is scaled to `resized`; of that the part of size `bucket` at `offset` (x, y) is used."""

    resized: Size
    offset: tuple[int, int]
    bucket: Size


def sizes_of(sample: Sample, view: View, is_flipped: bool) -> tuple[int, int, int, int, int, int]:
    """Height and width of the original, top and left of the cut in the scaled picture, height and width of the cut.

    In a mirrored picture the left edge of the cut is the right one of the original.
    """
    (width, height), (left, top) = sample.size, view.offset
    if is_flipped:
        left = view.resized[0] - left - view.bucket[0]
    return height, width, top, left, view.bucket[1], view.bucket[0]


def view_of(sample: Sample, options: Images, use: Use | None = None) -> View:
    """The view of a use; without one, as caches see the picture: the middle of it."""
    fit = sample.fit
    if use is None:
        return View(fit.resized, fit.crop, fit.bucket)
    if options.face_crop_aug_range and sample.face is not None and (limits := parse_range(options.face_crop_aug_range)):
        draws = use.draws("crop")
        placed = fit_face(sample.size, fit.bucket, sample.face, limits, draws, is_random=options.random_crop)
        return View(*placed, fit.bucket)
    if options.random_crop:
        draws = use.draws("crop")
        return View(fit.resized, (draws.randint(0, fit.cut[0]), draws.randint(0, fit.cut[1])), fit.bucket)
    return View(fit.resized, fit.crop, fit.bucket)
