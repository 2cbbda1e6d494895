import pytest
import torch
from torch.nn import Parameter

from sd_scripts.training.ema import Ema


def parameters(*values):
    return [Parameter(torch.tensor(value)) for value in values]


def set_all(params, value):
    with torch.no_grad():
        for p in params:
            p.fill_(value)


def test_average_follows_its_closed_form():
    params = parameters([1.0, 1.0], [1.0])
    ema = Ema(params, 0.9, has_warmup=False)
    set_all(params, 0.0)
    for _ in range(20):
        ema.update()
    for average in ema.average:
        torch.testing.assert_close(average, torch.full_like(average, 0.9**20))


def test_warm_up_starts_with_a_small_decay_and_ends_at_the_given_one():
    ema = Ema(parameters([0.0]), 0.99)
    assert ema.decay_at(0) == 0.1
    assert ema.decay_at(90) == pytest.approx(0.91)
    assert ema.decay_at(10_000) == 0.99
    params = parameters([1.0])
    ema = Ema(params, 0.99)
    set_all(params, 2.0)
    ema.update()
    torch.testing.assert_close(ema.average[0], torch.tensor([0.1 * 1.0 + 0.9 * 2.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_swapping_restores_the_weights_bit_for_bit(dtype):
    before = torch.randn(50, generator=torch.Generator().manual_seed(0)).to(dtype)
    params = [Parameter(before.clone())]
    ema = Ema(params, 0.5)
    set_all(params, 0.0)
    ema.update()
    with torch.no_grad():
        params[0].copy_(before)
    with pytest.raises(KeyError), ema.swapped():
        torch.testing.assert_close(params[0].detach().float(), ema.average[0], rtol=1e-2, atol=0)
        raise KeyError
    assert torch.equal(params[0], before)


def test_average_of_bf16_weights_is_kept_in_float32():
    """In bf16 a step of 1e-3 would be rounded away."""
    params = [Parameter(torch.ones(4, dtype=torch.bfloat16))]
    ema = Ema(params, 0.999, has_warmup=False)
    set_all(params, 2.0)
    ema.update()
    torch.testing.assert_close(ema.average[0], torch.full((4,), 1.001))


def test_resumed_average_equals_an_unbroken_one():
    def walk(ema, params, steps):
        for step in steps:
            set_all(params, float(step))
            ema.update()

    params = parameters([0.0, 0.0])
    unbroken = Ema(params, 0.95)
    walk(unbroken, params, range(10))

    params = parameters([0.0, 0.0])
    first = Ema(params, 0.95)
    walk(first, params, range(4))
    second = Ema(params, 0.95)
    second.load_state_dict(first.state_dict())
    walk(second, params, range(4, 10))
    assert torch.equal(second.average[0], unbroken.average[0])
    assert second.updates == 10


def test_average_of_other_parameters_is_refused():
    with pytest.raises(ValueError, match="another set"):
        Ema(parameters([1.0]), 0.9).load_state_dict(Ema(parameters([1.0, 2.0]), 0.9).state_dict())
