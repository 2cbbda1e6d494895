"""Real photographs on a model of real SD 1.5 size: a file in exactly the known layout, every key read, two steps at 512 px."""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from sd_scripts.models.checkpoints import write_tensors
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


def write_random(name: str, path: Path, dtype: torch.dtype) -> Path:
    """A file of random weights under the names and shapes of a real one. Drawing them all takes minutes: they repeat."""
    shapes = layout(f"layouts/{name}.json.gz")
    pool = (torch.randn(1 << 20, generator=torch.Generator().manual_seed(0)) * 0.02).to(dtype)
    pool = pool.repeat(1 + max(map(math.prod, shapes.values())) // len(pool))
    ones = torch.ones(1 << 14, dtype=dtype)
    tensors = {}
    for key, shape in shapes.items():
        is_norm = len(shape) == 1 and key.endswith("weight")
        tensors[key] = (ones if is_norm else pool)[: math.prod(shape)].view(shape)  # written without a copy
    write_tensors(path, tensors, None, {})
    return path


@pytest.fixture(scope="module")
def real_model(tmp_path_factory) -> Path:
    """2 GB, in half precision."""
    path = write_random("sd15", tmp_path_factory.mktemp("real") / "sd15.safetensors", torch.float16)
    yield path
    shutil.rmtree(path.parent)


@pytest.fixture
def real_sdxl(tmp_path) -> Path:
    """7 GB, in bfloat16."""
    path = write_random("sdxl", tmp_path / "sdxl.safetensors", torch.bfloat16)
    yield path
    path.unlink()


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
    assert peak_gib("train_network", settings) < LIMIT_GIB
    tensors = load_file(tmp_path / "out" / "photo.safetensors")
    expected = layout("lora_layouts/sd15.json.gz")["keys"]
    assert {key: list(tensor.shape) for key, tensor in tensors.items()} == expected
    assert all(tensor.abs().max() > 0 for key, tensor in tensors.items() if "lora_up" in key)


def peak_gib(script: str, settings: dict[str, object]) -> float:
    """Run a trainer in a process of its own; the most memory that it had, GiB."""
    arguments = [
        text
        for name, value in settings.items()
        for text in ([f"--{name}"] if value is True else [f"--{name}", str(value)])
    ]
    process = psutil.Popen(
        [sys.executable, "-m", f"sd_scripts.{script}", *arguments], cwd=ROOT, env=trainer_environment(threads=2)
    )
    seen = watch_memory(process)
    assert process.wait(timeout=1400) == 0
    return max(seen) / 2**30


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.skipif(
    not os.environ.get("KOHYA_TEST_SDXL") or psutil.virtual_memory().available < 18 * 2**30,
    reason="takes many minutes and 18 GiB of free memory; set KOHYA_TEST_SDXL to run it",
)
def test_a_step_on_a_real_size_sdxl_within_16_gib(real_sdxl, photographs, tmp_path):
    """Load 7 GB, train a LoRA for a step at 256 px, save. In 32 bits, because many CPUs compute 40 times slower in bf16, so the
    weights take twice what they take on a GPU."""
    for picture in sorted(photographs.rglob("*.*g"))[1:]:
        picture.unlink()
    settings = {
        "pretrained_model_name_or_path": real_sdxl,
        "train_data_dir": photographs,
        "output_dir": tmp_path / "out",
        "output_name": "xl",
        "resolution": "256",
        "max_train_steps": 1,
        "network_dim": 4,
        "network_train_unet_only": True,
        "cache_text_encoder_outputs": True,
        "gradient_checkpointing": True,
        "seed": 1,
        "log_with": "none",
    }
    peak = peak_gib("sdxl_train_network", settings)
    assert peak < 16, f"{peak:.1f} GiB"
    tensors = load_file(tmp_path / "out" / "xl.safetensors")
    assert {key: list(t.shape) for key, t in tensors.items()} == layout("lora_layouts/sdxl__unet_only.json.gz")["keys"]
