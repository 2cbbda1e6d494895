import gzip
import json
from pathlib import Path

import pytest
import torch

from sd_scripts.options.methods import Network

DATA = Path(__file__).parent.parent / "data"


def golden(kind: str) -> list:
    cases = json.loads((DATA / "golden" / "lora_math.json").read_text(encoding="utf-8"))["cases"]
    return [pytest.param(c["inputs"], c["expected"], id=c["id"]) for c in cases if c["kind"] == kind]


def tensor(entry: dict) -> torch.Tensor:
    return torch.tensor(entry["data"], dtype=torch.float32).view(entry["shape"])


def layout(name: str) -> dict:
    with gzip.open(DATA / "lora_layouts" / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        return json.load(file)


def options(**given) -> Network:
    return Network(**({"network_dim": 4, "learning_rate": 1e-4} | given))
