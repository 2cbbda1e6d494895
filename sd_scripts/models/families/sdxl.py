"""SDXL: a larger U-Net that is told the picture's sizes too, a VAE, and two CLIP text encoders."""

from __future__ import annotations

from collections.abc import Collection

from sd_scripts.models.families.sd import no_special_model
from sd_scripts.models.family import (
    BlockRows,
    LatentSpec,
    Layout,
    ModelFamily,
    ModelFolder,
    ModelIdentity,
    Part,
    PartShapes,
    Probe,
)
from sd_scripts.models.keymaps.clip import LEVEL, clip_layout, open_clip_key_map
from sd_scripts.models.keymaps.core import KeyMap, count_indices, same_names
from sd_scripts.models.keymaps.unet import unet_part
from sd_scripts.models.keymaps.vae import vae_part
from sd_scripts.models.targets import sdxl_targets, sdxl_weight_blocks

UNET = "model.diffusion_model."
CLIP_L = "conditioner.embedders.0.transformer."
CLIP_G = "conditioner.embedders.1.model."
LATENT = LatentSpec(channels=4, downscale=8, scale=0.13025)
STABILITY = "https://github.com/Stability-AI/generative-models"

# Empty tensors by which files say what the model predicts, and that its last timestep is pure noise.
V_MARK, ZERO_SNR_MARK = "v_pred", "ztsnr"


def read_open_clip(names: Collection[str]) -> KeyMap:
    """OpenCLIP's names of an encoder that is used with all its blocks and its projection."""
    return open_clip_key_map(count_indices(names, "transformer.resblocks."), with_projection=True)


def write_open_clip(names: Collection[str]) -> KeyMap:
    """The same for a network's names."""
    return open_clip_key_map(count_indices(names, f"{LEVEL}encoder.layers."), with_projection=True)


def _identity(predicts_v: bool, _shapes: PartShapes) -> ModelIdentity:
    prediction = "v" if predicts_v else "epsilon"
    return ModelIdentity(
        "sdxl_base_v1-0", "stable-diffusion-xl-v1-base", False, prediction, 1024, implementation=STABILITY
    )


def _refusal(shapes: PartShapes) -> str | None:
    if shapes["te2"] and not shapes["te1"]:
        return "is an SDXL refiner, which cannot be trained: give an SDXL base model"
    return no_special_model(shapes)


def _is_folder(folder: ModelFolder) -> bool:
    return "unet/conv_in.weight" in folder.names and (folder.path / "text_encoder_2").is_dir()


SDXL = ModelFamily(
    name="sdxl",
    label="SDXL",
    article="an",
    place=30,
    traits=frozenset({"noise", "unet", "clip"}),
    divisor=8,
    scripts=(
        "sdxl_train_network",
        "sdxl_train",
        "sdxl_train_textual_inversion",
        "sdxl_train_control_net",
        "sdxl_train_control_net_lllite",
        "sdxl_train_leco",
    ),
    probes=(
        Probe((UNET + "label_emb.0.0.weight",)),
        Probe((CLIP_L + "text_model.embeddings.token_embedding.weight",)),
    ),
    in_folder=_is_folder,
    latent=LATENT,
    parts=(
        unet_part(),
        vae_part(LATENT.channels),
        Part("te1", "text encoder 1", "text_encoder", (clip_layout(CLIP_L),)),
        Part(
            "te2",
            "text encoder 2",
            "text_encoder_2",
            (
                Layout(("token_embedding.weight",), read_open_clip, write_open_clip, (CLIP_G,), kept=("logit_scale",)),
                Layout((f"{LEVEL}embeddings.token_embedding.weight",), same_names, same_names),
            ),
        ),
    ),
    text_rates=2,
    targets=sdxl_targets,
    blocks=BlockRows(before=1, down=9, mid=3, up=9, after=1),
    weight_blocks=sdxl_weight_blocks,
    identity=_identity,
    refusal=_refusal,
    predicts_v=lambda names: V_MARK in names,
    loader="sd_scripts.models.sdxl_files:load_sdxl",
)

FAMILIES = (SDXL,)
