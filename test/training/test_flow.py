import math

import pytest
import torch
from torch.testing import assert_close

from sd_scripts.models.flow_schedule import FlowSchedule
from sd_scripts.options.objective import Flow
from sd_scripts.training import flow
from test.training.conftest import golden_cases

(COMMON,) = golden_cases("flow_matching", "tensors")
SD3 = FlowSchedule(output="sigma_scaled", draws_whole_timesteps=True)
# What each architecture will say of itself; the family's usual settings are declared with the options.
MODELS = {"flux": ("flux", FlowSchedule()), "lumina": ("lumina", FlowSchedule()), "sd3": ("sd3", SD3)}
FULL_RANGE = (0, 1000)


def same(actual, expected):
    assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def settings_of(model="flux", **options):
    family, schedule = MODELS[model]
    return flow.FlowSettings.of(Flow(**options), family, schedule)


def evenly(count=2001):
    return (torch.arange(count) + 0.5) / count


@pytest.mark.golden("flow_matching", "sampling")
def test_noise_levels_and_noisy_latents_match_golden(case):
    inputs, common = case.inputs, COMMON.inputs
    options = inputs["defaults"] | inputs["options"]
    family, schedule = MODELS[inputs["model"]]
    settings = flow.FlowSettings.of(
        Flow(**{k: v for k, v in options.items() if k in Flow.model_fields}), family, schedule
    )
    assert settings.takes_normal_draws == (inputs["draws"] == "normal")
    draws = common["normal_draws"] if inputs["draws"] == "normal" else common["uniform_draws"]
    if shape := inputs.get("latents_shape"):
        latents, noise = torch.zeros(shape), torch.ones(shape)
    else:
        latents, noise = common["latents"], common["noise"]
    low = 0 if options["min_timestep"] is None else options["min_timestep"]
    high = 1000 if options["max_timestep"] is None else options["max_timestep"]
    sigmas = flow.sigmas_from(draws, settings, schedule, tuple(latents.shape[-2:]), (low, high))
    same(sigmas, case.expected["sigmas"])
    same(sigmas * schedule.steps, case.expected["timesteps"])
    if options["ip_noise_gamma"]:
        noise = noise + options["ip_noise_gamma"] * common["ip_noise_draw"]
    noisy = schedule.add_noise(latents, noise, sigmas)
    if "noisy_input_sum" in case.expected:
        same(noisy.sum().item(), case.expected["noisy_input_sum"])
    elif "noisy_input" in case.expected:
        same(noisy, case.expected["noisy_input"])


@pytest.mark.golden("flow_matching", "loss_weighting")
def test_weights_match_golden(case):
    same(flow.level_weight(case.inputs["sigmas"], case.inputs["weighting_scheme"]), case.expected)


@pytest.mark.golden("flow_matching", "prediction_type")
def test_what_is_compared_matches_golden(case):
    """The golden errors are all against the velocity, for sigma_scaled too, which is a defect (see `compared_target`)."""
    inputs, common, expected = case.inputs, COMMON.inputs, case.expected
    kind, sigmas = inputs["model_prediction_type"], inputs["sigmas"]
    noisy = FlowSchedule().add_noise(common["latents"], common["noise"], sigmas)
    compared = flow.compared_output(inputs["raw_model_output"], noisy, sigmas, kind)
    same(compared, expected["prediction"])
    for model in ("flux", "lumina"):
        settings = settings_of(model, model_prediction_type=kind, weighting_scheme=inputs["weighting_scheme"])
        assert settings.output == kind
        weight = flow.level_weight(sigmas, settings.weighting)
        same(weight, torch.ones(len(sigmas)) if expected["loss_weight"] is None else expected["loss_weight"])
        errors = (compared - (common["noise"] - common["latents"])).square().flatten(1).mean(1) * weight
        same(errors, expected["l2_per_sample_against_noise_minus_latents"])


@pytest.mark.golden("flow_matching", "sd3_loss")
def test_errors_of_the_clean_latents_match_golden(case):
    inputs, common = case.inputs, COMMON.inputs
    sigmas, settings = inputs["sigmas"], settings_of("sd3", weighting_scheme=inputs["weighting_scheme"])
    noisy = SD3.add_noise(common["latents"], common["noise"], sigmas)
    compared = flow.compared_output(inputs["raw_model_output"], noisy, sigmas, settings.output)
    same(compared, case.expected["prediction"])
    target = flow.compared_target(common["latents"], common["noise"], settings.output)
    errors = (compared - target).square().flatten(1).mean(1) * flow.level_weight(sigmas, settings.weighting)
    same(errors, case.expected["per_sample"])


@pytest.mark.golden("flow_matching", "flux_sample_schedule")
def test_shift_that_grows_with_the_picture_is_that_of_the_sampler(case):
    inputs = case.inputs
    even = torch.linspace(1, 0, inputs["steps"] + 1)
    shift = flow.shift_for(inputs["image_tokens"]) if inputs["shift"] else 1.0
    assert_close(flow.shifted(even, shift), torch.tensor(case.expected), rtol=1e-5, atol=1e-6)


# Closed forms


def test_path_is_a_straight_line_whose_slope_is_the_velocity():
    latents, noise, s = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4), torch.tensor([0.3, 0.8])
    schedule = FlowSchedule()
    step = 1e-2
    slope = (schedule.add_noise(latents, noise, s + step) - schedule.add_noise(latents, noise, s)) / step
    assert_close(slope, flow.compared_target(latents, noise, "raw"), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["raw", "sigma_scaled"])
