import pytest
import torch

from sd_scripts.errors import ConfigError
from sd_scripts.training.timesteps import timestep_bounds, uniform_timesteps


@pytest.mark.golden("noise", "timestep_range")
def test_range_matches_golden(case):
    low, high = timestep_bounds(case.inputs["min_timestep"], case.inputs["max_timestep"])
    assert (low, high - 1) == (case.expected["smallest"], case.expected["largest"])


def test_every_timestep_of_the_range_comes_equally_often():
    timesteps = uniform_timesteps(20_000, 200, 210, torch.Generator().manual_seed(0))
    counts = torch.bincount(timesteps, minlength=211)
    assert counts[:200].sum() == 0 and counts[210] == 0
    assert ((counts[200:210] - 2000).abs() < 200).all()  # 4.7 standard deviations


def test_a_sample_s_timestep_does_not_depend_on_the_batch_around_it():
    together = uniform_timesteps(3, 0, 1000, [torch.Generator().manual_seed(seed) for seed in (5, 6, 7)])
    alone = uniform_timesteps(1, 0, 1000, torch.Generator().manual_seed(6))
    assert together[1] == alone[0]


@pytest.mark.parametrize(
    ("low", "high", "option"), [(800, 200, "min_timestep"), (-1, None, "min_timestep"), (None, 1001, "max_timestep")]
)
def test_impossible_bounds_name_the_option(low, high, option):
    with pytest.raises(ConfigError) as failure:
        timestep_bounds(low, high)
    assert failure.value.option == option
