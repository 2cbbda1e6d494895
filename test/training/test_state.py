"""A state folder is replaced so that a whole one can be found at any moment, and says what it was made with."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from sd_scripts.options.build import build
from sd_scripts.options.recipes import NetworkTraining
from sd_scripts.options.schema import specs
from sd_scripts.training import disk, state
from sd_scripts.training.disk import CannotSave
from sd_scripts.training.state_folder import Position, find_state, read_position
from sd_scripts.training.state_record import WITHOUT_EFFECT, FileMark, Record, changes, mark_of, read_record, record_of

RECORD = Record("", ("torch 1",), {})


def trained(value: float = 0.0) -> state.Trained:
    weight = torch.nn.Parameter(torch.full((4, 4), float(value)))
    optimizer = torch.optim.AdamW([weight])
    return state.Trained({"weight": weight}, optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer), None, None)


def write(folder: Path, step: int) -> None:
    state.write_state(folder, Position(step, 1, 5, 8, 1), trained(step), RECORD)


def test_state_comes_back(tmp_path):
    write(tmp_path / "x-state", 3)
    assert read_position(tmp_path / "x-state") == Position(3, 1, 5, 8, 1)
    other = trained()
    state.read_state(tmp_path / "x-state", other)
    assert torch.equal(other.parameters["weight"], torch.full((4, 4), 3.0))
    assert read_record(tmp_path / "x-state") == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["x-state"]


class Died(BaseException):
    """Stands for a kill -9: nothing cleans up after it."""


@pytest.mark.parametrize("operation", range(6))
def test_killed_while_replacing_leaves_a_whole_state(tmp_path, monkeypatch, operation):
    """Whatever change to the disk is the last one, the name leads to the old state or to the new one."""
    folder = tmp_path / "x-state"
    write(folder, 3)
    left = [operation]

    def dying(do):
        def counted(*arguments, **more):
            if not left[0]:
                raise Died
            left[0] -= 1
            return do(*arguments, **more)

        return counted

    for place, name in ((Path, "mkdir"), (Path, "replace"), (shutil, "rmtree")):
        monkeypatch.setattr(place, name, dying(getattr(place, name)))
    try:
        write(folder, 4)
    except Died:
        pass
    else:
        assert operation > 3
    assert read_position(folder).step in (3, 4)
    other = trained()
    state.read_state(folder, other)
    assert float(other.parameters["weight"][0, 0]) == read_position(folder).step
    monkeypatch.undo()
    write(folder, 5)
    assert read_position(folder).step == 5
    assert [path.name for path in tmp_path.iterdir()] == ["x-state"]


def test_a_full_disk_leaves_the_older_state(tmp_path, monkeypatch):
    write(tmp_path / "x-state", 3)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda place: SimpleNamespace(free=1000))
    with pytest.raises(CannotSave, match=r"x-state: the disk is full: .* needed and 1.0 kB are free"):
        write(tmp_path / "x-state", 4)
    assert read_position(tmp_path / "x-state").step == 3


def test_no_state_is_no_state(tmp_path):
    assert find_state(tmp_path / "x-state") is None


def test_record_of_a_run(tmp_path):
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"a" * 1000)
    options = build(NetworkTraining, {"pretrained_model_name_or_path": str(model), "wandb_api_key": "hidden"})
    record = record_of(options, None)
    assert record.files == {"pretrained_model_name_or_path": mark_of(model)}
    assert "hidden" not in record.settings
    record.write(tmp_path)
    assert read_record(tmp_path) == record


def test_changes_are_those_that_matter():
    before = Record(
        "[a]\nlearning_rate = 1e-3\noutput_dir = 'x'\nvae = '/a/v.pt'\n",
        ("torch 1", "numpy 2"),
        {"vae": FileMark("v.pt", 5, "aa")},
    )
    now = Record(
        "[a]\nlearning_rate = 1e-4\noutput_dir = 'y'\nvae = '/b/v.pt'\n",
        ("torch 2", "numpy 2"),
        {"vae": FileMark("v.pt", 5, "bb")},
    )
    assert changes(before, now, NetworkTraining) == [
        "learning_rate was 0.001, is 0.0001",
        "vae is another file (v.pt, 5 bytes; now v.pt, 5 bytes)",
        "torch was 1, is 2",
    ]
    assert changes(before, before, NetworkTraining) == []


def test_options_that_change_no_result_exist():
    assert specs(NetworkTraining).keys() >= WITHOUT_EFFECT
