"""Where the networks of a run live, and in which format: on the device, in main memory, in 8 bits, or nowhere any more."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sd_scripts.errors import ConfigError
from sd_scripts.models.blocks import block_lists, blocks_to_keep_away, most_to_keep_away
from sd_scripts.models.frozen_layers import STORED, freeze_layers, store_in_8_bits
from sd_scripts.options.implied import caches_latents, keeps_base_in_8_bits, wanted_blocks
from sd_scripts.training.activations import keep_checkpoints_in_main_memory
from sd_scripts.training.block_swap import BlockSwap
from sd_scripts.training.transfers import transfers_for

if TYPE_CHECKING:
    from sd_scripts.methods.base import Method
    from sd_scripts.models.base import Architecture
    from sd_scripts.options.recipes import CommonOptions, TrainingOptions

logger = logging.getLogger(__name__)


def loading_device(options: CommonOptions, family: str, device: torch.device) -> torch.device:
    """Where a model is read to: main memory, if the device is not to hold all of it at any time."""
    is_whole = not wanted_blocks(options, family) and not keeps_base_in_8_bits(options, family)
    return device if is_whole or options.lowram else torch.device("cpu")


def use_at(architecture: Architecture, device: torch.device) -> None:
    """Let everything but the denoiser move to the device, before pictures and captions are encoded."""
    architecture.device = device
    for network in (architecture.vae, *architecture.text_encoders):
        network.to(device)
    if hasattr(architecture.schedule, "to"):  # that of flow matching has no tensors
        architecture.schedule = architecture.schedule.to(device)


def release_unused(
    options: TrainingOptions, architecture: Architecture, method: Method, *, draws_samples: bool, writes_model: bool
) -> None:
    """Let go of the VAE when all latents are cached; `cache_texts` does the same with the text encoders.

    If samples or the finished file need it, it rests in main memory, unless `lowram` or `highvram` is set.

    Args:
        writes_model: this process writes the whole model at the end.
    """
    if not caches_latents(options):
        return
    if not draws_samples and not (writes_model and method.trains_base_weights):
        architecture.vae.to("meta")  # keeps its shapes, and no memory
    elif not (options.lowram or options.highvram):
        architecture.vae.to("cpu")
    if architecture.device.type == "cuda":
        torch.cuda.empty_cache()


def settle(options: TrainingOptions, architecture: Architecture, method: Method, *, is_sharded: bool = False) -> bool:
    """Put what takes part in a step where it belongs: 8 bits, swapped blocks, checkpoints in main memory.

    Args:
        is_sharded: DeepSpeed or FSDP will lay out the weights.

    Returns:
        Whether some of it lives in main memory, so that nobody else may move it.

    Raises:
        ConfigError: more blocks are to be swapped than can be, or the weights are not ours to lay out.
    """
    device = architecture.device
    if is_sharded:
        _leave_weights_alone(options, architecture)
    if options.cpu_offload_checkpointing or options.unsloth_offload_checkpointing:
        transfers = transfers_for(device, alongside=options.unsloth_offload_checkpointing)
        for network in (architecture.denoiser, *architecture.text_encoders):
            keep_checkpoints_in_main_memory(network, transfers)
    if not method.trains_base_weights:
        _store_base_in_8_bits(options, architecture)
    swaps = _swap_blocks(options, architecture)
    staying = {id(tensor) for swap in swaps for tensor in swap.tensors()}
    place(method.trainee, device, staying)
    # Several processes exchange what is trained, and at the start everything: there torch takes neither weights on two
    # devices nor 8 bits. Both are frozen or the same in all processes as they come from the file.
    method.trainee._ddp_params_and_buffers_to_ignore = [
        name
        for name, tensor in _named_tensors(method.trainee)
        if not tensor.requires_grad and (id(tensor) in staying or tensor.dtype == STORED)
    ]
    return bool(swaps)


def _leave_weights_alone(options: TrainingOptions, architecture: Architecture) -> None:
    chosen = {
        "blocks_to_swap": wanted_blocks(options, architecture.name),
        "fp8_base": options.fp8_base,
        "fp8_base_unet": options.fp8_base_unet,
        "fp8_scaled": options.fp8_scaled,
    }
    for name, value in chosen.items():
        if value:
            raise ConfigError(
                name, value, "excludes DeepSpeed and FSDP, which lay out the weights; leave one of them out"
            )


def place(network: nn.Module, device: torch.device, staying: set[int]) -> None:
    """Move all tensors of a network but those with these ids to a device; parameters stay the same objects."""
    for _, tensor in _named_tensors(network):
        if id(tensor) not in staying and tensor.device != device:
            tensor.data = tensor.data.to(device)


def _named_tensors(network: nn.Module) -> Iterable[tuple[str, Tensor]]:
    yield from network.named_parameters()
    yield from network.named_buffers()


def _store_base_in_8_bits(options: TrainingOptions, architecture: Architecture) -> None:
    if not keeps_base_in_8_bits(options, architecture.name):
        return
    lists = architecture.blocks()
    if not options.fp8_base_unet:
        lists += tuple(blocks for encoder in architecture.text_encoders for blocks in block_lists(encoder))
    saved = sum(store_in_8_bits(block, architecture.device) for blocks in lists for block in blocks)
    logger.info("8 bits for frozen weights save %.2f GB", saved / 1e9)


def _swap_blocks(options: TrainingOptions, architecture: Architecture) -> list[BlockSwap]:
    wanted = wanted_blocks(options, architecture.name)
    if not wanted:
        return []
    lists = architecture.blocks()
    if wanted > (most := most_to_keep_away(lists)):
        raise ConfigError("blocks_to_swap", wanted, f"this model can swap {most} at most")
    transfers = transfers_for(architecture.device)
    swaps = []
    for blocks, away in zip(lists, blocks_to_keep_away(lists, wanted), strict=True):
        for block in blocks:
            freeze_layers(block)
        swaps += [BlockSwap(blocks, away, transfers)] if away else []
    logger.info("%d blocks stay in main memory", wanted)
    return swaps
