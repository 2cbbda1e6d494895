"""What a file is, told from its tensors' names: a model of some family, or something else that users have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache

from sd_scripts.models.families import all_families
from sd_scripts.models.family import Probe

_OTHER_LABELS: Mapping[str, str] = {
    "sdxl_refiner": "an SDXL refiner",
    "lora": "a LoRA file",
    "vae": "a VAE file",
    "text_encoder": "a text encoder",
    "embedding": "a textual inversion embedding",
    "controlnet": "a ControlNet",
    "unknown": "a file of unknown kind",
}

# Of kinds that no family is: before the families those that hold a copy of some of their names, after them those of
# which families' files hold a copy.
_BEFORE = (
    ("controlnet", Probe(("controlnet_blocks.0.weight",))),
    ("controlnet", Probe(("input_hint_block.0.weight",), prefixes=("", "control_model."))),
    ("controlnet", Probe(("controlnet_cond_embedding.conv_in.weight",))),
    ("sdxl_refiner", Probe(("conditioner.embedders.0.model.token_embedding.weight",), prefixes=("",))),
)
_AFTER = (
    ("vae", Probe(("encoder.conv_in.weight", "decoder.conv_in.weight"))),
    ("vae", Probe(("encoder.conv1.weight", "decoder.conv1.weight"))),
    ("text_encoder", Probe(("text_model.embeddings.token_embedding.weight",))),
    ("text_encoder", Probe(("embed_tokens.weight",))),
    ("text_encoder", Probe(("shared.weight",))),
)
_ADAPTER_PARTS = (".lora_", ".hada_", ".lokr_", ".oft_blocks", ".dora_scale")
_ADAPTER_STARTS = ("lora_", "lycoris_", "oft_unet_", "lllite_")
_ADAPTER_ENDS = (".alpha", ".diff", ".on_input")
_EMBEDDINGS = ("emb_params", "clip_l", "clip_g", "string_to_param")


def label_of(kind: str) -> str:
    """The kind for people, with its article."""
    return all_families()[kind].model_label if kind in all_families() else _OTHER_LABELS[kind]


def identify(names: Collection[str]) -> str:
    """The family whose tensor names these are, or another kind; "unknown" if none's."""
    if _is_adapter(names):
        return "lora"
    if names and all(name in _EMBEDDINGS for name in names):
        return "embedding"
    names = names if isinstance(names, (Mapping, set, frozenset)) else frozenset(names)
    return next((kind for kind, probe in _probes() if probe.fits(names)), "unknown")


@cache
def _probes() -> tuple[tuple[str, Probe], ...]:
    families = [(family.name, probe) for family in all_families().values() for probe in family.probes]
    return (*_BEFORE, *families, *_AFTER)


def _is_adapter(names: Iterable[str]) -> bool:
    return any(
        name.startswith(_ADAPTER_STARTS) or name.endswith(_ADAPTER_ENDS) or any(part in name for part in _ADAPTER_PARTS)
        for name in names
    )
