"""Latents and encoded captions cached before training: what the networks have to do with it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sd_scripts.data.cache import LatentCache
from sd_scripts.data.fixed_captions import fixed_captions
from sd_scripts.data.text_cache import TextCache
from sd_scripts.options.implied import caches_all_text, caches_latents
from sd_scripts.training.run import scaled_pixels

if TYPE_CHECKING:
    from accelerate import Accelerator

    from sd_scripts.data.plan import DataPlan
    from sd_scripts.methods.base import Method
    from sd_scripts.models.base import Architecture, Text
    from sd_scripts.options.recipes import TrainingOptions
    from sd_scripts.options.text_encoders import TextEncoders
    from sd_scripts.plan import Plan

SECONDS_BETWEEN_EVENTS = 0.5
# Under autocast the denoiser takes texts in the format of the computation, so nothing is lost by keeping them in it.
TEXT_DTYPES = {"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

Phase = Callable[[str, int, int], None]


def cache_latents(
    options: TrainingOptions, data: DataPlan, architecture: Architecture, accelerator: Accelerator, phase: Phase
) -> LatentCache | None:
    """Encode all pictures once, when the options ask for it.

    Args:
        phase: is told what is done, how much of it and of how much.
    """
    if not caches_latents(options):
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
        packs=options.compress_cache,
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
        wait_for_all=accelerator.wait_for_everyone,
        progress=Throttled(phase, "caching latents"),
        trust_files=options.skip_cache_check,
    )


def cache_texts(
    options: TrainingOptions,
    plan: Plan,
    architecture: Architecture,
    method: Method,
    accelerator: Accelerator,
    phase: Phase,
) -> TextCache | None:
    """Encode all captions and prompts once, when the options ask for it, and free the text encoders.

    The method comes first: it may have merged weights into the text encoders, or act on them with adapters that are kept
    as they are.
    """
    if not caches_all_text(options):
        return None
    assert plan.data is not None
    adapters = _text_adapters(method)
    for network in (*architecture.text_encoders, *adapters):
        network.to(accelerator.device)
    method.trainee.eval()
    others = [*_prompt_texts(plan), *(fixed_captions(plan.data.validation) if plan.data.validation else ())]
    texts = encode_texts(options, plan.data, architecture, accelerator, phase, others=others, adapters=adapters)
    method.trainee.drop_text_encoders()
    architecture.free_text_encoders(texts, keeps_weights=method.trains_base_weights)
    return texts


def encode_texts(
    options: TrainingOptions,
    data: DataPlan,
    architecture: Architecture,
    accelerator: Accelerator,
    phase: Phase,
    *,
    others: Sequence[str] = (),
    adapters: Sequence[nn.Module] = (),
) -> TextCache:
    """Encode all captions once.

    Args:
        others: texts besides the captions.
        adapters: that act on the text encoders.
    """
    dtype = TEXT_DTYPES[options.mixed_precision]

    @torch.no_grad()
    def encode(captions: list[str]) -> Text:
        with accelerator.autocast():
            text = architecture.encode_text(architecture.tokenize(captions))
        return text.mapped(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)

    to_disk = options.cache_text_encoder_outputs_to_disk
    return TextCache.build(
        data,
        encode,
        fingerprint=text_fingerprint(options, architecture, adapters) if to_disk else "",
        dtype=str(dtype),
        to_disk=to_disk,
        batch_size=options.text_encoder_batch_size or options.train_batch_size,
        others=others,
        packs=options.compress_cache,
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
        wait_for_all=accelerator.wait_for_everyone,
        progress=Throttled(phase, "caching captions"),
        trust_files=options.skip_cache_check,
    )


def _prompt_texts(plan: Plan) -> list[str]:
    return [text for prompt in plan.prompts for text in (prompt.prompt, prompt.negative_prompt)]


def text_fingerprint(options: TextEncoders, architecture: Architecture, adapters: Sequence[nn.Module] = ()) -> str:
    """Identity of the text encoders, with all that decides what they make of a caption."""
    encoders = weights_hash(*architecture.text_encoders, *adapters)
    weights = "/weighted" if options.weighted_captions else ""
    return f"{architecture.name}/{encoders}/{options.clip_skip or 1}/{options.max_token_length or 75}{weights}"


def _text_adapters(method: Method) -> list[nn.Module]:
    """Adapters of text encoders, which are not trained but act."""
    if method.trainee.adapter is None:
        return []
    modules = method.trainee.adapter.modules_by_name().values()
    return [module for module in modules if module.target.part.startswith("te")]


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
            digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
