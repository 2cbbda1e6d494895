"""Golden cases for the tests of this folder: `@pytest.mark.golden(file, kind)` runs a test once per case, as `case`."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import torch

GOLDEN = Path(__file__).parent.parent / "data" / "golden"


def pytest_configure(config):
    config.addinivalue_line("markers", "golden(file, kind): run once per case of a golden file, given as `case`")


def pytest_generate_tests(metafunc):
    marker = metafunc.definition.get_closest_marker("golden")
    if marker:
        chosen = golden_cases(*marker.args)
        metafunc.parametrize("case", chosen, ids=[case.id for case in chosen])


def golden_cases(file, kind):
    """The cases of one kind in a golden file."""
    text = gzip.decompress((GOLDEN / f"{file}.json.gz").read_bytes()).decode("utf-8")
    cases = json.loads(text, object_hook=_tensor_or_dict)["cases"]
    return [SimpleNamespace(**case) for case in cases if case["kind"] == kind]


def _tensor_or_dict(entry):
    if entry.keys() == {"shape", "data"}:
        return torch.tensor(entry["data"], dtype=torch.float32).view(entry["shape"])
    return entry
