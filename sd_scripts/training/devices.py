"""Devices, precision and compilation, as `accelerate launch` and the options say."""

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
from torch import nn

from sd_scripts.errors import ConfigError
from sd_scripts.options.recipes import CommonOptions

logger = logging.getLogger(__name__)

# Compiled versions that are kept of one function: one for each picture size, batch size and mode (training, samples).
# torch's own limit of 8 would leave the rest uncompiled.
COMPILED_VERSIONS = 256


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
    if options.full_fp16 and accelerator.scaler is not None:  # torch refuses to unscale fp16 gradients unless told so
        unscale = accelerator.scaler._unscale_grads_
        accelerator.scaler._unscale_grads_ = lambda *arguments: unscale(*arguments[:3], True)
    torch.backends.cuda.matmul.allow_tf32 = options.cuda_allow_tf32
    torch.backends.cudnn.benchmark = options.cuda_cudnn_benchmark
    return accelerator


def ddp_settings(options: CommonOptions) -> list[KwargsHandler]:
    """What several processes are told: how long to wait for each other, how to exchange gradients."""
    settings: list[KwargsHandler] = []
    if options.ddp_gradient_as_bucket_view or options.ddp_static_graph:
        settings.append(
            DistributedDataParallelKwargs(
                gradient_as_bucket_view=options.ddp_gradient_as_bucket_view, static_graph=options.ddp_static_graph
            )
        )
    if options.ddp_timeout is not None:
        settings.append(InitProcessGroupKwargs(timeout=timedelta(minutes=options.ddp_timeout)))
    return settings


def uses_xformers(options: CommonOptions, device: torch.device) -> bool:
    """Whether attention is left to xFormers: asked for, installed, and on a GPU that it is made for.

    Most settings that circulate ask for it. Where it cannot be had, PyTorch's own attention does the same, and it is said.
    """
    asked = (options.xformers or options.diffusers_xformers) and not options.mem_eff_attn  # which wins, and is PyTorch's
    if not asked or find_spec("xformers") is None:  # the plan has warned
        return False
    if device.type != "cuda":
        logger.warning("xFormers is for NVIDIA GPUs, and there is none here: PyTorch's own attention is used")
    return device.type == "cuda"


def check_compiler(options: CommonOptions) -> None:
    """Raise ConfigError for a compiler that this torch does not have."""
    if not wants_compilation(options):
        return
    known = sorted({*torch.compiler.list_backends(exclude_tags=())})
    if options.dynamo_backend not in known:
        reason = f"this torch ({torch.__version__}) has no such compiler; it has {', '.join(known)}"
        raise ConfigError("dynamo_backend", options.dynamo_backend, reason)


def wants_compilation(options: CommonOptions) -> bool:
    """Whether the denoiser is compiled."""
    return options.torch_compile and options.dynamo_backend != "no"


def compile_denoiser(denoiser: nn.Module, backend: str) -> None:
    """Have a network compiled when it is first called; its class, modules and tensor names stay as they are.

    How it is done (mode, whole graph, dynamic shapes) is an option of `accelerate launch`.
    """
    launch = TorchDynamoPlugin(backend="no")  # reads what the launch has set
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, COMPILED_VERSIONS)
    denoiser.compile(backend=backend, mode=launch.mode, fullgraph=launch.fullgraph, dynamic=launch.dynamic)
    logger.info("the model is compiled with %s in the first steps", backend)
