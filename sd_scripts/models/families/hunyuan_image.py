"""HunyuanImage-2.1."""

from __future__ import annotations

from sd_scripts.models.family import LatentSpec, ModelFamily, Probe

HUNYUAN_IMAGE = ModelFamily(
    name="hunyuan_image",
    label="HunyuanImage-2.1",
    place=90,
    traits=frozenset({"flow", "dit"}),
    divisor=32,
    scripts=("hunyuan_image_train_network", "hunyuan_image_train"),
    probes=(Probe(("double_blocks.0.img_attn_qkv.weight",)),),
    in_folder=lambda folder: folder.config("transformer").get("_class_name") == "HunyuanImageTransformer2DModel",
    latent=LatentSpec(channels=64, downscale=32, scale=0.75289),
    text_rates=0,
    needs=("text_encoder", "byt5", "vae"),
)

FAMILIES = (HUNYUAN_IMAGE,)
