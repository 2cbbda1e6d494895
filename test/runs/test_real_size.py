"""Real photographs on a model of real SD 1.5 size: a file in exactly the known layout, every key read, two steps at 512 px."""

from __future__ import annotations

import gzip
import json
import math
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from sd_scripts.models.detect import inspect
from test.conftest import ROOT, trainer_environment, watch_memory

DATA = ROOT / "test" / "data"
PHOTOGRAPHS = {  # package: file → caption
    "skimage": {
        "data/astronaut.png": "a portrait of an astronaut in an orange suit",
        "data/chelsea.png": "a close-up of a tabby cat",
        "data/coffee.png": "a cup of coffee on a wooden table",
        "data/rocket.jpg": "a rocket on its launch pad",
    },
    "sklearn": {
        "datasets/images/china.jpg": "a chinese temple",
        "datasets/images/flower.jpg": "a flower with orange petals",
    },
}
LIMIT_GIB = 12


def layout(name: str) -> dict:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
        return json.load(file)


@pytest.fixture(scope="module")
def real_model(tmp_path_factory) -> Path:
    """2 GB of random half-precision weights under the names and shapes of a real SD 1.5 file."""
    pool = (
        torch.randn(1 << 20, generator=torch.Generator().manual_seed(0)) * 0.02
    ).half()  # drawing all takes a minute
    tensors = {}
    for key, shape in layout("layouts/sd15.json.gz").items():
        count = math.prod(shape)
        is_norm = len(shape) == 1 and key.endswith("weight")
        values = torch.ones(count).half() if is_norm else pool.repeat(-(-count // len(pool)))[:count].clone()
        tensors[key] = values.reshape(shape)
    path = tmp_path_factory.mktemp("real") / "sd15.safetensors"
    save_file(tensors, path)
    yield path
    shutil.rmtree(path.parent)


@pytest.fixture
def photographs(tmp_path) -> Path:
    folder = tmp_path / "photographs" / "1_photo"
    folder.mkdir(parents=True)
    for package, files in PHOTOGRAPHS.items():
        home = Path(find_spec(package).origin).parent
        for name, caption in files.items():
            picture = Path(shutil.copy(home / name, folder))
            picture.with_suffix(".txt").write_text(caption, encoding="utf-8")
    return folder.parent


def test_every_key_has_its_place(real_model):
    info = inspect(real_model)
    assert info.architecture == "sd1"
    read = {source.key for sources in info.plan.parts.values() for source in sources.values()}
    assert read == set(info.tensors)
    assert not info.plan.kept


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_two_steps_on_photographs(real_model, photographs, tmp_path):
    settings = {
        "pretrained_model_name_or_path": real_model,
        "train_data_dir": photographs,
        "output_dir": tmp_path / "out",
        "output_name": "photo",
        "resolution": "512",
        "max_train_steps": 2,
        "network_dim": 4,
        "learning_rate": 1e-3,
        "seed": 1,
        "log_with": "none",
    }
    arguments = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
    process = psutil.Popen(
        [sys.executable, "-m", "sd_scripts.train_network", *arguments], cwd=ROOT, env=trainer_environment(threads=2)
    )
    seen = watch_memory(process)
    assert process.wait(timeout=1400) == 0
    assert max(seen) / 2**30 < LIMIT_GIB
    tensors = load_file(tmp_path / "out" / "photo.safetensors")
    expected = layout("lora_layouts/sd15.json.gz")["keys"]
    assert {key: list(tensor.shape) for key, tensor in tensors.items()} == expected
    assert all(tensor.abs().max() > 0 for key, tensor in tensors.items() if "lora_up" in key)
