"""Stable Diffusion 3 and 3.5."""

from __future__ import annotations

from sd_scripts.models.family import LatentSpec, ModelFamily, Probe

SD3 = ModelFamily(
    name="sd3",
    label="Stable Diffusion 3",
    place=40,
    traits=frozenset({"flow", "dit", "t5"}),
    divisor=16,
    scripts=("sd3_train_network", "sd3_train"),
    probes=(Probe(("joint_blocks.0.x_block.attn.qkv.weight",)),),
    in_folder=lambda folder: folder.config("transformer").get("_class_name") == "SD3Transformer2DModel",
    latent=LatentSpec(channels=16, downscale=8, scale=1.5305, shift=0.0609),
    text_rates=3,
)

FAMILIES = (SD3,)
