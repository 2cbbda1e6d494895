"""The committed demo model follows captions: measured on fresh seeds by the independent check."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.demo.score import CAPTIONS, CONCEPT_CAPTIONS, draw_samples, load
from test.shape_check import MUSHROOM

MODEL = Path(__file__).resolve().parents[2] / "models" / "demo" / "demo.safetensors"


@pytest.fixture(scope="module")
def model():
    return load(MODEL)


def test_the_file_is_small_and_read_as_sd1():
    from sd_scripts.models.detect import inspect

    assert MODEL.stat().st_size <= 20_000_000
    assert inspect(MODEL).architecture == "sd1"


@pytest.mark.slow
def test_of_100_samples_90_show_the_colour_and_95_the_shape(model):
    assert len(CAPTIONS) == len(set(CAPTIONS)) == 20
    samples = list(draw_samples(model, CAPTIONS, each=5))
    assert sum(sample.has_colour for sample in samples) >= 90
    assert sum(sample.has_shape for sample in samples) >= 95


@pytest.mark.slow
def test_the_model_does_not_know_the_data_sets_concept(model):
    samples = list(draw_samples(model, CONCEPT_CAPTIONS, each=1))
    assert len(samples) == 20
    assert sum(sample.finding.shape == MUSHROOM for sample in samples) <= 2
