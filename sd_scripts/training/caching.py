"""Latents and encoded captions cached before training: what the networks have to do with it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sd_scripts.data.cache import LatentCache
from sd_scripts.training.run import scaled_pixels

if TYPE_CHECKING:
    from accelerate import Accelerator

    from sd_scripts.data.plan import DataPlan
    from sd_scripts.models.base import Architecture
    from sd_scripts.options.recipes import TrainingOptions

SECONDS_BETWEEN_EVENTS = 0.5

Phase = Callable[[str, int, int], None]


def cache_latents(
    options: TrainingOptions, data: DataPlan, architecture: Architecture, accelerator: Accelerator, phase: Phase
) -> LatentCache | None:
    """Encode all pictures once, when the options ask for it.

    Args:
        phase: is told what is done, how much of it and of how much.
    """
    if not (options.cache_latents or options.cache_latents_to_disk):
        return None

    @torch.no_grad()
    def encode(pixels: Tensor, seeds: list[int]) -> Tensor:
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        return architecture.encode_image(
            scaled_pixels(pixels.to(accelerator.device, non_blocking=True)), generators
        ).float()

    def encode_exactly(pixels: Tensor, seeds: list[int]) -> Tensor:
        with _in_full_precision(architecture.vae):
            return encode(pixels, seeds)

    return LatentCache.build(
        data,
        encode,
        latent=architecture.latent,
        # Only files outlive the run that made them and must tell which VAE that was; hashing it takes a moment.
        fingerprint=vae_fingerprint(options, architecture.vae) if options.cache_latents_to_disk else "",
        to_disk=options.cache_latents_to_disk,
        family=architecture.name,
        batch_size=options.vae_batch_size,
        half=not options.no_half_vae,
        encode_exactly=encode_exactly,
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
        wait_for_all=accelerator.wait_for_everyone,
        progress=Throttled(phase, "caching latents"),
        trust_files=options.skip_cache_check,
    )


class Throttled:
    """Passes progress on twice a second at most, and always the first and the last."""

    def __init__(self, phase: Phase, name: str):
        self._phase = phase
        self._name = name
        self._next = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next or done == total:
            self._next = now + SECONDS_BETWEEN_EVENTS
            self._phase(self._name, done, total)


@contextmanager
def _in_full_precision(network: torch.nn.Module) -> Iterator[None]:
    """Within it a network computes in float32. Its weights come back exactly: they are half precision, widened."""
    before = next(network.parameters()).dtype
    network.float()
    try:
        yield
    finally:
        network.to(before)


def vae_fingerprint(options: TrainingOptions, vae: torch.nn.Module) -> str:
    """What decides, besides the picture, how latents turn out: the VAE's weights, and the pieces in which it works."""
    pieces = f"-{options.vae_chunk_size}" if options.vae_chunk_size else ""
    return f"{weights_hash(vae)}{pieces}"


def weights_hash(*networks: torch.nn.Module) -> str:
    """A short hash of all weights: what was cached belongs to exactly these networks in this number format."""
    digest = hashlib.blake2b(digest_size=8)
    for network in networks:
        for name, tensor in network.state_dict().items():
            digest.update(f"{name}{tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
