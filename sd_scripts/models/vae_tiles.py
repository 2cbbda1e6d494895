"""A VAE that works on overlapping pieces of a picture, whose seams it blends."""

from __future__ import annotations

from torch import nn

OVERLAP = 0.25  # of a piece, as in diffusers


def use_tiles(vae: nn.Module, side: int, downscale: int) -> None:
    """Let a VAE work on pieces of so many latent pixels; pictures that are no larger are done at once, as before.

    Args:
        downscale: pixels of a picture for each pixel of its latents.
    """
    stride = int(side * (1 - OVERLAP))
    vae.enable_tiling()
    sizes = {  # diffusers' VAEs name them in one of two ways
        "tile_latent_min_size": side,
        "tile_sample_min_size": side * downscale,
        "tile_sample_min_height": side * downscale,
        "tile_sample_min_width": side * downscale,
        "tile_sample_stride_height": stride * downscale,
        "tile_sample_stride_width": stride * downscale,
    }
    for name, value in sizes.items():
        if hasattr(vae, name):
            setattr(vae, name, value)