def test_a_perfect_velocity_has_no_error(kind):
    latents, noise, s = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4), torch.tensor([0.3, 0.8])
    noisy = FlowSchedule().add_noise(latents, noise, s)
    compared = flow.compared_output(noise - latents, noisy, s, kind)
    assert_close(compared, flow.compared_target(latents, noise, kind), rtol=1e-5, atol=1e-5)


def test_sigma_sqrt_makes_errors_of_clean_latents_those_of_the_velocity():
    s, error = torch.tensor([0.05, 0.5, 1.0]), torch.tensor([0.3, 1.0, 2.0])
    same((s * error) ** 2 * flow.level_weight(s, "sigma_sqrt"), error**2)


def test_cosmap_weight_is_the_density_of_cosine_scheduled_levels():
    """Drawing t evenly and taking s = 1 - 1 / (tan(pi t / 2) + 1) draws s with just this density."""
    t = evenly(200_000)
    drawn = 1 - 1 / (torch.tan(math.pi / 2 * t.double()) + 1)
    counts = torch.histc(drawn.float(), 50, 0, 1) / len(t) * 50
    assert_close(counts, flow.level_weight(evenly(50), "cosmap"), rtol=1e-3, atol=1e-3)


def test_logit_normal_density_is_the_closed_form():
    s = torch.distributions.Normal(0, 1).icdf(evenly(100_000))
    drawn = flow.density(s, settings_of(timestep_sampling="sigma", weighting_scheme="logit_normal", logit_mean=0.4))
    logits = torch.logit(evenly(40))
    expected = torch.exp(-((logits - 0.4) ** 2) / 2) / math.sqrt(2 * math.pi) / (evenly(40) * (1 - evenly(40)))
    assert_close(torch.histc(drawn, 40, 0, 1) / 100_000 * 40, expected, rtol=0.02, atol=0.03)


def test_mode_without_scale_is_even_and_with_scale_prefers_the_middle():
    u = evenly()
    assert_close(flow.mode(u, 0.0), 1 - u)
    middle = ((flow.mode(u, 1.29) - 0.5).abs() < 0.1).float().mean()
    assert middle > 0.3  # 0.2 would be even


def test_shift_and_its_inverse_cancel_and_keep_the_ends():
    s = torch.linspace(0, 1, 11)
    assert_close(flow.shifted(flow.shifted(s, 3.0), 1 / 3.0), s)
    assert flow.shifted(torch.tensor([0.0, 1.0]), 3.0).tolist() == [0.0, 1.0]
    assert flow.shifted(torch.tensor(0.5), 3.0).item() == pytest.approx(0.75)


def test_shift_by_size_goes_through_the_two_points_of_flux():
    assert flow.shift_for(256) == pytest.approx(math.exp(0.5))
    assert flow.shift_for(4096) == pytest.approx(math.exp(1.15))


# Settings


@pytest.mark.parametrize("sampling", ["sigma", "uniform", "sigmoid", "shift", "flux_shift", "nextdit_shift"])
@pytest.mark.parametrize("model", ["lumina", "sd3"])
def test_every_way_of_drawing_stays_within_the_bounds_and_fills_them(sampling, model):
    settings = settings_of(model, timestep_sampling=sampling, discrete_flow_shift=2.0)
    draws = evenly() if not settings.takes_normal_draws else 8 * evenly() - 4
    sigmas = flow.sigmas_from(draws, settings, MODELS[model][1], (64, 64), (200, 500))
    assert sigmas.min() >= 0.2 and sigmas.max() <= 0.5
    assert sigmas.min() < 0.25 and sigmas.max() > 0.45  # these draws do not reach the very ends


def test_unset_options_are_as_usual_for_the_family():
    assert settings_of("flux").sampling == "sigma" and settings_of("flux").shift == 3.0
    assert settings_of("lumina").sampling == "shift" and settings_of("lumina").shift == 6.0
    assert settings_of("lumina").output == "raw" and settings_of("flux").output == "sigma_scaled"
    assert flow.FlowSettings.of(Flow(), "anima", FlowSchedule()).sampling == "sigmoid"


def test_options_of_other_families_do_not_act():
    settings = settings_of("sd3", timestep_sampling="flux_shift", discrete_flow_shift=9.0, model_prediction_type="raw")
    assert settings == settings_of("sd3")
    assert settings.sampling is None and settings.shift == 1.0 and settings.output == "sigma_scaled"
    assert settings_of("flux", training_shift=5.0) == settings_of("flux")


def test_weights_of_levels_act_where_the_output_cannot_be_chosen_else_with_sigma_scaled_only():
    cosmap = {"weighting_scheme": "cosmap"}
    assert settings_of("flux", model_prediction_type="raw", **cosmap).weighting == "none"
    assert settings_of("flux", model_prediction_type="sigma_scaled", **cosmap).weighting == "cosmap"
    assert settings_of("sd3", **cosmap).weighting == "cosmap"
    assert flow.FlowSettings.of(Flow(**cosmap), "anima", FlowSchedule()).weighting == "cosmap"


def test_a_sample_s_level_does_not_depend_on_the_batch_around_it():
    settings, schedule = settings_of("lumina"), FlowSchedule()
    generators = [torch.Generator().manual_seed(seed) for seed in (5, 6, 7)]
    together = flow.draw_sigmas(3, settings, schedule, (8, 8), FULL_RANGE, generators)
    alone = flow.draw_sigmas(1, settings, schedule, (8, 8), FULL_RANGE, [torch.Generator().manual_seed(6)])
    assert together[1] == alone[0]


def test_snr_of_a_level():
    same(FlowSchedule().snr(torch.tensor([0.5, 0.2, 1.0])), torch.tensor([1.0, 16.0, 0.0]))
    assert FlowSchedule().snr(torch.zeros(1)).isfinite().all()
