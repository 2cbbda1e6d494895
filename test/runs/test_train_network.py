"""Whole runs of the LoRA trainer on a tiny model: files, events, exact resume, and every option doing what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from sd_scripts.entry import train
from sd_scripts.options.build import build
from sd_scripts.options.recipes import RECIPES
from sd_scripts.training.events import read_events
from sd_scripts.training.run_folder import RunFolder

RECIPE = RECIPES["train_network"]


@pytest.fixture
def settings(tmp_path, tiny_sd1, pictures) -> dict:
    """Settings of a run of a few seconds."""
    return {
        "pretrained_model_name_or_path": str(tiny_sd1),
        "train_data_dir": str(pictures),
        "output_dir": str(tmp_path / "out"),
        "output_name": "tiny",
        "resolution": "64",
        "min_bucket_reso": 64,
        "train_batch_size": 2,
        "max_train_epochs": 2,
        "network_dim": 2,
        "learning_rate": 1e-2,
        "seed": 7,
        "log_with": "none",
    }


def run(settings: dict, **changes) -> tuple[Path, list[dict]]:
    """Train in this process; the output folder and the events."""
    options = build(RECIPE.options, settings | changes)
    assert train(RECIPE, options) == 0
    output = Path(options.output_dir)
    folder = Path(options.run_dir) if options.run_dir else max((output / "runs").iterdir())
    return output, read_events(RunFolder(folder).events)[0]


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_file(path)


def assert_equal_weights(a: Path, b: Path) -> None:
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_run_writes_the_file_and_tells_what_it_did(settings):
    output, events = run(settings)
    tensors = weights(output / "tiny.safetensors")
    ups = [tensor for key, tensor in tensors.items() if key.endswith("lora_up.weight")]
    assert ups and all(up.abs().max() > 0 for up in ups)  # every module has learnt
    steps = [event for event in events if event["type"] == "step"]
    # five pictures x 3 repeats, all in the 64 x 64 bucket, two a batch: 8 batches an epoch
    assert [event["step"] for event in steps] == list(range(1, 17))
    assert [event["epoch"] for event in steps] == [1] * 8 + [2] * 8
    assert all(event["lr"] == {"te1": 1e-2, "unet": 1e-2} for event in steps)
    assert events[-1] == events[-1] | {"type": "end", "state": "done", "step": 16}
    saved = [event for event in events if event["type"] == "checkpoint"]
    assert [Path(event["path"]).name for event in saved] == ["tiny.safetensors"]
    assert saved[0]["bytes"] == (output / "tiny.safetensors").stat().st_size


def test_run_folder_holds_settings_plan_status(settings):
    output, _ = run(settings, max_train_epochs=1)
    folder = RunFolder(max((output / "runs").iterdir()))
    status = folder.read_status()
    assert (status.state, status.step, status.total_steps, status.epoch) == ("done", 8, 8, 1)
    plan = json.loads(folder.plan.read_text(encoding="utf-8"))
    assert plan["steps"]["total"] == 8 and plan["problems"] == []
    assert "torch" in folder.versions.read_text(encoding="utf-8")
    assert "seed = 7" in folder.config.read_text(encoding="utf-8")
    assert "training unet" in folder.log.read_text(encoding="utf-8")


def test_metadata(settings):
    output, _ = run(settings, network_alpha=1.5, max_train_epochs=1)
    with safe_open(output / "tiny.safetensors", "pt") as file:
        metadata = file.metadata()
    expected = {
        "ss_network_module": "networks.lora", "ss_network_dim": "2", "ss_network_alpha": "1.5", "ss_v2": "False",
        "ss_base_model_version": "sd_v1", "ss_steps": "8", "ss_epoch": "1", "ss_num_train_images": "15",
        "ss_num_batches_per_epoch": "8", "ss_seed": "7", "ss_sd_model_name": "tiny.safetensors",
        "ss_resolution": "(64, 64)", "modelspec.architecture": "stable-diffusion-v1/lora",
    }  # fmt: skip
    assert {key: metadata[key] for key in expected} == expected
    assert json.loads(metadata["ss_dataset_dirs"]) == {"3_thing": {"n_repeats": 3, "img_count": 5}}
    assert len(metadata["ss_new_sd_model_hash"]) == len(metadata["sshs_model_hash"]) == 64
    assert not any(settings["output_dir"] in value for value in metadata.values())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer_type": "AdamW8bit"},
        {"optimizer_type": "Prodigy", "learning_rate": 1},
        {"optimizer_type": "AdamWScheduleFree"},
        {"optimizer_type": "AdaFactor", "optimizer_args": ["relative_step=False", "scale_parameter=False"]},
        {"ema_decay": 0.9, "lr_scheduler": "cosine", "lr_warmup_steps": 2},
        {"gradient_accumulation_steps": 2, "network_dropout": 0.3, "network_args": ["rank_dropout=0.2"]},
        {"cache_latents": False, "flip_aug": True, "shuffle_caption": True},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())) or "plain",
)
def test_stopped_and_resumed_equals_unbroken(settings, tmp_path, changes):
    settings = settings | changes | {"max_train_epochs": None, "max_train_steps": 6, "save_state": True}
    unbroken, _ = run(settings)
    first = settings | {"output_dir": str(tmp_path / "first"), "save_every_n_steps": 3}
    run(first)
    state = tmp_path / "first" / "tiny-step00000003-state"
    second, events = run(settings, output_dir=str(tmp_path / "second"), resume=str(state))
    assert [event["step"] for event in events if event["type"] == "step"] == [4, 5, 6]
    assert_equal_weights(unbroken / "tiny.safetensors", second / "tiny.safetensors")
    assert_equal_weights(unbroken / "tiny.safetensors", tmp_path / "first" / "tiny.safetensors")


def test_samples_are_drawn_and_change_nothing(settings, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text(
        "a thing --w 64 --h 64 --s 2 --l 3 --d 5\n# no\nred --w 64 --h 96 --s 2 --n bad\n", encoding="utf-8"
    )
    plain, _ = run(settings)
    drawn, events = run(
        settings,
        output_dir=str(tmp_path / "drawn"),
        sample_prompts=str(prompts),
        sample_every_n_epochs=1,
        sample_at_first=True,
    )
    assert_equal_weights(plain / "tiny.safetensors", drawn / "tiny.safetensors")
    samples = [event for event in events if event["type"] == "sample"]
    assert [(event["epoch"], event["index"], event["prompt"]) for event in samples] == [
        (epoch, index, prompt) for epoch in (0, 1, 2) for index, prompt in enumerate(["a thing", "red"])
    ]
    names = sorted(path.name for path in (drawn / "sample").iterdir())
    assert len(names) == 6 and names[0].startswith("tiny_e000000_00_") and names[0].endswith("_5.png")
    from PIL import Image

    assert Image.open(samples[1]["path"]).size == (64, 96)


@pytest.mark.parametrize(
    ("changes", "trained"),
    [
        ({"network_train_unet_only": True}, {"unet"}),
        ({"text_encoder_lr": 0}, {"unet"}),
        ({"network_train_text_encoder_only": True}, {"te"}),
        ({"unet_lr": 0, "text_encoder_lr": [1e-3]}, {"te"}),
        ({"unet_lr": 1e-3}, {"unet", "te"}),
    ],
)
def test_parts_that_are_trained(settings, changes, trained):
    output, _ = run(settings, max_train_epochs=1, **changes)
    assert {key.split("_")[1] for key in weights(output / "tiny.safetensors")} == trained


@pytest.mark.parametrize(
    "changes",
    [
        {"mixed_precision": "bf16"},
        {"mixed_precision": "bf16", "full_bf16": True},
        {"gradient_checkpointing": True},
        {"min_snr_gamma": 5, "noise_offset": 0.05, "multires_noise_iterations": 3, "loss_type": "huber"},
        {"scale_weight_norms": 0.5},
        {"max_token_length": 150, "clip_skip": 2},
        {"save_model_as": "ckpt", "save_precision": "fp16"},
        {"network_args": ["conv_dim=2", "conv_alpha=1", "loraplus_lr_ratio=4"]},
        {"cache_latents_to_disk": True, "vae_batch_size": 2},
        {"max_data_loader_n_workers": 1, "cache_latents": False},
        {"alpha_mask": True},
        {"no_metadata": True},
        {"log_with": "tensorboard"},
        {"v_parameterization": True, "zero_terminal_snr": True},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_options_run(settings, changes):
    output, events = run(settings, max_train_epochs=1, **changes)
    assert events[-1]["state"] == "done"
    assert (output / f"tiny.{changes.get('save_model_as', 'safetensors')}").exists()


def test_gradient_checkpointing_gives_the_same_weights(settings, tmp_path):
    plain, _ = run(settings)
    checked, _ = run(settings, output_dir=str(tmp_path / "b"), gradient_checkpointing=True)
    first, second = weights(plain / "tiny.safetensors"), weights(checked / "tiny.safetensors")
    for key, tensor in first.items():
        torch.testing.assert_close(tensor, second[key], rtol=1e-4, atol=1e-5)


def test_stop_request_writes_the_weights_so_far(settings, tmp_path):
    folder = RunFolder(tmp_path / "run").make()
    folder.request("stop")
    output, events = run(settings, run_dir=str(folder.path))
    assert events[-1]["state"] == "stopped" and events[-1]["step"] == 1
    assert (output / "tiny.safetensors").exists()
    assert folder.read_status().state == "stopped"


def test_going_on_from_a_lora_file(settings, tmp_path):
    first, _ = run(settings)
    again, _ = run(
        settings,
        output_dir=str(tmp_path / "again"),
        network_weights=str(first / "tiny.safetensors"),
        dim_from_weights=True,
        learning_rate=1e-9,
        max_train_epochs=1,
    )
    before, after = weights(first / "tiny.safetensors"), weights(again / "tiny.safetensors")
    for key, tensor in before.items():
        torch.testing.assert_close(tensor, after[key], rtol=1e-4, atol=1e-6)
