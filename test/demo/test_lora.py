"""The demo as a newcomer runs it: its preset trains a LoRA that draws the new figure, which the model alone does not know."""

from __future__ import annotations

import sys
import time

import psutil
import pytest

from sd_scripts.options.toml_files import read_settings
from test.conftest import ROOT, trainer_environment, watch_memory
from test.demo.score import CONCEPT_CAPTIONS, draw_samples, load
from test.shape_check import MUSHROOM

PRESET = ROOT / "presets" / "lora" / "demo.toml"
LIMIT_SECONDS = 240
LIMIT_GIB = 3


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The LoRA of the preset, the seconds it took from the start of the process, and its peak memory in GiB."""
    output = tmp_path_factory.mktemp("demo")
    began = time.monotonic()
    process = psutil.Popen(
        [sys.executable, "-m", "sd_scripts.train_network", "--config_file", str(PRESET), "--output_dir", str(output)],
        cwd=ROOT,
        env=trainer_environment(threads=2),
    )
    seen = watch_memory(process)
    assert process.wait(timeout=900) == 0
    return output / f"{read_settings(PRESET)['output_name']}.safetensors", time.monotonic() - began, max(seen) / 2**30


def mushrooms(loras) -> int:
    """How many of 20 samples with the trigger word show the new figure."""
    model = load(ROOT / "models" / "demo" / "demo.safetensors", loras)
    samples = list(draw_samples(model, CONCEPT_CAPTIONS, each=1))
    assert len(samples) == 20
    return sum(sample.finding.shape == MUSHROOM for sample in samples)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_of_20_samples_16_show_the_new_figure(trained):
    path, seconds, gib = trained
    assert mushrooms([path]) >= 16
    assert gib <= LIMIT_GIB
    print(f"demo LoRA: {seconds:.0f} s, {gib:.2f} GiB")
