"""Stable Diffusion 1.x and 2.x: a U-Net, a VAE and one CLIP text encoder."""

from __future__ import annotations

from collections.abc import Collection

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
from sd_scripts.models.keymaps.clip import clip_layout, open_clip_key_map, open_clip_used_layers
from sd_scripts.models.keymaps.core import KeyMap, count_indices
from sd_scripts.models.keymaps.unet import unet_part
from sd_scripts.models.keymaps.vae import vae_part
from sd_scripts.models.targets import sd_targets

UNET = "model.diffusion_model."
CLIP = "cond_stage_model.transformer."
OPEN_CLIP = "cond_stage_model.model."
LATENT = LatentSpec(channels=4, downscale=8, scale=0.18215)
BLOCKS = BlockRows(before=0, down=12, mid=1, up=12, after=0)
TRAITS = frozenset({"noise", "unet", "clip"})
SCRIPTS = ("train_network", "fine_tune", "train_db", "train_textual_inversion", "train_control_net", "train_leco")


def no_special_model(shapes: PartShapes) -> str | None:
    """Why a U-Net is not one for text to image."""
    conv_in = shapes["unet"].get("conv_in.weight")
    if conv_in is None or conv_in[1] == LATENT.channels:
        return None
    return f"is an inpainting or other special model ({conv_in[1]} input channels): give a text-to-image model"


def _open_clip(names: Collection[str]) -> KeyMap:
    return open_clip_key_map(open_clip_used_layers(names))


def _write_open_clip(names: Collection[str]) -> KeyMap:
    return open_clip_key_map(count_indices(names, "encoder.layers."))


def _identity_1(predicts_v: bool, _shapes: PartShapes) -> ModelIdentity:
    return ModelIdentity(
        "sd_v1_v" if predicts_v else "sd_v1", "stable-diffusion-v1", False, "v" if predicts_v else "epsilon", 512
    )


def _identity_2(predicts_v: bool, _shapes: PartShapes) -> ModelIdentity:
    if predicts_v:
        return ModelIdentity("sd_v2_v", "stable-diffusion-v2-768-v", True, "v", 768)
    return ModelIdentity("sd_v2", "stable-diffusion-v2-512", True, "epsilon", 512)


def _is_folder(folder: ModelFolder, activation: str) -> bool:
    """OpenCLIP's activation, gelu, tells SD 2.x from SD 1.x."""
    if "unet/conv_in.weight" not in folder.names or (folder.path / "text_encoder_2").is_dir():
        return False
    found = folder.config("text_encoder").get("hidden_act")
    return found is not None and (found == "gelu") == (activation == "gelu")


SD1 = ModelFamily(
    name="sd1",
    label="Stable Diffusion 1.x",
    place=10,
    traits=TRAITS,
    divisor=8,
    scripts=SCRIPTS,
    probes=(
        Probe((UNET + "input_blocks.0.0.weight", CLIP + "text_model.embeddings.token_embedding.weight")),
        Probe((UNET + "input_blocks.0.0.weight", CLIP + "embeddings.token_embedding.weight")),
    ),
    in_folder=lambda folder: _is_folder(folder, "quick_gelu"),
    latent=LATENT,
    parts=(
        unet_part(),
        vae_part(LATENT.channels),
        Part("te1", "text encoder", "text_encoder", (clip_layout(CLIP),)),
    ),
    targets=sd_targets,
    blocks=BLOCKS,
    identity=_identity_1,
    refusal=no_special_model,
    loader="sd_scripts.models.sd_files:load_stable_diffusion",
)

SD2 = ModelFamily(
    name="sd2",
    label="Stable Diffusion 2.x",
    place=20,
    traits=TRAITS,
    divisor=8,
    scripts=SCRIPTS,
    probes=(Probe((UNET + "input_blocks.0.0.weight", OPEN_CLIP + "token_embedding.weight")),),
    in_folder=lambda folder: _is_folder(folder, "gelu"),
    latent=LATENT,
    parts=(
        unet_part(),
        vae_part(LATENT.channels),
        Part(
            "te1",
            "text encoder",
            "text_encoder",
            (
                Layout(
                    markers=("token_embedding.weight",),
                    read=_open_clip,
                    write=_write_open_clip,
                    prefixes=(OPEN_CLIP,),
                    # its unused last block and its head
                    kept=("transformer.resblocks.", "text_projection", "logit_scale"),
                ),
                clip_layout(),
            ),
        ),
    ),
    targets=sd_targets,
    blocks=BLOCKS,
    identity=_identity_2,
    refusal=no_special_model,
    loader="sd_scripts.models.sd_files:load_stable_diffusion",
)

FAMILIES = (SD1, SD2)
