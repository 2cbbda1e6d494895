"""Which package computes attention."""

from __future__ import annotations

import logging

from torch import nn

logger = logging.getLogger(__name__)

# value of attn_mode -> what diffusers calls it
BACKENDS = {"torch": "native", "sdpa": "native", "flash": "flash", "xformers": "xformers", "sageattn": "sage"}


def takes_backends(network: nn.Module) -> bool:
    """Whether a network leaves attention to diffusers' dispatcher; others always use PyTorch's own function."""
    return any(hasattr(getattr(module, "processor", None), "_attention_backend") for module in network.modules())


def set_attention(network: nn.Module, mode: str) -> None:
    """Let a network compute attention with the package that `attn_mode` names.

    Raises:
        ValueError: the network has no choice, or the package is missing or does not work here.
    """
    backend = BACKENDS[mode]
    if not takes_backends(network):
        if backend == "native":
            return
        raise ValueError("this model computes attention with PyTorch's own function only")
    try:
        network.set_attention_backend(backend)
    except (RuntimeError, ImportError) as failure:
        raise ValueError(str(failure).splitlines()[0]) from failure
