"""10 steps are 4 steps, a kill -9 and 6 more, to the last bit: whatever the optimizer, the workers and the cache."""

from __future__ import annotations

import pytest

from test.runs.forked import needs_fork
from test.runs.forked import run as run_forked
from test.runs.test_train_network import assert_equal_weights, run, settings  # noqa: F401 - settings is a fixture

CASES = {
    "AdamW": {"ema_decay": 0.9, "lr_scheduler": "cosine", "lr_warmup_steps": 2},
    "AdamW8bit": {"optimizer_type": "AdamW8bit", "cache_latents": False, "max_data_loader_n_workers": 2},
    "Prodigy": {"optimizer_type": "Prodigy", "learning_rate": 1, "gradient_accumulation_steps": 2},
    "schedule-free": {"optimizer_type": "AdamWScheduleFree", "ema_decay": 0.5, "cache_latents_to_disk": True},
    "Adafactor": {
        "optimizer_type": "AdaFactor", "optimizer_args": ["relative_step=False", "scale_parameter=False"],
        "max_data_loader_n_workers": 2, "shuffle_caption": True, "cache_latents": False, "flip_aug": True,
    },
}  # fmt: skip


@needs_fork
@pytest.mark.parametrize("case", CASES)
def test_killed_and_resumed_equals_unbroken(settings, tmp_path, case):  # noqa: F811
    settings = settings | CASES[case] | {"max_train_epochs": None, "max_train_steps": 10, "save_state": True}
    unbroken, _ = run(settings)
    killed = settings | {"output_dir": str(tmp_path / "killed"), "save_every_n_steps": 4}
    run_forked("train_network", killed, kill_at=7)
    assert not (tmp_path / "killed" / "tiny.safetensors").exists()
    state = tmp_path / "killed" / "tiny-step00000004-state"
    # another number of loader processes than before makes no difference
    workers = 0 if settings.get("max_data_loader_n_workers") else 2
    resumed, events = run(killed, resume=str(state), max_data_loader_n_workers=workers)
    assert [event["step"] for event in events if event["type"] == "step"] == [5, 6, 7, 8, 9, 10]
    assert_equal_weights(unbroken / "tiny.safetensors", resumed / "tiny.safetensors")
    assert not [event for event in events if event["type"] == "warning"]


def test_what_changed_since_is_said(settings, tmp_path, pictures):  # noqa: F811
    first, _ = run(settings, max_train_epochs=1, save_state=True)
    (pictures / "3_thing" / "p1.txt").write_text("something else", encoding="utf-8")
    _, events = run(
        settings,
        output_dir=str(tmp_path / "b"),
        resume=str(first / "tiny-state"),
        noise_offset=0.1,
        sample_at_first=False,
    )
    (said,) = [event["message"] for event in events if event["type"] == "warning"]
    assert "noise_offset was None, is 0.1" in said or "noise_offset was 0.0, is 0.1" in said
    assert "the pictures or captions were edited" in said
    assert "output_dir" not in said


def test_additional_steps_and_epochs(settings, tmp_path):  # noqa: F811
    first, _ = run(settings, max_train_epochs=1, save_state=True)
    _, events = run(
        settings, output_dir=str(tmp_path / "b"), resume=str(first / "tiny-state"), resume_length="additional",
        max_train_epochs=None, max_train_steps=3,
    )  # fmt: skip
    assert [event["step"] for event in events if event["type"] == "step"] == [9, 10, 11]


@pytest.mark.parametrize(
    ("given", "steps"), [({"initial_step": 14}, [15, 16]), ({"initial_epoch": 2}, list(range(9, 17)))]
)
def test_beginning_later_is_what_a_run_from_the_start_does_there(settings, tmp_path, given, steps):  # noqa: F811
    schedule = {"lr_scheduler": "linear"}
    _, whole = run(settings, **schedule)
    _, late = run(settings, output_dir=str(tmp_path / "b"), **schedule, **given)
    rates = {event["step"]: event["lr"]["unet"] for event in whole if event["type"] == "step"}
    assert {event["step"]: event["lr"]["unet"] for event in late if event["type"] == "step"} == {
        step: pytest.approx(rates[step]) for step in steps
    }
