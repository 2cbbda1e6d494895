"""torch.compile: the whole denoiser at once, or each of its blocks by itself."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import TorchDynamoPlugin
from torch import nn

from sd_scripts.errors import ConfigError

if TYPE_CHECKING:
    from sd_scripts.models.base import Architecture
    from sd_scripts.options.recipes import CommonOptions

logger = logging.getLogger(__name__)

# Compiled versions that are kept of one function: one for each picture size, batch size and mode (training, samples).
# torch's own limit of 8 would leave the rest uncompiled.
COMPILED_VERSIONS = 256
DYNAMIC = {"true": True, "false": False}  # "auto" and unset are None


def check_compiler(options: CommonOptions) -> None:
    """Raise ConfigError for a compiler that this torch does not have."""
    known = sorted({*torch.compiler.list_backends(exclude_tags=())})
    for name, is_wanted in (("dynamo_backend", wants_whole(options)), ("compile_backend", options.compile)):
        if is_wanted and getattr(options, name) not in known:
            reason = f"this torch ({torch.__version__}) has no such compiler; it has {', '.join(known)}"
            raise ConfigError(name, getattr(options, name), reason)


def wants_whole(options: CommonOptions) -> bool:
    """Whether the denoiser is compiled as a whole."""
    return options.torch_compile and options.dynamo_backend != "no"


def compile_denoiser(options: CommonOptions, architecture: Architecture) -> None:
    """Have the denoiser compiled when it is first called; its classes, modules and tensor names stay as they are."""
    if wants_whole(options):
        launch = TorchDynamoPlugin(backend="no")  # how it is done is an option of `accelerate launch`
        how = {"mode": launch.mode, "fullgraph": launch.fullgraph, "dynamic": launch.dynamic}
        _compile([architecture.denoiser], COMPILED_VERSIONS, backend=options.dynamo_backend, **how)
    elif options.compile:
        blocks = repeated_blocks(architecture)
        versions = options.compile_cache_size_limit or COMPILED_VERSIONS
        how = {
            "mode": options.compile_mode,
            "fullgraph": options.compile_fullgraph,
            "dynamic": DYNAMIC.get(options.compile_dynamic),
        }
        _compile(blocks, versions, backend=options.compile_backend, **how)


def repeated_blocks(architecture: Architecture) -> list[nn.Module]:
    """What is worth compiling by itself: the classes that diffusers says are repeated, else all blocks."""
    names = getattr(architecture.denoiser, "_repeated_blocks", None) or ()
    repeated = [module for module in architecture.denoiser.modules() if type(module).__name__ in names]
    return repeated or [block for blocks in architecture.blocks() for block in blocks]


def _compile(modules: list[nn.Module], versions: int, **how: Any) -> None:
    torch._dynamo.config.recompile_limit = versions
    for module in modules:
        module.compile(**how)
    logger.info("compiled with %s in the first steps: %d modules", how["backend"], len(modules))
