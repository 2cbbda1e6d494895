"""The noise schedule against numbers of the field's reference implementation."""

import pytest
import torch

from sd_scripts.models.noise_schedule import NoiseSchedule
from test.models.conftest import read_data

CASES = read_data("golden/schedule.json.gz")


def tensor(entry):
    return torch.tensor(entry["data"]).view(entry["shape"])


def made(zero_terminal_snr, prediction="epsilon"):
    schedule = NoiseSchedule.scaled_linear(prediction)
    return schedule.with_zero_terminal_snr() if zero_terminal_snr else schedule


@pytest.mark.parametrize("case", [c for c in CASES if c["kind"] == "schedule"], ids=lambda c: c["id"])
def test_tables(case):
    schedule = made(case["inputs"]["zero_terminal_snr"])
    timesteps = torch.tensor(case["inputs"]["timesteps"])
    close = {"rtol": 1e-5, "atol": 1e-7}
    expected = case["expected"]
    torch.testing.assert_close(schedule.alphas_cumprod[timesteps], tensor(expected["alphas_cumprod"]), **close)
    torch.testing.assert_close(schedule.betas[timesteps], tensor(expected["betas"]), **close)
    # The reference keeps the SNR of the schedule before rescaling, a defect; ours is that of the schedule in use.
    before = tensor(expected["snr_used_for_weights"])
    torch.testing.assert_close(NoiseSchedule.scaled_linear().snr(timesteps), before, **close)
    if case["inputs"]["zero_terminal_snr"]:
        assert schedule.snr(torch.tensor([999])).item() == 0
        assert (schedule.snr(timesteps)[1:] < before[1:]).all()


@pytest.mark.parametrize("case", [c for c in CASES if c["kind"] == "ddpm_forward"], ids=lambda c: c["id"])
def test_forward_process(case):
    inputs, expected = case["inputs"], case["expected"]
    latents, noise = tensor(inputs["latents"]), tensor(inputs["noise"])
    timesteps = torch.tensor(inputs["timesteps"])
    epsilon, v = (made(inputs["zero_terminal_snr"], prediction) for prediction in ("epsilon", "v"))
    torch.testing.assert_close(epsilon.add_noise(latents, noise, timesteps), tensor(expected["noisy"]))
    torch.testing.assert_close(epsilon.target(latents, noise, timesteps), tensor(expected["target_eps"]))
    torch.testing.assert_close(v.target(latents, noise, timesteps), tensor(expected["target_v"]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_latents_stay_so_and_are_mixed_in_float32(dtype):
    schedule = NoiseSchedule.scaled_linear("v")
    latents, noise = torch.randn(2, 4, 3, 3).to(dtype), torch.randn(2, 4, 3, 3).to(dtype)
    timesteps = torch.tensor([0, 999])
    noisy = schedule.add_noise(latents, noise, timesteps)
    assert noisy.dtype == schedule.target(latents, noise, timesteps).dtype == dtype
    assert torch.equal(noisy, schedule.add_noise(latents.float(), noise.float(), timesteps).to(dtype))
