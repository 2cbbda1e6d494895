"""Whole runs of the LoRA trainer on a tiny model, with pictures from every source and with masks."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from sd_scripts.errors import UserError
from test.runs.test_train_network import run, settings  # noqa: F401 - a fixture

CACHES = {
    "none": {"cache_latents": False},
    "memory": {"cache_latents": True},
    "disk": {"cache_latents": True, "cache_latents_to_disk": True},
}


@pytest.fixture
def short(settings, tmp_path, monkeypatch) -> dict:  # noqa: F811
    monkeypatch.setattr("sd_scripts.data.scan_index.cache_file", lambda: tmp_path / "user cache" / "x.json")
    return settings | {"max_train_epochs": 1, "train_batch_size": 4, "max_data_loader_n_workers": 0}


def losses(events: list[dict]) -> list[float]:
    return [event["loss"] for event in events if event["type"] == "step"]


@pytest.mark.parametrize("cache", CACHES)
def test_masks_act_in_every_kind_of_cache(short, pictures, tmp_path, cache):
    """White masks change nothing, half black ones lower the loss, black ones leave nothing to learn, which is said."""
    found = {}
    for name, dark in {"none": None, "white": 0, "half": 5, "black": 10}.items():
        changes = {**CACHES[cache], "output_dir": str(tmp_path / name), "learning_rate": 1e-9}
        if dark is not None:
            masks = tmp_path / f"{name} masks"
            masks.mkdir()
            for number in range(5):
                values = np.full((10, 10), 255, np.uint8)
                values[:, :dark] = 0
                Image.fromarray(values).save(masks / f"p{number}.png")
            changes |= {"masked_loss": True, "conditioning_data_dir": str(masks)}
        if name == "black":
            with pytest.raises(UserError, match="no gradient"):
                run(short, **changes)
        else:
            found[name] = losses(run(short, **changes)[1])
    assert found["white"] == pytest.approx(found["none"], rel=1e-6)
    assert all(0.3 * whole < half < 0.7 * whole for half, whole in zip(found["half"], found["none"], strict=True))


def test_a_run_with_a_metadata_file(short, pictures, tmp_path):
    entries = {f"3_thing/p{number}": {"tags": f"red, number {number}"} for number in range(5)}
    (tmp_path / "meta.json").write_text(json.dumps(entries), encoding="utf-8")
    output, events = run(short, in_json=str(tmp_path / "meta.json"), dataset_repeats=2)
    assert len(losses(events)) == 3
    assert (output / "tiny.safetensors").exists()


def test_a_run_with_a_dataset_class(short, pictures, tmp_path, monkeypatch):
    code = "class Ours:\n    def __init__(self, options): pass\n    def __iter__(self):\n"
    code += f"        for n in range(5): yield {{'path': {str(pictures)!r} + f'/3_thing/p{{n}}.png', 'caption': 'x'}}\n"
    (tmp_path / "our_pictures.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    changes = {"train_data_dir": None, "dataset_class": "our_pictures.Ours"}
    output, events = run({key: value for key, value in (short | changes).items() if value is not None})
    assert len(losses(events)) == 2
    assert (output / "tiny.safetensors").exists()
