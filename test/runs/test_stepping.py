"""Whole runs whose optimizer goes through the weights in parts, and resumes with other rates."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sd_scripts.entry import train
from sd_scripts.options.build import build
from sd_scripts.options.recipes import RECIPES
from sd_scripts.training.events import read_events
from sd_scripts.training.run_folder import RunFolder

BF16 = {"mixed_precision": "bf16", "full_bf16": True}


@pytest.fixture
def settings(tmp_path, tiny_sd1, pictures) -> dict:
    return {
        "pretrained_model_name_or_path": str(tiny_sd1),
        "train_data_dir": str(pictures),
        "output_dir": str(tmp_path / "plain"),
        "output_name": "tiny",
        "resolution": "64",
        "min_bucket_reso": 64,
        "train_batch_size": 2,
        "max_train_steps": 3,
        "learning_rate": 1e-3,
        "max_grad_norm": 0,
        "train_text_encoder": True,
        "seed": 3,
        "log_with": "none",
    }


def run(settings: dict, script: str = "fine_tune", **changes) -> tuple[dict[str, torch.Tensor], list[dict]]:
    """The weights at the end, and the events."""
    options = build(RECIPES[script].options, settings | changes)
    assert train(RECIPES[script], options) == 0
    output = Path(options.output_dir)
    return load_file(output / "tiny.safetensors"), read_events(RunFolder(max((output / "runs").iterdir())).events)[0]


def rates(events: list[dict]) -> list[float]:
    return [event["lr"]["unet"] for event in events if event["type"] == "step"]


@pytest.mark.parametrize("optimizer", ["AdamW", "AdaFactor", "AdamWScheduleFree"])
def test_steps_inside_the_backward_pass_train_the_same_model(settings, tmp_path, optimizer):
    settings |= {"optimizer_type": optimizer, "lr_scheduler": "constant"}
    plain, plain_events = run(settings)
    ways = {"fused_backward_pass": True, "fused_optimizer_groups": 3, "blockwise_fused_optimizers": True}
    for name, value in ways.items():
        fused, events = run(settings, output_dir=str(tmp_path / name), **{name: value})
        assert rates(events) == pytest.approx(rates(plain_events))
        for key, tensor in plain.items():
            torch.testing.assert_close(fused[key], tensor, rtol=1e-3, atol=2e-5, msg=f"{name}: {key}")


@pytest.mark.parametrize(
    "changes",
    [
        {"fused_backward_pass": True, "optimizer_type": "AdaFactor"},
        {"blockwise_fused_optimizers": True, "gradient_checkpointing": True},
        {"fused_optimizer_groups": 2, "max_grad_norm": 1.0, "ema_decay": 0.5},
        BF16,
        BF16 | {"fused_backward_pass": True, "optimizer_type": "AdaFactor"},
        BF16 | {"optimizer_type": "Prodigy", "learning_rate": 1},
    ],
    ids=lambda changes: "-".join(map(str, changes)),
)
def test_stopped_and_resumed_equals_unbroken(settings, tmp_path, changes):
    settings |= changes | {"save_state": True}
    unbroken, _ = run(settings)
    run(settings, output_dir=str(tmp_path / "first"), save_every_n_steps=2)
    state = tmp_path / "first" / "tiny-step00000002-state"
    resumed, events = run(settings, output_dir=str(tmp_path / "second"), resume=str(state))
    assert [event["step"] for event in events if event["type"] == "step"] == [3]
    assert all(torch.equal(resumed[key], unbroken[key]) for key in unbroken)


def test_weights_in_bf16_learn_more_with_stochastic_rounding(settings, tmp_path):
    settings |= BF16 | {"learning_rate": 1e-5, "max_train_steps": 6, "optimizer_type": "AdamW"}
    start, _ = run(settings, output_dir=str(tmp_path / "start"), learning_rate=1e-12, max_train_steps=1)
    moved = {}
    for is_on in (True, False):
        end, _ = run(settings, output_dir=str(tmp_path / str(is_on)), stochastic_rounding=is_on)
        keys = [key for key in end if key.startswith("model.diffusion_model.") and end[key].dim() > 1]
        moved[is_on] = sum((end[key] != start[key]).sum().item() for key in keys)
    assert moved[True] > 1.5 * moved[False]


def test_rates_after_a_resume_are_those_of_the_settings_or_of_the_state(settings, tmp_path):
    settings |= {"save_state": True, "lr_scheduler": "linear", "save_every_n_steps": 2}
    _, before = run(settings)
    resumed = settings | {"resume": str(tmp_path / "plain" / "tiny-step00000002-state"), "learning_rate": 4e-3}
    _, new = run(resumed, output_dir=str(tmp_path / "new"))
    assert rates(new) == pytest.approx([4 * rate for rate in rates(before)[2:]])
    _, old = run(resumed, output_dir=str(tmp_path / "old"), resume_learning_rate="state")
    assert rates(old) == pytest.approx(rates(before)[2:])
    assert any("rates of the state are kept" in event.get("message", "") for event in old)


def test_adapters_take_the_same_options(settings, tmp_path):
    settings |= {"network_dim": 2, "learning_rate": 1e-2}
    del settings["train_text_encoder"]
    plain, _ = run(settings, "train_network")
    fused, _ = run(settings, "train_network", output_dir=str(tmp_path / "fused"), fused_backward_pass=True)
    for key, tensor in plain.items():
        torch.testing.assert_close(fused[key], tensor, rtol=1e-3, atol=2e-5)
