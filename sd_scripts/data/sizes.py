"""The training size of a dataset: `resolution` and the bucket options, checked against what the model needs."""

from __future__ import annotations

from sd_scripts.data.buckets import Buckets, Fit, Size, fit_exactly, round_limits
from sd_scripts.options.dataset import Images
from sd_scripts.options.problems import Problem, error, warning
from sd_scripts.options.sizes import check_bucket_steps, check_resolution, parse_resolution


class Sizing:
    """Answers which bucket a picture gets; made from valid options only."""

    def __init__(self, options: Images, resolution: Size):
        self.resolution = resolution
        self._skip_area = _area(parse_resolution(options.skip_image_resolution or ""))
        self._fits: dict[Size, Fit | None] = {}
        self.enable_bucket = options.enable_bucket
        self.limits = round_limits(options.min_bucket_reso, options.max_bucket_reso, options.bucket_reso_steps)
        self._buckets = Buckets(
            resolution,
            smallest=self.limits[0],
            largest=self.limits[1],
            step=options.bucket_reso_steps,
            no_upscale=options.bucket_no_upscale,
        )

    def fit(self, size: Size) -> Fit | None:
        """The picture's bucket; None where it is too small for one."""
        if size not in self._fits:
            self._fits[size] = self._buckets.fit(size) if self.enable_bucket else fit_exactly(size, self.resolution)
        return self._fits[size]

    def is_skipped(self, size: Size) -> bool:
        """Whether a picture is too small to be wanted."""
        return size[0] * size[1] <= self._skip_area


def make_sizing(options: Images, divisor: int) -> tuple[Sizing | None, list[Problem]]:
    """The sizing for these options, None if an error is among the problems.

    Args:
        divisor: sides of training pictures must be multiples of so many px.
    """
    resolution = parse_resolution(options.resolution)
    problems = check_resolution(options.resolution, divisor)
    if resolution is None:
        return None, problems
    if options.skip_image_resolution and parse_resolution(options.skip_image_resolution) is None:
        text = f"{options.skip_image_resolution!r} is no size"
        problems.append(error("skip_image_resolution", text, "write 512, or width,height as in 512,768"))
    if options.enable_bucket and not problems:
        problems += _check_buckets(options, resolution, divisor)
    if any(problem.level == "error" for problem in problems):
        return None, problems
    return Sizing(options, resolution), problems


def _area(size: Size | None) -> int:
    return size[0] * size[1] if size else 0


def _check_buckets(options: Images, resolution: Size, divisor: int) -> list[Problem]:
    step, smallest, largest = options.bucket_reso_steps, options.min_bucket_reso, options.max_bucket_reso
    problems = check_bucket_steps(step, divisor)
    if smallest > min(resolution):
        text = f"{smallest} is above the shorter side of the resolution, {min(resolution)}"
        problems.append(error("min_bucket_reso", text, f"set min_bucket_reso to {min(resolution)} or less"))
    if largest < max(resolution):
        text = f"{largest} is below the longer side of the resolution, {max(resolution)}"
        problems.append(error("max_bucket_reso", text, f"set max_bucket_reso to {max(resolution)} or more"))
    if problems or options.bucket_no_upscale:
        return problems
    rounded = round_limits(smallest, largest, step)
    if rounded[0] > min(resolution):
        text = f"{step} is above the shorter side of the resolution, {min(resolution)}"
        return [error("bucket_reso_steps", text, f"set bucket_reso_steps to {min(resolution)} or less")]
    for name, given, used in zip(("min_bucket_reso", "max_bucket_reso"), (smallest, largest), rounded, strict=True):
        if given != used:
            text = f"{given} is not a multiple of bucket_reso_steps {step}; {used} is used"
            problems.append(warning(name, text, f"write {used}"))
    return problems
