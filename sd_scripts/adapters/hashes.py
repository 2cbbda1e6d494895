"""Hashes that other programs look files up by: of saved networks, and of the model they were trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from torch import Tensor

LEGACY_OFFSET = 1 << 20  # the legacy rule reads 64 KiB from 1 MiB on; a shorter file hashes as empty
LEGACY_LENGTH = 1 << 16
CHUNK = 1 << 22


def network_hashes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> dict[str, str]:
    """`sshs_model_hash` and `sshs_legacy_hash` of a network file with these tensors and this metadata.

    Both are taken from the file as it would be with the `ss_` keys alone, so titles and the hashes don't matter.
    """
    own = {key: value for key, value in metadata.items() if key.startswith("ss_")}
    content = memoryview(safetensors.torch.save(dict(tensors), metadata=own))
    data_start = 8 + int.from_bytes(content[:8], "little")
    legacy = hashlib.sha256(content[LEGACY_OFFSET : LEGACY_OFFSET + LEGACY_LENGTH]).hexdigest()[:8]
    return {"sshs_model_hash": hashlib.sha256(content[data_start:]).hexdigest(), "sshs_legacy_hash": legacy}


def short_file_hash(path: Path) -> str:
    """The eight digits by which older programs name a model file (`ss_sd_model_hash`)."""
    with path.open("rb") as file:
        file.seek(LEGACY_OFFSET)
        return hashlib.sha256(file.read(LEGACY_LENGTH)).hexdigest()[:8]


def file_hash(path: Path) -> str:
    """SHA-256 of a whole file, 64 digits (`ss_new_sd_model_hash`). Takes seconds for a large model."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
