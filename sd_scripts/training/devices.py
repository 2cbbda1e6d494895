"""Devices, precision and attention, as `accelerate launch` and the options say."""

from __future__ import annotations

import logging
from datetime import timedelta
from importlib.util import find_spec

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import (
    DistributedDataParallelKwargs,
    InitProcessGroupKwargs,
    KwargsHandler,
    TorchDynamoPlugin,
)
from torch.amp import GradScaler

from sd_scripts.errors import ConfigError
from sd_scripts.models.attention import set_attention, takes_backends
from sd_scripts.models.base import Architecture
from sd_scripts.options.recipes import CommonOptions
from sd_scripts.training.compilation import check_compiler

logger = logging.getLogger(__name__)


def make_accelerator(options: CommonOptions) -> Accelerator:
    """Devices and precision of the run.

    Raises:
        ConfigError: this machine has not what an option asks for.
    """
    check_compiler(options)
    AcceleratorState._reset_state()  # a run before this one in the same process may have had another precision
    try:
        accelerator = Accelerator(
            mixed_precision=options.mixed_precision,
            kwargs_handlers=ddp_settings(options),
            # we compile the denoiser ourselves; Accelerator would compile the trainee as a whole, text encoders included
            dynamo_plugin=TorchDynamoPlugin(backend="no") if options.torch_compile else None,
        )
    except ValueError as failure:
        if "fp16" in str(failure) or "bf16" in str(failure):
            reason = "this device cannot compute in it; use bf16, or no on a CPU"
            raise ConfigError("mixed_precision", options.mixed_precision, reason) from failure
        raise
    if options.full_fp16 and accelerator.scaler is not None:
        allow_fp16_gradients(accelerator.scaler)
    torch.backends.cuda.matmul.allow_tf32 = options.cuda_allow_tf32
    torch.backends.cudnn.benchmark = options.cuda_cudnn_benchmark
    return accelerator


def allow_fp16_gradients(scaler: GradScaler) -> None:
    """Let a scaler unscale gradients in fp16, which torch refuses unless told so; there are no others with `full_fp16`."""
    unscale = scaler._unscale_grads_
    scaler._unscale_grads_ = lambda *arguments: unscale(*arguments[:3], True)


def ddp_settings(options: CommonOptions) -> list[KwargsHandler]:
    """What several processes are told: how long to wait for each other, how to exchange gradients."""
    settings: list[KwargsHandler] = [
        DistributedDataParallelKwargs(
            gradient_as_bucket_view=options.ddp_gradient_as_bucket_view,
            static_graph=options.ddp_static_graph,
            # weights that a step does not reach are usual: layers behind clip_skip, adapters that are dropped out
            find_unused_parameters=not options.ddp_static_graph,
        )
    ]
    if options.ddp_timeout is not None:
        settings.append(InitProcessGroupKwargs(timeout=timedelta(minutes=options.ddp_timeout)))
    return settings


def uses_xformers(options: CommonOptions, device: torch.device) -> bool:
    """Whether attention is left to xFormers: asked for, installed, and on a GPU that it is made for.

    Most settings that circulate ask for it. Where it cannot be had, PyTorch's own attention does the same, and it is said.
    """
    asked = (
        options.xformers or options.diffusers_xformers
    ) and not options.mem_eff_attn  # which wins, and is PyTorch's
    if not asked or find_spec("xformers") is None:  # the plan has warned
        return False
    if device.type != "cuda":
        logger.warning("xFormers is for NVIDIA GPUs, and there is none here: PyTorch's own attention is used")
    return device.type == "cuda"


def choose_attention(options: CommonOptions, architecture: Architecture) -> None:
    """Let denoiser and VAE compute attention with the package that the options name.

    Raises:
        ConfigError: this model cannot use it, or it is missing or does not work on this machine.
    """
    if uses_xformers(options, architecture.device) and not takes_backends(architecture.denoiser):
        architecture.use_xformers()
        return
    name, mode = attention_mode(options, architecture.device)
    if mode is None:
        return
    try:
        set_attention(architecture.denoiser, mode)
    except ValueError as failure:
        raise ConfigError(name, getattr(options, name), str(failure)) from failure


def attention_mode(options: CommonOptions, device: torch.device) -> tuple[str, str | None]:
    """The option that decides on attention, and what it decides; None is PyTorch's own."""
    if options.attn_mode is not None:
        return "attn_mode", options.attn_mode
    if options.use_flash_attn:
        return "use_flash_attn", "flash"
    if options.use_sage_attn:
        return "use_sage_attn", "sageattn"
    if uses_xformers(options, device):
        return "xformers" if options.xformers else "diffusers_xformers", "xformers"
    return "sdpa", None
