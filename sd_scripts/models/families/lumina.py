"""Lumina Image 2.0."""

from __future__ import annotations

from sd_scripts.models.family import LatentSpec, ModelFamily, Probe

LUMINA = ModelFamily(
    name="lumina",
    label="Lumina Image 2.0",
    place=70,
    traits=frozenset({"flow", "dit"}),
    divisor=16,
    scripts=("lumina_train_network", "lumina_train"),
    probes=(Probe(("cap_embedder.0.weight", "t_embedder.mlp.0.weight")),),
    in_folder=lambda folder: folder.config("transformer").get("_class_name") == "Lumina2Transformer2DModel",
    latent=LatentSpec(channels=16, downscale=8, scale=0.3611, shift=0.1159),
)

FAMILIES = (LUMINA,)
