"""Anima."""

from __future__ import annotations

from sd_scripts.models.family import LatentSpec, ModelFamily, Probe

ANIMA = ModelFamily(
    name="anima",
    label="Anima",
    article="an",
    place=80,
    traits=frozenset({"flow", "dit"}),
    divisor=16,
    scripts=("anima_train_network", "anima_train", "anima_train_control_net_lllite"),
    probes=(Probe(("x_embedder.proj.1.weight", "blocks.0.adaln_modulation_self_attn.1.weight")),),
    in_folder=lambda folder: folder.config("transformer").get("_class_name") == "CosmosTransformer3DModel",
    latent=LatentSpec(channels=16, downscale=8, scale=1.0),
    needs=("qwen3", "vae"),
)

FAMILIES = (ANIMA,)
