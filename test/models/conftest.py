"""Shared by the tests of models: data files, options, a tiny model of each kind on disk."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from test.tiny import tiny_model

DATA = Path(__file__).parent.parent / "data"


def read_data(name):
    return json.loads(gzip.decompress((DATA / name).read_bytes()).decode("utf-8"))


def options(**changed):
    unset = {
        "vae": None,
        "v2": False,
        "v_parameterization": False,
        "clip_skip": None,
        "max_token_length": 75,
        "weighted_captions": False,
    }
    return SimpleNamespace(**{**unset, "no_half_vae": False, "disable_mmap_load_safetensors": False, **changed})


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Paths of tiny models: `models["sd1", ".safetensors"]`; a folder's suffix is ""."""
    folder = tmp_path_factory.mktemp("models")
    kinds = [(name, suffix) for name in ("sd1", "sd2", "sdxl") for suffix in (".safetensors", ".ckpt", "")]
    return {
        (name, suffix): tiny_model(name, folder / f"{name}_{suffix[1:] or 'folder'}{suffix}") for name, suffix in kinds
    }
