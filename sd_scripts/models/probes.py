"""How to tell architectures from their files: tensor names that only one of them has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from sd_scripts.models.keymaps import sd

LABELS: Mapping[str, str] = {
    "sd1": "a Stable Diffusion 1.x model",
    "sd2": "a Stable Diffusion 2.x model",
    "sdxl": "an SDXL model",
    "sd3": "a Stable Diffusion 3 model",
    "flux": "a FLUX.1 model",
    "chroma": "a Chroma model",
    "lumina": "a Lumina Image 2 model",
    "anima": "an Anima model",
    "hunyuan_image": "a HunyuanImage 2.1 model",
    "lora": "a LoRA file",
    "vae": "a VAE file",
    "text_encoder": "a text encoder",
    "embedding": "a textual inversion embedding",
    "controlnet": "a ControlNet",
    "unknown": "a file of unknown kind",
}

# In this order; the first whose every name is there (after an optional prefix) wins.
_PROBES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("sdxl", (sd.UNET + "label_emb.0.0.weight",)),
    ("sdxl", ("conditioner.embedders.0.transformer.text_model.embeddings.token_embedding.weight",)),
    ("controlnet", ("controlnet_blocks.0.weight",)),
    ("sd3", ("joint_blocks.0.x_block.attn.qkv.weight",)),
    ("chroma", ("distilled_guidance_layer.in_proj.weight", "double_blocks.0.img_attn.qkv.weight")),
    ("hunyuan_image", ("double_blocks.0.img_attn_qkv.weight",)),
    ("flux", ("double_blocks.0.img_attn.qkv.weight", "img_in.weight")),
    ("lumina", ("cap_embedder.0.weight", "t_embedder.mlp.0.weight")),
    ("anima", ("x_embedder.proj.1.weight", "blocks.0.adaln_modulation_self_attn.1.weight")),
    ("controlnet", ("input_hint_block.0.weight",)),
    ("controlnet", ("controlnet_cond_embedding.conv_in.weight",)),
    ("sd2", (sd.UNET + "input_blocks.0.0.weight", sd.OPEN_CLIP + "token_embedding.weight")),
    ("sd1", (sd.UNET + "input_blocks.0.0.weight", sd.CLIP + "text_model.embeddings.token_embedding.weight")),
    ("sd1", (sd.UNET + "input_blocks.0.0.weight", sd.CLIP + "embeddings.token_embedding.weight")),
    ("vae", ("encoder.conv_in.weight", "decoder.conv_in.weight")),
    ("vae", ("encoder.conv1.weight", "decoder.conv1.weight")),
    ("text_encoder", ("text_model.embeddings.token_embedding.weight",)),
    ("text_encoder", ("embed_tokens.weight",)),
    ("text_encoder", ("shared.weight",)),
)
_PREFIXES = ("", sd.UNET, sd.VAE, "net.", "model.", "vae.", "transformer.", "control_model.")
_ADAPTER_PARTS = (".lora_", ".hada_", ".lokr_", ".oft_blocks", ".dora_scale")
_ADAPTER_STARTS = ("lora_", "lycoris_", "oft_unet_", "lllite_")
_ADAPTER_ENDS = (".alpha", ".diff", ".on_input")
_EMBEDDINGS = ("emb_params", "clip_l", "clip_g", "string_to_param")


def identify(names: Collection[str]) -> str:
    """The architecture whose tensor names these are; "unknown" if none's."""
    if _is_adapter(names):
        return "lora"
    if names and all(name in _EMBEDDINGS for name in names):
        return "embedding"
    found = (arch for arch, probe in _PROBES if any(all(p + n in names for n in probe) for p in _PREFIXES))
    return next(found, "unknown")


def _is_adapter(names: Iterable[str]) -> bool:
    return any(
        name.startswith(_ADAPTER_STARTS) or name.endswith(_ADAPTER_ENDS) or any(part in name for part in _ADAPTER_PARTS)
        for name in names
    )
