"""Hashes by which other programs look up network files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import safetensors.torch
from torch import Tensor

LEGACY_OFFSET = 1 << 20  # the legacy rule reads 64 KiB from 1 MiB on; a shorter file hashes as empty
LEGACY_LENGTH = 1 << 16


def network_hashes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> dict[str, str]:
    """`sshs_model_hash` and `sshs_legacy_hash` of a network file with these tensors and this metadata.

    Both are taken from the file as it would be with the `ss_` keys alone, so titles and the hashes don't matter.
    """
    own = {key: value for key, value in metadata.items() if key.startswith("ss_")}
    content = memoryview(safetensors.torch.save(dict(tensors), metadata=own))
    data_start = 8 + int.from_bytes(content[:8], "little")
    legacy = hashlib.sha256(content[LEGACY_OFFSET : LEGACY_OFFSET + LEGACY_LENGTH]).hexdigest()[:8]
    return {"sshs_model_hash": hashlib.sha256(content[data_start:]).hexdigest(), "sshs_legacy_hash": legacy}
