"""File names, when they are written, and which go: golden values, and a run that is played through."""

import json
from pathlib import Path

import pytest

from sd_scripts.options.build import build
from sd_scripts.options.recipes import NetworkTraining
from sd_scripts.training.saving import FileNames, Saver, oldest_step_to_remove
from sd_scripts.training.steps import Steps

CASES = json.loads((Path(__file__).parents[1] / "data/golden/saving.json").read_text(encoding="utf-8"))["cases"]


def of_kind(kind: str):
    return [pytest.param(case["inputs"], case["expected"], id=case["id"]) for case in CASES if case["kind"] == kind]


@pytest.mark.parametrize(("inputs", "expected"), of_kind("checkpoint_names"))
def test_names(inputs, expected):
    names = FileNames(Path("out"), inputs["output_name"], inputs["ext"])
    number = inputs["number"]
    assert {"epoch": names.epoch(number).name, "step": names.step(number).name, "last": names.final().name} == expected


@pytest.mark.parametrize(("inputs", "expected"), of_kind("step_to_remove"))
def test_which_step_goes(inputs, expected):
    if inputs["save_last_n_steps"] is None:
        assert set(expected.values()) == {None}
        return
    for step, gone in expected.items():
        old = oldest_step_to_remove(int(step), inputs["save_last_n_steps"], inputs["save_every_n_steps"])
        assert (old if old >= 0 else None) == gone


def play(tmp_path, total=12, per_epoch=4, **options):
    """Every save of a run as (what, step or epoch), and the files left at the end."""
    settings = build(NetworkTraining, {"output_dir": str(tmp_path), "output_name": "x", **options})
    steps = Steps(per_epoch, 1, per_epoch, total, -(-total // per_epoch))

    def write_state(path: Path) -> None:
        path.mkdir()
        (path / "train_state.json").touch()

    saver = Saver(settings, steps, FileNames(tmp_path, "x", ".safetensors"), Path.touch, write_state)
    for step in range(1, total + 1):
        saver.after_step(step)
        if step % per_epoch == 0:
            saver.after_epoch(step // per_epoch)
    saver.at_end()
    return sorted(path.name for path in tmp_path.iterdir())


def test_only_the_final_file_without_intervals(tmp_path):
    assert play(tmp_path) == ["x.safetensors"]


def test_epochs_and_steps_and_states(tmp_path):
    assert play(tmp_path, save_every_n_epochs=1, save_every_n_steps=5, save_state=True) == sorted(
        ["x.safetensors", "x-state"]
        + [f"x-00000{n}{end}" for n in (1, 2) for end in (".safetensors", "-state")]  # not after the last epoch
        + [f"x-step000000{n}{end}" for n in ("05", "10") for end in (".safetensors", "-state")]
    )


def test_state_at_the_end_only(tmp_path):
    assert play(tmp_path, save_every_n_epochs=2, save_state_on_train_end=True) == [
        "x-000002.safetensors",
        "x-state",
        "x.safetensors",
    ]


@pytest.mark.parametrize(("inputs", "expected"), of_kind("epoch_to_remove"))
def test_old_epochs_go(inputs, expected, tmp_path):
    every, last = inputs["save_every_n_epochs"], inputs["save_last_n_epochs"]
    left = play(tmp_path, total=14, per_epoch=1, save_every_n_epochs=every, save_last_n_epochs=last)
    saved = {epoch for epoch in range(1, 14) if epoch % every == 0}
    gone = {old for epoch, old in expected.items() if int(epoch) in saved and old}
    gone |= {13 - every * last} if last and every == 1 else set()  # the golden numbers end at 12
    assert left == sorted([f"x-{epoch:06d}.safetensors" for epoch in saved - gone] + ["x.safetensors"])


def test_states_may_be_kept_for_longer(tmp_path):
    left = play(
        tmp_path,
        total=6,
        per_epoch=1,
        save_every_n_epochs=1,
        save_last_n_epochs=1,
        save_last_n_epochs_state=2,
        save_state=True,
    )
    assert left == ["x-000004-state", "x-000005-state", "x-000005.safetensors", "x-state", "x.safetensors"]
