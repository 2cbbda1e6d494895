"""SDXL: a larger U-Net that is told the picture's sizes too, a VAE, and two CLIP text encoders."""

from __future__ import annotations

from sd_scripts.models.family import (
    LatentSpec,
    ModelFamily,
    Part,
    Probe,
)
from sd_scripts.models.keymaps.clip import clip_layout
from sd_scripts.models.keymaps.unet import unet_part
from sd_scripts.models.keymaps.vae import vae_part

UNET = "model.diffusion_model."
CLIP_L = "conditioner.embedders.0.transformer."
CLIP_G = "conditioner.embedders.1.model."
REFINER_TEXT = "conditioner.embedders.0.model.token_embedding.weight"  # the refiner has the second encoder alone
LATENT = LatentSpec(channels=4, downscale=8, scale=0.13025)

SDXL = ModelFamily(
    name="sdxl",
    label="SDXL",
    article="an",
    place=30,
    traits=frozenset({"noise", "unet", "clip"}),
    divisor=8,
    scripts=(
        "sdxl_train_network", "sdxl_train", "sdxl_train_textual_inversion", "sdxl_train_control_net",
        "sdxl_train_control_net_lllite", "sdxl_train_leco",
    ),
    probes=(
        Probe((UNET + "label_emb.0.0.weight",)),
        Probe((CLIP_L + "text_model.embeddings.token_embedding.weight",)),
    ),
    in_folder=lambda folder: (folder.path / "text_encoder_2").is_dir() and (folder.path / "unet").is_dir(),
    latent=LATENT,
    parts=(
        unet_part(),
        vae_part(LATENT.channels),
        Part("te1", "text encoder 1", "text_encoder", (clip_layout(CLIP_L),)),
        Part("te2", "text encoder 2", "text_encoder_2"),
    ),
    text_rates=2,
)  # fmt: skip

FAMILIES = (SDXL,)
