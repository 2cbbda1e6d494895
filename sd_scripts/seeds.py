"""Seeds: every random draw of a run starts from numbers that say where in the run it is made, never from what came before."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def seed_of(*parts: object, bits: int = 63) -> int:
    """A whole number of so many bits that depends on all parts (their text), the same on every machine."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> (64 - bits)


def generator(*parts: object) -> torch.Generator:
    """A CPU generator seeded with `seed_of`."""
    import torch

    return torch.Generator().manual_seed(seed_of(*parts))
