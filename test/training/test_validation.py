"""Which timesteps held-out pictures are measured at."""

import pytest

from sd_scripts.training.validation import spread_timesteps


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1000, (200, 400, 600, 800)),
        (100, 600, (200, 300, 400, 500)),
        (500, 501, (500,)),
        (10, 13, (10, 11, 12)),
    ],
)
def test_timesteps_are_spread_evenly_within_the_bounds(low, high, expected):
    assert spread_timesteps(low, high) == expected
