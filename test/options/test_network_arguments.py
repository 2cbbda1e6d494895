"""The items of network_args: declared, taken apart for a form, put together again, checked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sd_scripts.options.effect import holds
from sd_scripts.options.families import FAMILIES
from sd_scripts.options.methods import NETWORK_MODULES
from sd_scripts.options.network_arguments import NetworkArguments, check_items, fold, items_of, kinds_with, unfold
from sd_scripts.options.schema import OptionSpec, specs

ITEMS = specs(NetworkArguments)
# Items of each kind of adapter in the trainers that people have today.
FIELD = {
    "networks.lora": "conv_dim conv_alpha rank_dropout module_dropout loraplus_lr_ratio loraplus_unet_lr_ratio "
    "loraplus_text_encoder_lr_ratio block_dims block_alphas conv_block_dims conv_block_alphas down_lr_weight mid_lr_weight "
    "up_lr_weight block_lr_zero_threshold",
    "networks.lora_fa": "conv_dim conv_alpha rank_dropout module_dropout block_dims block_alphas conv_block_dims "
    "conv_block_alphas down_lr_weight mid_lr_weight up_lr_weight block_lr_zero_threshold",
    "networks.dylora": "conv_dim conv_alpha unit loraplus_lr_ratio loraplus_unet_lr_ratio loraplus_text_encoder_lr_ratio",
    "networks.oft": "enable_all_linear enable_conv",
    "networks.oft_flux": "enable_all_linear",
    "networks.lora_flux": "conv_dim conv_alpha rank_dropout module_dropout loraplus_lr_ratio loraplus_unet_lr_ratio "
    "loraplus_text_encoder_lr_ratio img_attn_dim txt_attn_dim img_mlp_dim txt_mlp_dim img_mod_dim txt_mod_dim single_dim "
    "single_mod_dim in_dims train_double_block_indices train_single_block_indices train_blocks split_qkv train_t5xxl "
    "ggpo_beta ggpo_sigma network_reg_lrs network_reg_dims verbose",
    "networks.lora_sd3": "conv_dim conv_alpha rank_dropout module_dropout loraplus_lr_ratio loraplus_unet_lr_ratio "
    "loraplus_text_encoder_lr_ratio context_attn_dim context_mlp_dim context_mod_dim x_attn_dim x_mlp_dim x_mod_dim "
    "emb_dims train_block_indices split_qkv train_t5xxl verbose",
    "networks.lora_lumina": "conv_dim conv_alpha rank_dropout module_dropout loraplus_lr_ratio loraplus_unet_lr_ratio "
    "loraplus_text_encoder_lr_ratio attn_dim mlp_dim mod_dim refiner_dim embedder_dims train_blocks split_qkv verbose",
    "networks.lora_anima": "rank_dropout module_dropout loraplus_lr_ratio loraplus_unet_lr_ratio "
    "loraplus_text_encoder_lr_ratio network_reg_lrs network_reg_dims train_llm_adapter exclude_patterns include_patterns "
    "verbose",
    "networks.lora_hunyuan_image": "conv_dim conv_alpha rank_dropout module_dropout loraplus_lr_ratio "
    "loraplus_unet_lr_ratio loraplus_text_encoder_lr_ratio split_qkv ggpo_beta ggpo_sigma network_reg_lrs "
    "network_reg_dims verbose",
    "networks.loha": "conv_dim conv_alpha use_tucker rank_dropout module_dropout exclude_patterns include_patterns "
    "network_reg_lrs network_reg_dims loraplus_lr_ratio loraplus_unet_lr_ratio loraplus_text_encoder_lr_ratio "
    "train_llm_adapter",
    "networks.lokr": "conv_dim conv_alpha use_tucker factor rank_dropout module_dropout exclude_patterns include_patterns "
    "network_reg_lrs network_reg_dims loraplus_lr_ratio loraplus_unet_lr_ratio loraplus_text_encoder_lr_ratio "
    "train_llm_adapter",
    "lycoris.kohya": "algo preset conv_dim conv_alpha dropout rank_dropout module_dropout use_tucker disable_conv_cp "
    "use_scalar block_size factor decompose_both full_matrix unbalanced_factorization train_norm dora_wd wd_on_output "
    "constraint rescaled bypass_mode rs_lora train_t5xxl loraplus_lr_ratio loraplus_unet_lr_ratio "
    "loraplus_text_encoder_lr_ratio train_llm_adapter warn_on_unmatched rank_dropout_scale train_on_input",
}


@pytest.mark.parametrize("module", NETWORK_MODULES)
def test_each_kind_has_the_items_that_people_know(module):
    assert set(items_of(module)) == set(FIELD[module].split())


def test_conditions_name_kinds_that_exist():
    for spec in ITEMS.values():
        assert kinds_with(spec) and set(kinds_with(spec)) <= set(NETWORK_MODULES), spec.name
        assert all(holds(spec.only_with["network_module"], module) for module in kinds_with(spec))


def values_of(spec: OptionSpec) -> st.SearchStrategy:
    if spec.is_flag:
        return st.booleans()
    if spec.choices:
        return st.sampled_from(spec.choices)
    low = next((limit for limit in (spec.minimum, spec.exclusive_minimum) if limit is not None), None)
    if spec.type is int:
        return st.integers(low, 10**6)
    if spec.type is float:
        high = spec.exclusive_maximum
        above, below = spec.exclusive_minimum is not None, high is not None
        return st.floats(low, high, exclude_min=above, exclude_max=below, allow_infinity=False, allow_nan=False)
    return st.text(min_size=1).map(str.strip).filter(lambda text: text and text.lower() != "none")


KNOWN = st.fixed_dictionaries({}, optional={name: values_of(spec) for name, spec in ITEMS.items()})
REST = st.lists(st.sampled_from(("foo=1", "no equals", "=x", "conv_dim=four", "rank_dropout=7", "algo=lore", "")))


@given(KNOWN, REST)
def test_folding_and_unfolding_give_back_what_went_in(known, rest):
    assert unfold(fold(known, rest)) == (known, rest)


@given(st.lists(st.text()))
def test_any_list_is_taken_apart_without_loss_of_what_no_field_shows(items):
    known, rest = unfold(items)
    assert unfold(fold(known, rest)) == (known, rest)


def test_older_names_unset_and_repeated_items():
    assert unfold(["use_cp=true", "constrain=0.5", "conv_dim=", "conv_alpha=None", "factor=4", "factor=8"]) == (
        {"use_tucker": True, "constraint": 0.5, "factor": 4},
        ["conv_dim=", "conv_alpha=None", "factor=8"],
    )
    assert fold({"conv_dim": None, "preset": "", "use_tucker": False}, []) == ["use_tucker=False"]


@pytest.mark.parametrize(
    ("item", "level", "words"),
    [
        ("conv_dim=8", None, ""),
        ("train_blocks=all", None, ""),
        ("conv_dim=", None, ""),
        ("conv_dm=8", "error", 'did you mean "conv_dim"'),
        ("conv_dim", "error", "name=value"),
        ("conv_dim=eight", "error", "'eight' is not a whole number of at least 1"),
        ("use_tucker=perhaps", "error", "true or false"),
        ("algo=lokrr", "error", "did you mean lokr?"),
        ("down_lr_weight=sine", None, ""),
        ("img_attn_dim=4", "warning", "it is for networks.lora_flux"),
    ],
)
@pytest.mark.parametrize("module", ["networks.lora", "lora", "networks/lora.py"])
def test_items_are_checked(module, item, level, words):
    problems = list(check_items(module, [item], ["sd1"]))
    assert [problem.level for problem in problems] == ([level] if level else [])
    assert all(item in str(problem) and words in str(problem) for problem in problems)


def test_an_item_whose_code_is_to_come_is_refused():
    (problem,) = check_items("lycoris.kohya", ["train_norm=true"], ["sd1"])
    assert (problem.level, "not yet available" in str(problem)) == ("error", True)


def test_an_item_for_another_family_has_no_effect():
    (problem,) = check_items("networks.lora_flux", ["single_dim=4"], ["sdxl"])
    assert (problem.level, FAMILIES["flux"].label in problem.remedy) == ("warning", True)
