from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from sd_scripts.models.flow_schedule import FlowSchedule
from sd_scripts.models.noise_schedule import NoiseSchedule
from sd_scripts.options.objective import Flow, Loss, Noise
from sd_scripts.training.forward_process import noise_latents
from sd_scripts.training.objective import sample_losses, training_loss


class Objective(Loss, Noise, Flow):
    pass


def draws(count=2, first=0):
    return [torch.Generator().manual_seed(first + i) for i in range(count)]


def latents(count=2):
    return torch.randn(count, 4, 8, 8, generator=torch.Generator().manual_seed(42))


FAMILIES = {
    "sd1": NoiseSchedule.scaled_linear(),
    "sd2": NoiseSchedule.scaled_linear("v"),
    "sdxl": NoiseSchedule.scaled_linear("v").with_zero_terminal_snr(),
    "sd3": FlowSchedule(output="sigma_scaled", draws_whole_timesteps=True),
    "flux": FlowSchedule(),
    "lumina": FlowSchedule(),
    "anima": FlowSchedule(),
}


def right_output(noised, clean):
    """What a perfect model gives."""
    if noised.output == "sigma_scaled":
        s = noised.progress.view(-1, 1, 1, 1)
        return (noised.noisy - clean) / s
    return noised.target


@pytest.mark.parametrize("loss_type", ["l2", "l1", "huber", "smooth_l1"])
@pytest.mark.parametrize("schedule", ["constant", "exponential", "snr"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_loss_works_for_every_family_and_is_0_for_a_perfect_model(family, loss_type, schedule):
    cfg = Objective(loss_type=loss_type, huber_schedule=schedule)
    clean = latents(4)
    noised = noise_latents(clean, FAMILIES[family], cfg, family, draws(4))
    right = sample_losses(right_output(noised, clean), noised, cfg)
    wrong = sample_losses(right_output(noised, clean) + 1, noised, cfg)
    assert_close(right, torch.zeros(4), atol=1e-5, rtol=0)
    assert (wrong > right).all() and wrong.isfinite().all()


@pytest.mark.parametrize("family", FAMILIES)
def test_bounds_of_the_timestep_act_in_every_family(family):
    cfg = Objective(min_timestep=300, max_timestep=400, discrete_flow_shift=1.0)
    timesteps = torch.cat(
        [noise_latents(latents(), FAMILIES[family], cfg, family, draws(first=i)).timesteps for i in range(0, 200, 2)]
    )
    assert timesteps.min() >= 300 and timesteps.max() <= 400
    assert timesteps.min() < 325 and timesteps.max() > 375


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_bounds_are_that_timestep(family):
    timesteps = noise_latents(
        latents(), FAMILIES[family], Objective(min_timestep=250, max_timestep=250), family, draws()
    ).timesteps
    assert ((timesteps >= 250) & (timesteps <= 251)).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sample_does_not_depend_on_the_batch_around_it(family):
    cfg, clean = Objective(ip_noise_gamma=0.1), latents(3)
    together = noise_latents(clean, FAMILIES[family], cfg, family, draws(3))
    alone = noise_latents(clean[1:2], FAMILIES[family], cfg, family, draws(1, first=1))
    assert torch.equal(together.noisy[1:2], alone.noisy)
    assert torch.equal(together.timesteps[1:2], alone.timesteps)


@pytest.mark.parametrize("family", FAMILIES)
def test_timesteps_may_be_given(family):
    given = torch.tensor([125.0, 750.0])
    noised = noise_latents(latents(), FAMILIES[family], Objective(), family, draws(), timesteps=given)
    assert_close(noised.timesteps.float(), given)
    other = noise_latents(latents(), FAMILIES[family], Objective(), family, draws(), timesteps=given + 1)
    assert not torch.equal(noised.noisy, other.noisy)


def test_input_perturbation_changes_the_input_and_not_the_target():
    for family in ("sd1", "flux", "sd3"):
        plain = noise_latents(latents(), FAMILIES[family], Objective(), family, draws(), torch.tensor([500, 500]))
        moved = noise_latents(
            latents(), FAMILIES[family], Objective(ip_noise_gamma=0.3), family, draws(), torch.tensor([500, 500])
        )
        assert torch.equal(plain.target, moved.target)
        assert not torch.allclose(plain.noisy, moved.noisy)


def test_noise_offset_and_weights_by_snr_do_not_act_on_flow_matching():
    plain = noise_latents(latents(), FlowSchedule(), Objective(), "flux", draws())
    cfg = Objective(noise_offset=1.0, multires_noise_iterations=6, min_snr_gamma=5.0, debiased_estimation_loss=True)
    other = noise_latents(latents(), FlowSchedule(), cfg, "flux", draws())
    assert torch.equal(plain.noisy, other.noisy) and torch.equal(plain.weights, other.weights)


def test_masks_and_sample_weights_act_on_flow_matching():
    cfg = Objective(model_prediction_type="raw")
    noised = noise_latents(latents(), FlowSchedule(), cfg, "flux", draws())
    output = torch.zeros(2, 4, 8, 8)
    mask = torch.zeros(2, 64, 64)
    mask[:, :32] = 1
    half = sample_losses(output, noised, cfg, mask)
    assert_close(half, (noised.target[:, :, :4] ** 2).flatten(1).sum(1) / (4 * 8 * 8))
    weighted = sample_losses(output, noised, cfg, sample_weights=torch.tensor([1.0, 0.5]))
    assert_close(weighted, (noised.target**2).flatten(1).mean(1) * torch.tensor([1.0, 0.5]))
    assert_close(training_loss(output, noised, cfg), (noised.target**2).mean())


def test_v_prediction_with_zero_terminal_snr_ends_in_pure_noise():
    schedule = FAMILIES["sdxl"]
    noised = noise_latents(latents(), schedule, Objective(), "sdxl", draws(), torch.tensor([999, 999]))
    again = noise_latents(0 * latents(), schedule, Objective(), "sdxl", draws(), torch.tensor([999, 999]))
    assert torch.equal(noised.noisy, again.noisy)  # nothing of the picture is left
    assert_close(noised.target, -latents())  # v is then the picture alone


def test_number_formats_of_half_precision_latents():
    for family, schedule in FAMILIES.items():
        noised = noise_latents(latents().bfloat16(), schedule, Objective(), family, draws())
        assert noised.noisy.dtype == torch.bfloat16
        loss = training_loss(torch.zeros(2, 4, 8, 8).bfloat16(), noised, Objective())
        assert loss.dtype == torch.float32 and loss.isfinite()


def test_options_are_read_and_not_the_class():
    """Any object with the options will do, as the recipes' classes hold hundreds."""
    values = {name: getattr(Objective(), name) for name in Objective.model_fields}
    assert noise_latents(latents(), FlowSchedule(), SimpleNamespace(**values), "flux", draws()).noisy.shape == (
        2,
        4,
        8,
        8,
    )
