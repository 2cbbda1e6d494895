"""What a run does when it is asked for something, when numbers go wrong, and when the disk is full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sd_scripts.errors import UserError
from sd_scripts.training import disk, loop
from sd_scripts.training.events import read_events
from sd_scripts.training.run_folder import RunFolder
from test.runs.test_train_network import assert_equal_weights, run, settings  # noqa: F401 - settings is a fixture


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder(tmp_path / "run").make()


def events_of(folder: RunFolder) -> list[dict]:
    return read_events(folder.events)[0]


def kinds(events: list[dict], wanted: str) -> list[dict]:
    return [event for event in events if event["type"] == wanted]


# Requests


@pytest.mark.parametrize(
    ("request_", "files", "state"),
    [
        ("save", {"tiny-step00000001.safetensors", "tiny-step00000001-state"}, "done"),
        ("stop", set(), "stopped"),
        ("stop_after_save", {"tiny-state"}, "stopped"),
        ("sample", {"sample"}, "done"),
    ],
)
def test_requests(settings, tmp_path, folder, request_, files, state):  # noqa: F811
    folder.request(request_)
    output, events = run(
        settings,
        run_dir=str(folder.path),
        max_train_epochs=1,
        sample_prompts="a --w 64 --h 64 --s 1\nb --w 64 --h 64 --s 1",
    )
    assert {path.name for path in output.iterdir()} - {"runs"} == files | {"tiny.safetensors"}
    assert events[-1]["state"] == state
    assert not list(folder.control.iterdir())
    assert len(kinds(events, "sample")) == (2 if request_ == "sample" else 0)


def test_stopped_after_saving_goes_on_as_if_never_stopped(settings, tmp_path, folder):  # noqa: F811
    whole, _ = run(settings, max_train_epochs=1)
    folder.request("stop_after_save")
    first, _ = run(settings, output_dir=str(tmp_path / "b"), run_dir=str(folder.path), max_train_epochs=1)
    again, events = run(settings, output_dir=str(tmp_path / "b"), resume=str(first / "tiny-state"), max_train_epochs=1)
    assert [event["step"] for event in kinds(events, "step")] == list(range(2, 9))
    assert_equal_weights(whole / "tiny.safetensors", again / "tiny.safetensors")


# Numbers


@pytest.fixture
def spoilt(monkeypatch):
    """The loss of these batches is no number."""

    def spoil(*calls: int) -> None:
        made = [0]
        whole = loop.batch_loss

        def batch_loss(*arguments):
            made[0] += 1
            loss = whole(*arguments)
            return loss * float("nan") if made[0] in calls else loss

        monkeypatch.setattr(loop, "batch_loss", batch_loss)

    return spoil


def test_a_loss_that_is_no_number_ends_the_run_with_pictures_and_remedy(settings, folder, spoilt):  # noqa: F811
    spoilt(4)
    words = r"step 4: the loss is nan \(p\d.png, p\d.png\); lower the learning rate"
    with pytest.raises(UserError, match=words) as caught:
        run(settings, run_dir=str(folder.path), save_every_n_steps=2)
    assert "\n" not in str(caught.value)
    output = Path(settings["output_dir"])
    assert "the last good ones are in" in str(caught.value) and not (output / "tiny.safetensors").exists()
    assert all(torch.isfinite(tensor).all() for tensor in load_file(output / "tiny-step00000002.safetensors").values())
    assert events_of(folder)[-1]["state"] == "failed" == folder.read_status().state


def test_steps_without_numbers_are_left_out_when_asked(settings, tmp_path, spoilt):  # noqa: F811
    spoilt(2, 5)
    output, events = run(settings, max_nan_steps=2, max_train_epochs=1, save_state=True)
    assert [event["step"] for event in kinds(events, "step")] == [1, 3, 4, 6, 7, 8]
    warnings = [event["message"] for event in kinds(events, "warning")]
    assert len(warnings) == 2 and all("this step is left out" in text for text in warnings)
    assert all(torch.isfinite(tensor).all() for tensor in load_file(output / "tiny.safetensors").values())


def test_too_many_of_them_end_the_run_and_the_good_weights_are_kept(settings, folder, spoilt):  # noqa: F811
    spoilt(3, 4)
    with pytest.raises(UserError, match="1 such steps were skipped before") as caught:
        run(settings, run_dir=str(folder.path), max_nan_steps=1)
    kept = Path(settings["output_dir"]) / "tiny-step00000003.safetensors"
    assert str(kept) in str(caught.value)
    assert all(torch.isfinite(tensor).all() for tensor in load_file(kept).values())


def test_latents_that_are_no_numbers_name_the_vae(settings, folder, monkeypatch):  # noqa: F811
    from sd_scripts.models.sd import StableDiffusion

    encode = StableDiffusion.encode_image
    monkeypatch.setattr(StableDiffusion, "encode_image", lambda *given: encode(*given) * float("nan"))
    with pytest.raises(UserError, match=r"VAE made latents that are not finite \(p\d.png.*no_half_vae"):
        run(settings, run_dir=str(folder.path), cache_latents=False)


def test_black_samples_are_noticed(settings, monkeypatch):  # noqa: F811
    from PIL import Image

    from sd_scripts.models.sd import StableDiffusion

    monkeypatch.setattr(StableDiffusion, "sample", lambda *_, **more: Image.new("RGB", (64, 64)))
    _, events = run(settings, max_train_epochs=1, sample_prompts="a\nb", sample_every_n_epochs=1)
    assert [event["message"].split(";")[0].split(":")[0] for event in kinds(events, "warning")] == [
        "sample 0 is black", "sample 1 is black"
    ]  # fmt: skip


# Failures in the middle


def test_samples_that_fail_change_nothing(settings, tmp_path, monkeypatch):  # noqa: F811
    from sd_scripts.models import sampling

    plain, _ = run(settings, max_train_epochs=1)

    def failing(*_):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(sampling, "to_picture", failing)
    drawn, events = run(
        settings, output_dir=str(tmp_path / "b"), max_train_epochs=1,
        sample_prompts="a --w 64 --h 64 --s 1\nb --w 64 --h 64 --s 1",
        sample_every_n_steps=2,
    )  # fmt: skip
    assert "no room" in kinds(events, "warning")[0]["message"] and not kinds(events, "sample")
    assert_equal_weights(plain / "tiny.safetensors", drawn / "tiny.safetensors")


def test_out_of_memory_keeps_the_weights_so_far(settings, folder, monkeypatch):  # noqa: F811
    made = [0]
    whole = loop.batch_loss

    def batch_loss(*arguments):
        made[0] += 1
        if made[0] == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(*arguments)

    monkeypatch.setattr(loop, "batch_loss", batch_loss)
    with pytest.raises(UserError, match="gradient_checkpointing") as caught:
        run(settings, run_dir=str(folder.path))
    assert "tiny-step00000002.safetensors" in str(caught.value)
    assert (Path(settings["output_dir"]) / "tiny-step00000002.safetensors").is_file()


# A full disk


@pytest.fixture(params=["asked before", "found out"])
def small_disk(tmp_path, request, monkeypatch):
    """A disk with room for two of the tiny files (73 kB each), besides what is always left free; or a program that does not
    ask for room and finds out when it writes."""
    if request.param == "found out":
        monkeypatch.setattr(disk, "SLACK", -(10**12))
    place = tmp_path / "small"
    place.mkdir()
    size = 200 * 2**10 + max(0, disk.SLACK)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("a disk can be mounted by root on Linux only")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_in_the_middle_and_at_the_end(settings, small_disk, tmp_path, folder):  # noqa: F811
    """The files of steps 1 and 2 fit; that of step 3 and the last one do not."""
    (small_disk / "tiny.safetensors").write_bytes(b"an older one")
    given = settings | {"output_dir": str(small_disk), "run_dir": str(folder.path), "max_train_epochs": 1}
    with pytest.raises(UserError, match=r"tiny.safetensors.*the weights are kept in") as caught:
        run(given, save_every_n_steps=1)
    assert "\n" not in str(caught.value)
    assert (small_disk / "tiny.safetensors").read_bytes() == b"an older one"
    assert not list(small_disk.glob("*.tmp"))
    for step in (1, 2):
        whole = load_file(small_disk / f"tiny-step0000000{step}.safetensors")
        assert whole.keys() == load_file(folder.path / "tiny.safetensors").keys()
    events = events_of(folder)
    assert "training goes on without it" in kinds(events, "warning")[0]["message"]
    assert [event["step"] for event in kinds(events, "step")][-1] == 8  # it went on to the end
    assert events[-1]["state"] == "failed"


def test_a_full_disk_can_end_the_run_at_once(settings, small_disk, folder):  # noqa: F811
    given = settings | {"output_dir": str(small_disk), "run_dir": str(folder.path), "max_train_epochs": 1}
    with pytest.raises(UserError, match=r"tiny-step0000000[34]"):
        run(given, save_every_n_steps=1, on_save_error="stop")
    assert max(event["step"] for event in kinds(events_of(folder), "step")) in (3, 4)


# The device


def test_steps_do_not_wait_for_the_device(settings, monkeypatch):  # noqa: F811
    """Nothing is read from the device between two fetches of the report, whatever the number of steps."""
    from sd_scripts.training import report

    monkeypatch.setattr(report, "SECONDS_BETWEEN_FETCHES", 1e9)
    step = loop.optimizer_step
    reads: list[str] = []
    inside = [False]

    def counted(name: str, read):
        def reading(tensor, *arguments, **more):
            caller = Path(sys._getframe(1).f_code.co_filename).parent.name
            if inside[0] and caller != "optim":  # torch's optimizers count their steps in main memory
                reads.append(name)
            return read(tensor, *arguments, **more)

        return reading

    def watched(run_, epoch, group):
        inside[0] = 1 < run_.step < run_.steps.total - 1
        try:
            step(run_, epoch, group)
        finally:
            inside[0] = False

    for name in ("item", "cpu", "tolist", "numpy", "__bool__", "__float__"):
        monkeypatch.setattr(torch.Tensor, name, counted(name, getattr(torch.Tensor, name)))
    monkeypatch.setattr(loop, "optimizer_step", watched)
    run(settings, ema_decay=0.9, scale_weight_norms=1.0, min_snr_gamma=5)
    assert reads == []
