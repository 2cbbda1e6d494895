"""FLUX.1 and Chroma, which has its blocks and its VAE."""

from __future__ import annotations

from sd_scripts.models.family import LatentSpec, ModelFamily, Probe

LATENT = LatentSpec(channels=16, downscale=8, scale=0.3611, shift=0.1159)
APPROXIMATOR = "distilled_guidance_layer.in_proj.weight"  # Chroma's, in place of FLUX's modulation layers

FLUX = ModelFamily(
    name="flux",
    label="FLUX.1",
    place=50,
    traits=frozenset({"flow", "dit", "t5"}),
    divisor=16,
    scripts=("flux_train_network", "flux_train", "flux_train_control_net"),
    probes=(Probe(("double_blocks.0.img_attn.qkv.weight", "img_in.weight"), without=(APPROXIMATOR,)),),
    in_folder=lambda folder: folder.config("transformer").get("_class_name") == "FluxTransformer2DModel",
    latent=LATENT,
    text_rates=2,
    needs=("clip_l", "t5xxl", "ae"),
)

CHROMA = ModelFamily(
    name="chroma",
    label="Chroma",
    place=60,
    traits=frozenset({"flow", "dit", "t5"}),
    divisor=16,
    scripts=("flux_train_network", "flux_train"),
    probes=(Probe((APPROXIMATOR, "double_blocks.0.img_attn.qkv.weight")),),
    in_folder=lambda folder: folder.config("transformer").get("_class_name") == "ChromaTransformer2DModel",
    latent=LATENT,
    text_rates=2,
    needs=("t5xxl", "ae"),
)

FAMILIES = (FLUX, CHROMA)
