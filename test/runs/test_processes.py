"""Two processes train what one with the same batch trains: the same weights, steps, numbers and files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from sd_scripts.training.events import read_events
from sd_scripts.training.run_folder import RunFolder
from test.runs.forked import needs_fork, run

pytestmark = needs_fork

STEPS = 5


@pytest.fixture
def buckets(tmp_path) -> Path:
    """Pictures of two shapes: 5 and 2, so that batches of 4 are 4, 1 and 2."""
    folder = tmp_path / "uneven" / "1_thing"
    folder.mkdir(parents=True)
    for number in range(7):
        size = (64, 96) if number > 4 else (64, 64)
        Image.effect_noise(size, 20 + 10 * number).convert("RGB").save(folder / f"p{number}.png")
        (folder / f"p{number}.txt").write_text(f"thing {number}", encoding="utf-8")
    return folder.parent


@pytest.fixture
def settings(tmp_path, tiny_sd1, buckets) -> dict:
    return {
        "pretrained_model_name_or_path": tiny_sd1, "train_data_dir": buckets, "output_dir": tmp_path / "out",
        "output_name": "x", "resolution": "64,96", "enable_bucket": True, "min_bucket_reso": 64, "max_bucket_reso": 128,
        "bucket_reso_steps": 32, "max_train_steps": STEPS, "network_dim": 2, "learning_rate": 1e-3, "seed": 5,
        "log_with": "none", "optimizer_type": "SGD", "network_train_unet_only": True,
    }  # fmt: skip


def numbers(folder: Path) -> list[tuple]:
    events, _ = read_events(RunFolder(folder).events)
    return [(e["step"], e["epoch"], e["loss"], e["lr"]["unet"]) for e in events if e["type"] == "step"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"gradient_accumulation_steps": 2, "network_train_unet_only": False, "clip_skip": 2},
        {"optimizer_type": "AdamW", "max_grad_norm": 0},
    ],
)
def test_two_processes_train_what_one_does(settings, tmp_path, changes):
    given = settings | changes | {"validation_split": 0.15, "ema_decay": 0.5}
    folders = {count: RunFolder(tmp_path / f"run{count}").make() for count in (1, 2)}
    for count, folder in folders.items():
        more = {"train_batch_size": 4 // count, "output_dir": tmp_path / f"out{count}", "run_dir": folder.path}
        run("train_network", given | more | {"save_every_n_steps": 2, "save_state": True}, count)
    one, two = (load_file(tmp_path / f"out{count}" / "x.safetensors") for count in (1, 2))
    assert one.keys() == two.keys()
    for key, tensor in one.items():
        torch.testing.assert_close(tensor, two[key], rtol=1e-5, atol=1e-5)
    alone, together = (numbers(folder.path) for folder in folders.values())
    assert [row[:2] for row in alone] == [row[:2] for row in together]
    assert [row[2:] for row in alone] == [pytest.approx(row[2:], rel=1e-4) for row in together]
    names = [{path.name for path in (tmp_path / f"out{count}").iterdir()} for count in (1, 2)]
    assert names[0] == names[1]
    measured = [
        [event["loss"] for event in read_events(folder.events)[0] if event["type"] == "validation"]
        for folder in folders.values()
    ]
    assert measured[0] and measured[0] == pytest.approx(measured[1], rel=1e-4)


def test_the_first_process_may_take_its_time(settings, tmp_path):
    """The others wait for what it writes and draws for longer than their exchange of gradients may take."""
    folder = RunFolder(tmp_path / "run").make()
    slow = {
        "ddp_timeout": 1, "save_every_n_steps": 1, "save_state": True, "sample_every_n_steps": 2, "max_train_steps": 2,
        "sample_prompts": "a --w 64 --h 64 --s 2\nb --w 64 --h 64 --s 2",
    }  # fmt: skip
    folder.request("save")
    run("train_network", settings | slow | {"run_dir": folder.path, "train_batch_size": 2}, 2)
    events, _ = read_events(folder.events)
    assert events[-1]["state"] == "done"
    assert len([event for event in events if event["type"] == "sample"]) == 2


def test_all_processes_stop_at_the_same_step(settings, tmp_path):
    folder = RunFolder(tmp_path / "run").make()
    folder.request("stop")
    run("train_network", settings | {"run_dir": folder.path, "train_batch_size": 2}, 2)
    events, _ = read_events(folder.events)
    assert (events[-1]["state"], events[-1]["step"]) == ("stopped", 1)
