import pytest
import torch
from torch.testing import assert_close

from sd_scripts.models.flow_schedule import FlowSchedule
from sd_scripts.models.noise_schedule import NoiseSchedule
from sd_scripts.options.objective import Loss
from sd_scripts.training import objective
from sd_scripts.training.forward_process import Noised
from sd_scripts.training.loss_average import LossAverage

SCHEDULE = NoiseSchedule.scaled_linear()
ZERO_TERMINAL = SCHEDULE.with_zero_terminal_snr()


def same(actual, expected):
    assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def noised(target, timesteps, schedule=SCHEDULE, options=None):
    """A batch of which only the target and the timesteps matter."""
    snr = schedule.snr(timesteps)
    weights = objective.timestep_weights(snr, schedule.prediction, options or Loss())
    return Noised(torch.zeros_like(target), target, timesteps, timesteps / schedule.steps, snr, weights)


def snr_of_the_golden_weights(case):
    """The golden weights use the SNR before rescaling, also with zero_terminal_snr; as formulas they are right."""
    return SCHEDULE.snr(torch.tensor(case.inputs["timesteps"]))


@pytest.mark.golden("losses", "pointwise")
def test_pointwise_losses_match_golden(case):
    inputs = case.inputs
    timesteps = torch.tensor(inputs["timesteps"])
    schedule = ZERO_TERMINAL if inputs["zero_terminal_snr"] else SCHEDULE
    delta, kind = None, inputs["huber_schedule"]
    if kind:
        # The golden numbers leave huber_scale out of the snr schedule, which is a defect; ours applies it (see below).
        scale = 1.0 if kind == "snr" else inputs["huber_scale"]
        delta = objective.huber_threshold(kind, inputs["huber_c"], scale, timesteps / 1000, schedule.snr(timesteps))
        same(delta, case.expected["threshold_per_sample"])
    loss = objective.pointwise_loss(inputs["pred"], inputs["target"], inputs["loss_type"], delta)
    same(loss, case.expected["loss"])
    same(loss.mean().item(), case.expected["mean"])


@pytest.mark.parametrize("schedule", ["constant", "exponential", "snr"])
def test_huber_scale_multiplies_the_threshold_of_every_schedule(schedule):
    progress, snr = torch.tensor([0.1, 0.9]), torch.tensor([5.0, 0.01])
    plain = objective.huber_threshold(schedule, 0.05, 1.0, progress, snr)
    same(objective.huber_threshold(schedule, 0.05, 1.6, progress, snr), 1.6 * plain)


def test_huber_threshold_by_snr_goes_from_1_to_c_and_is_that_of_flow_matching():
    sigmas = torch.tensor([0.0, 1e-3, 0.25, 0.8, 1.0])  # x = (1 - sigma) x_0 + sigma noise
    delta = objective.huber_threshold("snr", 0.1, 1.0, torch.zeros(5), FlowSchedule().snr(sigmas))
    assert_close(delta, 0.9 * (1 - sigmas) ** 2 + 0.1, rtol=2e-4, atol=0)  # at 0 the SNR is held finite
    same(delta[1:], (0.9 * (1 - sigmas) ** 2 + 0.1)[1:])


def test_huber_is_quadratic_for_small_and_linear_for_large_errors():
    small, large, zero = torch.full((1, 1), 1e-3), torch.full((1, 1), 1e3), torch.zeros(1, 1)
    delta = torch.ones(1)
    assert_close(objective.pointwise_loss(small, zero, "huber", delta), small**2, rtol=1e-2, atol=0)
    assert_close(objective.pointwise_loss(large, zero, "smooth_l1", delta), 2 * large, rtol=2e-3, atol=0)


@pytest.mark.golden("losses", "min_snr_gamma")
def test_min_snr_matches_golden(case):
    prediction = "v" if case.inputs["v_prediction"] else "epsilon"
    weight = objective.min_snr_weight(snr_of_the_golden_weights(case), case.inputs["gamma"], prediction)
    same(case.inputs["loss"] * weight, case.expected)


@pytest.mark.golden("losses", "debiased_estimation")
def test_debiased_estimation_matches_golden(case):
    prediction = "v" if case.inputs["v_prediction"] else "epsilon"
    same(case.inputs["loss"] * objective.debiased_weight(snr_of_the_golden_weights(case), prediction), case.expected)


@pytest.mark.golden("losses", "scale_v_pred_loss_like_noise_pred")
def test_scaling_v_to_noise_matches_golden(case):
    same(case.inputs["loss"] * objective.v_to_noise_scale(snr_of_the_golden_weights(case)), case.expected)


