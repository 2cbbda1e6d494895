"""Ranks, alphas and rates by block: how they are written, and what they do to a network."""

import math

import pytest

from sd_scripts.adapters.blocks import take_block_settings
from sd_scripts.adapters.network import AdapterNetwork
from sd_scripts.errors import ConfigError
from sd_scripts.models.families import all_families
from test.adapters.conftest import options
from test.adapters.sd_model import real_sd

SD, XL = all_families()["sd1"].blocks, all_families()["sdxl"].blocks


def numbers(*values):
    return ",".join(map(str, values))


def test_the_counts_are_those_of_the_field():
    assert (SD.total, SD.down, SD.mid, SD.up) == (25, 12, 1, 12)
    assert (XL.total, XL.down, XL.mid, XL.up) == (23, 9, 3, 9)


def test_nothing_said_is_nothing():
    items = {"rank_dropout": 0.1, "block_lr_zero_threshold": 0.2}
    assert take_block_settings(items, SD) is None


@pytest.mark.parametrize(
    ("name", "curve"),
    [
        ("sine", [math.sin(math.pi / 2 * i / 8) for i in range(9)]),
        ("cosine", [math.sin(math.pi / 2 * i / 8) for i in reversed(range(9))]),
        ("linear", [i / 8 for i in range(9)]),
        ("reverse_linear", [i / 8 for i in reversed(range(9))]),
        ("zeros", [0.0] * 9),
    ],
)
def test_curves(name, curve):
    weights = take_block_settings({"down_lr_weight": name}, XL).weights
    assert weights == pytest.approx([1, *curve, 1, 1, 1, *[1] * 9, 1])
    lifted = take_block_settings({"up_lr_weight": f"{name}+0.25"}, XL).weights
    assert lifted == pytest.approx([1] * 13 + [value + 0.25 for value in curve] + [1])


def test_lists_are_filled_cut_and_read_with_gaps(caplog):
    weights = take_block_settings({"down_lr_weight": "0.5,,2", "mid_lr_weight": "1,2"}, SD).weights
    assert weights == (0.5, 0.0, 2.0, *[1.0] * 9, 1.0, *[1.0] * 12)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def test_small_weights_leave_a_block_out():
    items = {"up_lr_weight": numbers(0.1, 0.2, 0.3, *[1] * 6), "block_lr_zero_threshold": 0.2}
    assert take_block_settings(items, XL).weights[13:16] == (0.0, 0.0, 0.3)
    assert items == {}


@pytest.mark.parametrize(
    "items",
    [
        {"block_dims": numbers(*[4] * 25)}, {"block_dims": numbers(*[4] * 22, 1.5)}, {"block_dims": "4,x"},
        {"block_alphas": numbers(*[-1] * 23)}, {"down_lr_weight": "wave"}, {"mid_lr_weight": "-1"},
        {"up_lr_weight": "linear+x"}, {"conv_block_dims": "4"},
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(items):
    with pytest.raises(ConfigError, match="network_args"):
        take_block_settings(items, XL)


@pytest.mark.parametrize(("name", "rows"), [("sd15", SD), ("sdxl", XL)])
def test_every_block_of_a_real_model_gets_its_own(name, rows):
    dims = list(range(1, rows.total + 1))
    args = [f"block_dims={numbers(*dims)}", f"block_alphas={numbers(*(d / 2 for d in dims))}"]
    args += [f"conv_block_dims={numbers(*(100 + d for d in dims))}"]
    network = AdapterNetwork.build(real_sd(name), options(network_args=args), seed=0)
    found = {}
    for module in network.modules_by_name().values():
        if module.target.part != "unet":
            assert (module.size.rank, module.size.alpha) == (4, 1.0)
            continue
        wanted = dims[module.target.block]
        assert module.size.rank == (100 + wanted if module.target.is_conv3x3 else wanted)
        assert module.size.alpha == (1.0 if module.target.is_conv3x3 else wanted / 2)
        found.setdefault(module.target.block, module.target.name)
    # no adapter lies in the first convolution, the embeddings, the last layer
    missing = {"sd15": {0}, "sdxl": {0, 1, 22}}[name]
    assert set(found) == set(range(rows.total)) - missing


SDXL_PLACES = {
    "input_blocks_4_1_proj_in": 5, "input_blocks_8_1_transformer_blocks_9_ff_net_2": 9, "middle_block_1_proj_out": 11,
    "output_blocks_0_1_proj_in": 13, "output_blocks_5_1_proj_out": 18,
}  # fmt: skip
SD_PLACES = {
    "down_blocks_0_attentions_0_proj_in": 1, "down_blocks_2_attentions_1_proj_out": 8, "mid_block_attentions_0_proj_in": 12,
    "up_blocks_1_attentions_0_proj_in": 16, "up_blocks_3_attentions_2_proj_out": 24,
}  # fmt: skip


@pytest.mark.parametrize(("name", "places"), [("sd15", SD_PLACES), ("sdxl", SDXL_PLACES)])
def test_blocks_are_counted_as_the_field_does(name, places):
    blocks = {target.name: target.block for target in real_sd(name).adapter_targets()}
    assert {place: blocks["lora_unet_" + place] for place in places} == places


def test_a_block_without_rank_or_rate_is_left_out():
    args = [f"block_dims={numbers(0, *[2] * 22)}", f"mid_lr_weight={numbers(0, 0, 0)}", "down_lr_weight=linear"]
    network = AdapterNetwork.build(real_sd("sdxl"), options(network_args=args, network_train_unet_only=True), seed=0)
    blocks = {module.target.block for module in network.modules_by_name().values()}
    assert blocks == {5, 6, 8, 9, 13, 14, 15, 16, 17, 18}
    rates = {group["name"]: group["lr"] for group in network.param_groups()}
    assert rates["unet block 9"] == 1e-4 and rates["unet block 5"] == pytest.approx(0.5e-4)
    assert rates["unet block 13"] == 1e-4


def test_rates_by_block_and_lora_plus():
    args = ["up_lr_weight=" + numbers(*[0.5] * 9), "loraplus_unet_lr_ratio=4"]
    network = AdapterNetwork.build(real_sd("sdxl"), options(network_args=args, network_train_unet_only=True), seed=0)
    rates = {group["name"]: group["lr"] for group in network.param_groups()}
    assert (rates["unet block 13"], rates["unet block 13+"]) == (0.5e-4, 2e-4)
