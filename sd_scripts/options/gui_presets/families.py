"""Which model family and which tab a preset file is for, told from its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sd_scripts.options.gui_presets.findings import Finding
from sd_scripts.options.gui_presets.readers import Unreadable, flag, is_blank, word

BOXES: Mapping[str, str] = {  # in the order in which the known GUI asks them
    "sdxl": "sdxl",
    "sdxl_checkbox": "sdxl",
    "flux1_checkbox": "flux",
    "sd3_checkbox": "sd3",
    "hunyuan_image_checkbox": "hunyuan_image",
    "anima_checkbox": "anima",
    "lumina_checkbox": "lumina",
    "v2": "sd2",
}
_MARKS = (  # the first tab of which a key is there; LoRA_type is only on the LoRA tab, and decides alone
    ("adapter", ("LoRA_type",)),
    ("leco", ("prompts_file", "max_denoising_steps", "leco_denoise_guidance_scale")),
    ("lllite", ("cond_emb_dim", "lllite_mlp_dim", "lllite_cond_dim", "lllite_target_layers", "conditioning_data_dir")),
    ("textual_inversion", ("token_string", "num_vectors_per_token", "init_word", "template")),
    ("adapter", ("unet_lr", "text_encoder_lr", "network_dim", "network_alpha", "LyCORIS_preset", "network_weights")),
    (
        "full",
        (
            "image_folder", "train_dir", "use_latent_files", "sdxl_checkbox", "dataset_repeats", "create_caption",
            "create_buckets", "full_path", "train_text_encoder", "block_lr",
        ),
    ),
    (
        "dreambooth",
        (
            "learning_rate_te", "learning_rate_te1", "learning_rate_te2", "stop_text_encoder_training",
            "no_token_padding", "reg_data_dir", "prior_loss_weight", "sdxl", "flux1_checkbox", "sd3_checkbox", "v2",
        ),
    ),
)  # fmt: skip


def method_of(content: Mapping[str, Any]) -> str | None:
    """What the tab that wrote these keys trains; None where the keys do not say."""
    return next((method for method, keys in _MARKS if any(key in content for key in keys)), None)


def architecture_of(content: Mapping[str, Any], method: str | None) -> tuple[str | None, list[Finding]]:
    """The model family whose box is ticked, None for none, and what is odd about the boxes."""
    if method == "lllite":
        return "anima", []
    findings = []
    ticked = []
    for key, family in BOXES.items():
        try:
            if flag(content.get(key)):
                ticked.append((key, family))
        except Unreadable as failure:
            findings.append(Finding("invalid", key, str(failure)))
    for key, _ in ticked[1:]:
        findings.append(Finding("ignored", key, f"the file is for {ticked[0][1]}, of which the box is ticked too"))
    family = ticked[0][1] if ticked else None
    if family == "flux" and is_chroma(content):
        family = "chroma"
    return family, findings


def is_chroma(content: Mapping[str, Any]) -> bool:
    """Whether a FLUX.1 preset is for Chroma."""
    value = content.get("model_type")
    return not is_blank(value) and isinstance(value, str) and word(value) == "chroma"