@pytest.mark.golden("losses", "v_pred_like_loss")
def test_v_pred_like_loss_matches_golden(case):
    options = Loss(v_pred_like_loss=case.inputs["factor"])
    snr = snr_of_the_golden_weights(case)
    same(case.inputs["loss"] * objective.timestep_weights(snr, "epsilon", options), case.expected)


@pytest.mark.parametrize("name", ["min_snr", "debiased", "to_noise", "to_v"])
@pytest.mark.parametrize("prediction", ["epsilon", "v"])
def test_weights_are_finite_at_both_ends_of_a_zero_terminal_schedule(name, prediction):
    snr = ZERO_TERMINAL.snr(torch.tensor([0, 998, 999]))
    assert snr[-1] == 0
    weight = {
        "min_snr": lambda: objective.min_snr_weight(snr, 5.0, prediction),
        "debiased": lambda: objective.debiased_weight(snr, prediction),
        "to_noise": lambda: objective.v_to_noise_scale(snr),
        "to_v": lambda: objective.noise_to_v_scale(snr),
    }[name]()
    assert weight.isfinite().all()


def test_error_of_v_scaled_is_the_error_of_the_noise_it_implies():
    """With x_t known, v = (noise - sqrt(1 - alpha_bar) x_t) / sqrt(alpha_bar): errors differ by sqrt(alpha_bar)."""
    timesteps = torch.tensor([10, 500, 990])
    alpha_bar = SCHEDULE.alphas_cumprod[timesteps]
    v_error = torch.tensor([0.3, 1.0, 2.0])
    same(v_error**2 * objective.v_to_noise_scale(SCHEDULE.snr(timesteps)), (alpha_bar.sqrt() * v_error) ** 2)


@pytest.mark.golden("losses", "masked_loss")
def test_masked_loss_matches_golden(case):
    loss, mask = case.inputs["loss"], case.inputs.get("alpha_masks")
    if "conditioning_images" in case.inputs:
        mask = objective.mask_from_picture(case.inputs["conditioning_images"])
    same(loss if mask is None else objective.masked(loss, mask), case.expected)


def test_masked_area_does_not_change_the_gradient():
    prediction = torch.randn(1, 2, 4, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    mask = torch.zeros(1, 8, 8)
    mask[:, :, :4] = 1
    loss = objective.training_loss(prediction, noised(torch.zeros(1, 2, 4, 4), torch.tensor([500])), Loss(), mask)
    loss.backward()
    assert (prediction.grad[..., 2:] == 0).all()
    same(prediction.grad[..., :2], 2 * prediction.detach()[..., :2] / prediction.numel())


@pytest.mark.golden("losses", "whole_chain")
def test_whole_chain_matches_golden(case):
    options = dict(case.inputs["options"])
    prediction = "v" if options.pop("v_parameterization") else "epsilon"
    is_zero_terminal = options.pop("zero_terminal_snr")
    schedule = NoiseSchedule.scaled_linear(prediction)
    timesteps = torch.tensor(case.inputs["timesteps"])
    expected = case.expected["per_sample"]
    if is_zero_terminal:
        # Defect in the golden numbers: the weights use the SNR before rescaling. Ours use that of the trained schedule.
        gamma = options["min_snr_gamma"]
        used = objective.min_snr_weight(schedule.snr(timesteps), gamma, prediction)
        schedule = schedule.with_zero_terminal_snr()
        expected = expected / used * objective.min_snr_weight(schedule.snr(timesteps), gamma, prediction)
    options = Loss(**options)
    arguments = (
        case.inputs["pred"],
        noised(case.inputs["target"], timesteps, schedule, options),
        options,
        case.inputs["alpha_masks"],
        case.inputs["loss_weights"],
    )
    same(objective.sample_losses(*arguments), expected)
    same(objective.training_loss(*arguments), expected.mean())
    if not is_zero_terminal:
        same(objective.training_loss(*arguments).item(), case.expected["loss"])


def test_loss_is_computed_in_float32():
    prediction = torch.full((1, 1, 2, 2), 300.0, dtype=torch.float16)  # its square is no float16
    loss = objective.training_loss(prediction, noised(torch.zeros_like(prediction), torch.tensor([3])), Loss())
    assert loss.dtype == torch.float32 and loss.item() == 90000.0


@pytest.mark.golden("losses", "avr_loss")
def test_average_loss_matches_golden(case):
    average = LossAverage(steps_per_epoch=5)
    same([average.add(loss) for _, _, loss in case.inputs["epoch_step_loss"]], case.expected)


def test_average_loss_shows_a_nan_until_an_epoch_has_passed():
    average = LossAverage(steps_per_epoch=2)
    shown = [average.add(loss) for loss in (1.0, float("nan"), 1.0, 3.0)]
    assert shown[0] == 1.0 and shown[3] == 2.0
    assert all(value != value for value in shown[1:3])
