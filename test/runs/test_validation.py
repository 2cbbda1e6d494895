"""The loss on held-out pictures: measured when asked, the same each time, and without any effect on the training."""

from __future__ import annotations

import pytest

from test.runs.test_fine_tune import RECIPE as FULL
from test.runs.test_fine_tune import run as run_full
from test.runs.test_train_network import assert_equal_weights, run, settings  # noqa: F401 - settings is a fixture

SPLIT = {"validation_split": 0.4, "max_train_epochs": 2, "train_batch_size": 3}


def measured(events: list[dict]) -> list[tuple[int, float]]:
    return [(event["step"], event["loss"]) for event in events if event["type"] == "validation"]


def test_measuring_changes_nothing_and_repeats(settings, tmp_path):  # noqa: F811
    """Three of five pictures are trained, three times: 3 batches an epoch."""
    changes = SPLIT | {"ema_decay": 0.5, "network_dropout": 0.2, "optimizer_type": "AdamWScheduleFree"}
    seldom, few = run(settings, **changes, validate_every_n_epochs=0)
    often, many = run(settings, output_dir=str(tmp_path / "b"), **changes, validate_every_n_steps=1)
    assert [step for step, _ in measured(few)] == [6]  # the end is measured in any case
    assert [step for step, _ in measured(many)] == [1, 2, 3, 4, 5, 6]
    assert measured(few)[-1] == measured(many)[-1]
    assert_equal_weights(seldom / "tiny.safetensors", often / "tiny.safetensors")


def test_same_model_same_loss(settings, tmp_path):  # noqa: F811
    """Noise and timesteps do not change from one measurement to the next, nor with the way of loading."""
    still = SPLIT | {"learning_rate": 1e-12, "cache_latents": False}
    losses = []
    for number, changes in enumerate(
        ({}, {"max_data_loader_n_workers": 1, "train_batch_size": 1, "max_train_epochs": 1})
    ):
        _, events = run(settings, output_dir=str(tmp_path / str(number)), **still | changes)
        losses += [loss for _, loss in measured(events)]
        by_timestep = next(event["by_timestep"] for event in events if event["type"] == "validation")
        assert list(by_timestep) == ["200", "400", "600", "800"]
    assert len(losses) == 3 and losses == pytest.approx([losses[0]] * 3, rel=1e-5)


def test_batches_can_be_limited_and_noise_has_its_own_seed(settings, tmp_path):  # noqa: F811
    changes = SPLIT | {"max_train_epochs": 1, "train_batch_size": 1}
    results = [
        measured(run(settings, output_dir=str(tmp_path / str(number)), **changes | more)[1])[-1][1]
        for number, more in enumerate(({}, {"max_validation_steps": 1}, {"validation_seed": 3}))
    ]
    assert len(set(results)) == 3


def test_the_whole_model_is_measured_too(tmp_path, tiny_sd1, pictures):
    given = {
        "pretrained_model_name_or_path": str(tiny_sd1), "train_data_dir": str(pictures), "output_dir": str(tmp_path / "out"),
        "output_name": "whole", "resolution": "64", "min_bucket_reso": 64, "max_train_steps": 2, "learning_rate": 1e-3,
        "seed": 3, "log_with": "none", "validation_split": 0.2, "validate_every_n_steps": 1, "run_dir": str(tmp_path / "run"),
    }  # fmt: skip
    from sd_scripts.training.events import read_events
    from sd_scripts.training.run_folder import RunFolder

    run_full(given, FULL)
    losses = [loss for _, loss in measured(read_events(RunFolder(tmp_path / "run").events)[0])]
    assert len(losses) == 2 and losses[0] != losses[1]
