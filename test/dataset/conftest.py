"""Training folders in many odd shapes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sd_scripts.data.plan import DataPlan, plan_data
from sd_scripts.options.dataset import DatasetOptions

SMALL = {"resolution": "64", "min_bucket_reso": 32, "max_bucket_reso": 128, "bucket_reso_steps": 8}


@pytest.fixture(autouse=True)
def own_cache_folder(tmp_path, monkeypatch) -> Path:
    """A cache folder for each test, so that no scan finds what another one has found."""
    place = tmp_path / "user cache"
    monkeypatch.setattr("sd_scripts.data.scan_index.cache_file", lambda: place / "model_hashes.json")
    return place / "pictures"


@pytest.fixture
def picture(tmp_path) -> Callable[..., Path]:
    """Writes a picture of noise that its name decides: picture("10_cat/a.png", (64, 64), caption="a cat")."""

    def write(name: str, size: tuple[int, int] = (64, 64), caption: str | None = None, **save) -> Path:
        path = tmp_path / "train" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(len(name) + sum(name.encode())).integers(0, 256, (*size[::-1], 3), np.uint8)
        Image.fromarray(noise).save(path, **save)
        if caption is not None:
            path.with_suffix(".txt").write_text(caption, encoding="utf-8")
        return path

    return write


@pytest.fixture
def plan(tmp_path) -> Callable[..., DataPlan]:
    """Plans the folder that `picture` writes to, at 64 px; options as keywords."""

    def make(seed: int = 1, divisor: int = 8, **options) -> DataPlan:
        given = {"train_data_dir": str(tmp_path / "train"), **SMALL, **options}
        return plan_data(DatasetOptions(**given), divisor=divisor, seed=seed)

    return make


@pytest.fixture
def ten_pictures(picture) -> None:
    """3_cat with ten captioned pictures in three shapes."""
    for number in range(10):
        size = [(64, 64), (100, 70), (70, 100)][number % 3]
        picture(f"3_cat/p{number}.png", size, caption=f"cat {number}, red, blue, green")
