"""Each rule finds its case, says where and how to mend it, and leaves sound options alone."""

import os
from pathlib import Path

import pytest

from sd_scripts.options.build import build
from sd_scripts.options.recipes import NetworkTraining
from sd_scripts.options.rules import check_options, why_not_writable
from sd_scripts.options.schema import specs


@pytest.fixture
def sound(tmp_path):
    return {
        "pretrained_model_name_or_path": "m.safetensors",
        "train_data_dir": str(tmp_path),
        "output_dir": str(tmp_path / "new" / "folder"),
    }


def test_sound_options_have_no_problems(sound):
    assert check_options(build(NetworkTraining, sound), ("sd1", "sd2")) == []


def test_nothing_given_names_all_essentials():
    found = {problem.option for problem in check_options(NetworkTraining(), ("sd1", "sd2"))}
    assert found == {"pretrained_model_name_or_path", "train_data_dir", "output_dir"}


@pytest.mark.parametrize(
    ("changes", "option", "level", "word"),
    [
        ({"lr_scheduler": "cosin"}, "lr_scheduler", "error", "cosine"),
        ({"optimizer_type": "AdmW"}, "optimizer_type", "error", "AdamW"),
        ({"full_fp16": True}, "full_fp16", "error", "mixed_precision"),
        ({"full_bf16": True, "mixed_precision": "fp16"}, "full_bf16", "error", "bf16"),
        ({"adaptive_noise_scale": 0.1}, "adaptive_noise_scale", "error", "noise_offset"),
        ({"min_timestep": 501, "max_timestep": 500}, "min_timestep", "error", "500"),
        (
            {"scale_v_pred_loss_like_noise_pred": True},
            "scale_v_pred_loss_like_noise_pred",
            "error",
            "v_parameterization",
        ),
        ({"v_pred_like_loss": 0.1, "v_parameterization": True}, "v_pred_like_loss", "error", "v_parameterization"),
        ({"zero_terminal_snr": True}, "zero_terminal_snr", "warning", "v_parameterization"),
        ({"random_crop": True}, "random_crop", "error", "cache_latents = false"),
        ({"color_aug": True}, "color_aug", "error", "cache_latents = false"),
        (
            {"network_train_unet_only": True, "network_train_text_encoder_only": True},
            "network_train_unet_only",
            "error",
            "one",
        ),
        ({"dim_from_weights": True}, "dim_from_weights", "error", "network_weights"),
        ({"network_weights": "gone.safetensors"}, "network_weights", "error", "no such file"),
        ({"sample_every_n_steps": 5}, "sample_prompts", "error", "prompt file"),
        ({"output_name": "a/b"}, "output_name", "error", "a/b"),
        ({"metadata_thumbnail": "gone.png"}, "metadata_thumbnail", "error", "no such picture"),
        ({"log_with": "wandb"}, "log_with", "error", "wandb is not installed"),
        ({"resume": "gone-state"}, "resume", "error", "no such folder"),
        ({"dataset_config": "d.toml"}, "train_data_dir", "warning", "dataset_config"),
    ],
)
def test_rule(sound, changes, option, level, word):
    found = [p for p in check_options(build(NetworkTraining, sound | changes), ("sd1", "sd2")) if p.option == option]
    assert [problem.level for problem in found] == [level]
    assert word in str(found[0])


def test_samples_at_interval_zero_are_off(sound):
    assert (
        check_options(
            build(NetworkTraining, sound | {"sample_every_n_steps": 0, "sample_every_n_epochs": 0}), ("sd1", "sd2")
        )
        == []
    )


def test_intervals_of_0_and_below_are_off(sound):
    intervals = [
        name for name in specs(NetworkTraining) if "every_n_" in name or "last_n_" in name or "n_epoch_" in name
    ]
    assert len(intervals) == 12
    below = build(NetworkTraining, sound | dict.fromkeys(intervals, -2))
    assert {getattr(below, name) for name in intervals} == {0}
    assert build(NetworkTraining, sound | dict.fromkeys(intervals, 0)) == below
    assert check_options(below, ("sd1",)) == []


def test_folder_with_a_file_in_its_way_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    assert "is a file" in why_not_writable(tmp_path / "file" / "below")
    assert why_not_writable(tmp_path / "a" / "b") is None
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that refuses writing")
def test_folder_that_refuses_writing_is_found_by_trying():
    assert "cannot be written" in why_not_writable(Path("/proc/self/new"))


@pytest.mark.skipif(
    os.name == "nt" or (hasattr(os, "geteuid") and os.geteuid() == 0), reason="root may write everywhere"
)
def test_folder_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    assert "cannot be written" in why_not_writable(tmp_path / "x")
    tmp_path.chmod(0o700)
