"""What one option means for another, and what sizes a family takes."""

import pytest

from sd_scripts.options.build import build
from sd_scripts.options.implied import (
    caches_all_text,
    caches_latents,
    caches_text,
    checkpoints_gradients,
    keeps_base_in_8_bits,
    swapped_blocks,
    trains_text_encoders,
)
from sd_scripts.options.recipes import FullModelTraining, NetworkTraining, TextualInversionTraining
from sd_scripts.options.sizes import check_bucket_steps, check_resolution, divisor_of, parse_resolution

ON = {"train_text_encoder": True}


@pytest.mark.parametrize(
    ("ask", "model", "values", "answer"),
    [
        (caches_latents, NetworkTraining, {}, True),
        (caches_latents, NetworkTraining, {"cache_latents": False}, False),
        (caches_latents, NetworkTraining, {"cache_latents": False, "cache_latents_to_disk": True}, True),
        (caches_text, NetworkTraining, {}, False),
        (caches_text, NetworkTraining, {"cache_text_encoder_outputs_to_disk": True}, True),
        (caches_text, FullModelTraining, {"use_t5xxl_cache_only": True}, True),
        (caches_all_text, FullModelTraining, {"use_t5xxl_cache_only": True}, False),
        (checkpoints_gradients, NetworkTraining, {}, False),
        (checkpoints_gradients, NetworkTraining, {"gradient_checkpointing": True}, True),
        (checkpoints_gradients, NetworkTraining, {"cpu_offload_checkpointing": True}, True),
        (checkpoints_gradients, NetworkTraining, {"unsloth_offload_checkpointing": True}, True),
        (swapped_blocks, NetworkTraining, {}, 0),
        (swapped_blocks, NetworkTraining, {"blocks_to_swap": 5, "split_mode": True}, 5),
        (swapped_blocks, NetworkTraining, {"blocks_to_swap": 0, "double_blocks_to_swap": 4}, 0),
        (swapped_blocks, NetworkTraining, {"split_mode": True}, 18),
        (swapped_blocks, NetworkTraining, {"double_blocks_to_swap": 4, "single_blocks_to_swap": 7}, 7),
        (trains_text_encoders, NetworkTraining, {}, True),
        (trains_text_encoders, NetworkTraining, {"network_train_unet_only": True}, False),
        (trains_text_encoders, NetworkTraining, {"text_encoder_lr": [0, 1e-5]}, True),
        (trains_text_encoders, NetworkTraining, {"text_encoder_lr": [0]}, False),
        (trains_text_encoders, NetworkTraining, {"learning_rate": 0}, False),
        (trains_text_encoders, FullModelTraining, {}, False),
        (trains_text_encoders, FullModelTraining, ON, True),
        (trains_text_encoders, FullModelTraining, ON | {"learning_rate_te": 0}, False),
        (trains_text_encoders, FullModelTraining, ON | {"learning_rate_te1": 0, "learning_rate_te2": 1e-6}, True),
        (trains_text_encoders, FullModelTraining, ON | {"learning_rate_te1": 0}, True),
        (trains_text_encoders, FullModelTraining, ON | {"learning_rate_te1": 0, "learning_rate_te2": 0}, False),
        (trains_text_encoders, TextualInversionTraining, {}, True),
    ],
)
def test_what_options_mean(ask, model, values, answer):
    assert ask(build(model, values)) == answer


@pytest.mark.parametrize(
    ("values", "family", "answer"),
    [
        ({"fp8_base": True}, "flux", True),
        ({"fp8_base_unet": True}, "sd3", True),
        ({"fp8_base": True}, "anima", False),
        ({"fp8_base": True}, "hunyuan_image", False),
        ({"fp8_scaled": True}, "hunyuan_image", True),
        ({"fp8_scaled": True}, "flux", False),
    ],
)
def test_what_is_kept_in_8_bits(values, family, answer):
    assert keeps_base_in_8_bits(build(NetworkTraining, values), family) is answer


def test_sizes():
    assert parse_resolution("512") == (512, 512)
    assert parse_resolution(" 768 , 1024") == parse_resolution("768x1024") == (768, 1024)
    assert [parse_resolution(text) for text in ("", "0", "512,0", "a", "1,2,3", "-5")] == [None] * 6
    assert (divisor_of(("sd1", "sd2")), divisor_of(("flux", "chroma")), divisor_of(("hunyuan_image",))) == (8, 16, 32)
    assert check_resolution("1024,1040", 16) == check_bucket_steps(64, 32) == []
    assert "nearest are 992 and 1008" in str(check_resolution("1000", 16)[0])
    assert "nearest is 32" in str(check_bucket_steps(16, 32)[0])
