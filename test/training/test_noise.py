import pytest
import torch
from torch.testing import assert_close

from sd_scripts.models.noise_schedule import NoiseSchedule
from sd_scripts.options.objective import Noise
from sd_scripts.training.noise import draw_noise, level_sizes, offset_noise, perturbed_noise, pyramid_noise


def same(actual, expected):
    assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


@pytest.mark.golden("noise", "noise_offset")
def test_offset_matches_golden(case):
    inputs = case.inputs
    noise = offset_noise(
        inputs["noise"],
        inputs["offset_draw"],
        inputs["noise_offset"],
        inputs["latents"],
        inputs["adaptive_noise_scale"],
    )
    same(noise, case.expected)


def test_adaptive_offset_does_not_fall_below_zero():
    noise, latents = torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2)
    assert (offset_noise(noise, torch.ones(1, 1, 1, 1), 0.1, latents, adaptive_scale=-5.0) == 0).all()


@pytest.mark.golden("noise", "multires_noise")
def test_pyramid_matches_golden(case):
    inputs, expected = case.inputs, case.expected
    sizes = level_sizes(*inputs["noise"].shape[2:], [2 + 2 * draw for draw in inputs["uniform_draws"]])
    assert list(sizes) == [tuple(size) for size in expected["level_sizes"]]
    same(pyramid_noise(inputs["noise"], inputs["level_noise"], inputs["discount"]), expected["result"])


def test_pyramid_levels_end_at_the_first_that_is_one_pixel_wide():
    assert list(level_sizes(64, 96, [2.0] * 10))[-2:] == [(2, 3), (1, 1)]
    assert list(level_sizes(64, 96, [2.0] * 3)) == [(64, 96), (32, 48), (16, 24)]


@pytest.mark.golden("noise", "noisy_latents")
def test_noisy_latents_match_golden(case):
    """The offset belongs to the target noise too, the perturbation to the model's input alone."""
    inputs, options = case.inputs, case.inputs["options"]
    noise, latents = inputs["noise_draw"], inputs["latents"]
    if options["noise_offset"]:
        strength = options["noise_offset"] * (inputs["offset_strength_draw"] or 1.0)
        noise = offset_noise(noise, inputs["offset_draw"], strength, latents, options["adaptive_noise_scale"])
    added = noise
    if options["ip_noise_gamma"]:
        gamma = options["ip_noise_gamma"] * (inputs["ip_strength_draw"] or 1.0)
        added = perturbed_noise(noise, inputs["ip_noise_draw"], gamma)
    same(noise, case.expected["noise_used_as_target"])
    noisy = NoiseSchedule.scaled_linear().add_noise(latents, added, torch.tensor(inputs["timesteps"]))
    same(noisy, case.expected["noisy_latents"])


def test_plain_noise_is_standard_normal_and_the_same_for_target_and_input():
    noise = draw_noise(torch.zeros(4, 4, 64, 64), Noise(), generators(0, 1, 2, 3))
    assert noise.added is noise.target
    assert abs(noise.target.mean()) < 0.02 and abs(noise.target.std() - 1) < 0.02


EVERYTHING = {
    "noise_offset": 0.1,
    "noise_offset_random_strength": True,
    "adaptive_noise_scale": 0.1,
    "multires_noise_iterations": 6,
    "ip_noise_gamma": 0.1,
    "ip_noise_gamma_random_strength": True,
}


def test_a_sample_s_noise_does_not_depend_on_the_batch_around_it():
    latents = torch.randn(3, 4, 8, 12, generator=torch.Generator().manual_seed(9))
    cfg = Noise(**EVERYTHING)
    together = draw_noise(latents, cfg, generators(5, 6, 7))
    alone = draw_noise(latents[1:2], cfg, generators(6))
    assert torch.equal(together.target[1:2], alone.target)
    assert torch.equal(together.added[1:2], alone.added)


def test_draws_of_the_options_are_those_of_the_pure_functions():
    latents = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(9))
    cfg = Noise(noise_offset=0.05, ip_noise_gamma=0.2)
    (generator,) = generators(3)
    noise = torch.randn(1, 4, 8, 8, generator=generator)
    noise = offset_noise(noise, torch.randn(1, 4, 1, 1, generator=generator), 0.05)
    drawn = draw_noise(latents, cfg, generators(3)[0])
    same(drawn.target, noise)
    same(drawn.added, perturbed_noise(noise, torch.randn(1, 4, 8, 8, generator=generator), 0.2))


def test_random_strength_is_even_between_zero_and_the_value():
    cfg = Noise(noise_offset=1.0, noise_offset_random_strength=True)
    latents = torch.zeros(1, 1, 2, 2)
    strengths = []
    for seed in range(300):
        (generator,) = generators(seed)
        plain = torch.randn(1, 1, 2, 2, generator=generator)
        draw = torch.randn(1, 1, 1, 1, generator=generator)
        strengths.append(((draw_noise(latents, cfg, generators(seed)).target - plain) / draw).mean().item())
    strengths = torch.tensor(strengths)
    assert strengths.min() >= 0 and strengths.max() <= 1.001
    assert abs(strengths.mean() - 0.5) < 0.06 and abs(strengths.std() - 12**-0.5) < 0.04


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_noise_has_the_dtype_of_the_latents(dtype):
    noise = draw_noise(torch.zeros(2, 4, 8, 8, dtype=dtype), Noise(**EVERYTHING), generators(0, 1))
    assert noise.target.dtype == noise.added.dtype == dtype


def test_pyramid_noise_has_unit_variance_per_sample():
    cfg = Noise(multires_noise_iterations=8, multires_noise_discount=0.8)
    noise = draw_noise(torch.zeros(3, 4, 32, 32), cfg, generators(0, 1, 2)).target
    same(noise.std(dim=(1, 2, 3)), torch.ones(3))


def test_number_of_generators_must_be_that_of_the_samples():
    with pytest.raises(ValueError, match="2 generators for 3 samples"):
        draw_noise(torch.zeros(3, 4, 8, 8), Noise(), generators(0, 1))
