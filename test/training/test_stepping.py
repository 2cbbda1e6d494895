import pytest
import torch
from torch import nn

from sd_scripts.errors import ConfigError
from sd_scripts.options.memory import Memory, Precision
from sd_scripts.options.training import Optimizer
from sd_scripts.training.stepping import check_stepping, stepping_of

BF16 = {"full_bf16": True, "mixed_precision": "bf16"}


class Stepped(Optimizer, Precision, Memory):
    pass


def named():
    sizes = {"denoiser.in.weight": 10, "denoiser.blocks.0.a": 30, "denoiser.blocks.0.b": 30, "denoiser.blocks.1.a": 30}
    return {name: nn.Parameter(torch.zeros(size)) for name, size in sizes.items()}


@pytest.mark.parametrize(
    ("options", "sizes", "is_fused"),
    [
        ({"fused_backward_pass": True}, [1, 1, 1, 1], True),
        ({"blockwise_fused_optimizers": True}, [1, 2, 1], True),
        ({"fused_optimizer_groups": 2}, [3, 1], True),
        (BF16, [4], False),
        (BF16 | {"fused_backward_pass": True}, [1, 1, 1, 1], True),
    ],
)
def test_options_choose_the_parts(options, sizes, is_fused):
    stepping = stepping_of(Stepped(max_grad_norm=0.5, **options), named(), seed=7)
    assert [len(part) for part in stepping.parts] == sizes
    assert stepping.is_fused == is_fused
    assert stepping.max_norm == (0.5 if is_fused else 0.0)  # else the loop limits all of them together
    assert stepping.rounding_seed == (7 if "full_bf16" in options else None)


@pytest.mark.parametrize("options", [{}, {"fused_optimizer_groups": 0}, BF16 | {"stochastic_rounding": False}])
def test_without_them_the_optimizer_steps_as_it_does_by_itself(options):
    assert stepping_of(Stepped(**options), named(), seed=7) is None


def test_sharded_weights_are_left_to_what_shards_them():
    assert stepping_of(Stepped(**BF16), named(), seed=7, is_sharded=True) is None


def test_several_processes_exclude_fused_steps():
    with pytest.raises(ConfigError, match="2 processes"):
        check_stepping(Stepped(fused_backward_pass=True), 2)
    check_stepping(Stepped(fused_backward_pass=True), 1)
    check_stepping(Stepped(**BF16), 2)
