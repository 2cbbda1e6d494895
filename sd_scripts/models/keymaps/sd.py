"""The single-file layout of SD 1.x and 2.x: three networks under three prefixes, and what else such files hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sd_scripts.models.keymaps.clip import clip_key_map, clip_level, open_clip_key_map, open_clip_used_layers
from sd_scripts.models.keymaps.core import KeyMap, Source
from sd_scripts.models.keymaps.unet import UNetShape, unet_key_map
from sd_scripts.models.keymaps.vae import VAEShape, has_old_attention, old_vae_attention, vae_key_map

if TYPE_CHECKING:
    from torch import Tensor

UNET = "model.diffusion_model."
VAE = "first_stage_model."
CLIP = "cond_stage_model.transformer."
OPEN_CLIP = "cond_stage_model.model."

FOLDERS = {"unet": "unet", "vae": "vae", "te1": "text_encoder"}  # subfolders of a diffusers folder

# Averages and constants that training files carry and that no network reads.
_DROPPED = (
    "model_ema.",
    "first_stage_model.loss.",
    "first_stage_model.model_ema.",
    "loss.",
    "betas",
    "alphas_cumprod",
    "sqrt_",
    "log_one_minus_",
    "posterior_",
    "logvar",
    "lvlb_weights",
    "cond_stage_model.model.attn_mask",
)


@dataclass(frozen=True)
class ReadPlan:
    """Which tensor of a file goes where.

    Attributes:
        parts: part name ("unet", "vae", "te1") to library tensor name to its source.
        kept: tensors that no network uses but that belong in a file of this layout; written back when saving.
        dropped: training leftovers (averages, schedule constants, position ids) that are not read.
        unknown: everything else: to be reported.
    """

    parts: Mapping[str, Mapping[str, Source]]
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def plan_single_file(names: Collection[str]) -> ReadPlan:
    """Sort the tensors of an SD single file."""
    unet, vae = _under(UNET, names), _under(VAE, names)
    clip, open_clip = _under(CLIP, names), _under(OPEN_CLIP, names)
    parts = {
        "unet": _sources(unet_key_map(UNetShape.of_file(unet)), unet, UNET),
        "vae": _sources(vae_key_map(VAEShape.of_file(vae)), vae, VAE),
    }
    if open_clip:
        parts["te1"] = _sources(open_clip_key_map(open_clip_used_layers(open_clip)), open_clip, OPEN_CLIP)
    else:
        parts["te1"] = _sources(clip_key_map(clip_level(clip)), clip, CLIP)
    return _sorted_out(parts, names)


def plan_folder(names: Collection[str]) -> ReadPlan:
    """Sort the tensors of a diffusers folder, called `<subfolder>/<name>`."""
    parts = {part: _sources(_folder_map(part, found), found, prefix) for part, prefix, found in _folders(names)}
    return _sorted_out(parts, names)


def plan_vae_file(names: Collection[str]) -> ReadPlan:
    """Sort the tensors of a separate VAE file: original names with or without prefix, or diffusers' names."""
    prefix = VAE if any(name.startswith(VAE) for name in names) else ""
    vae = _under(prefix, names)
    if any(name.startswith("encoder.down_blocks.") for name in vae):
        key_map = _folder_map("vae", vae)
    else:
        key_map = vae_key_map(VAEShape.of_file(vae))
    plan = _sorted_out({"vae": _sources(key_map, vae, prefix)}, names)
    others = (UNET, CLIP, OPEN_CLIP)  # a whole checkpoint may serve as a VAE file
    return replace(plan, unknown=tuple(name for name in plan.unknown if not name.startswith(others)))


def single_file_tensors(parts: Mapping[str, Mapping[str, Tensor]], open_clip: bool) -> dict[str, Tensor]:
    """All three networks' tensors under the names of the single file; the reverse of `plan_single_file`.

    Args:
        parts: library tensors of "unet", "vae" and "te1".
        open_clip: SD 2.x's names for the text encoder instead of SD 1.x's.
    """
    text = parts["te1"]
    layers = 1 + max(int(name.split(".")[2]) for name in text if name.startswith("encoder.layers."))
    maps: list[tuple[str, str, KeyMap]] = [
        (UNET, "unet", unet_key_map(UNetShape.of_library(parts["unet"]))),
        (VAE, "vae", vae_key_map(VAEShape.of_library(parts["vae"]))),
        (OPEN_CLIP, "te1", open_clip_key_map(layers)) if open_clip else (CLIP, "te1", clip_key_map()),
    ]
    return {prefix + name: t for prefix, part, key_map in maps for name, t in key_map.to_file(parts[part]).items()}


def _under(prefix: str, names: Iterable[str]) -> dict[str, None]:
    """Names below a prefix, without it, as an ordered set."""
    return {name[len(prefix) :]: None for name in names if name.startswith(prefix)}


def _sources(key_map: KeyMap, names: Iterable[str], prefix: str) -> dict[str, Source]:
    wanted = [name for name in names if not _is_dropped(name)]
    return {library: replace(s, key=prefix + s.key) for library, s in key_map.sources(wanted).items()}


def _folders(names: Collection[str]) -> Iterable[tuple[str, str, dict[str, None]]]:
    for part, folder in FOLDERS.items():
        yield part, folder + "/", _under(folder + "/", names)


def _folder_map(part: str, names: Collection[str]) -> KeyMap:
    if part == "te1":
        return clip_key_map(clip_level(names))
    if part == "vae" and has_old_attention(names):
        return old_vae_attention()
    return KeyMap((top, top) for top in {name.split(".")[0] for name in names})


def _sorted_out(parts: Mapping[str, Mapping[str, Source]], names: Iterable[str]) -> ReadPlan:
    used = {source.key for sources in parts.values() for source in sources.values()}
    rest = [name for name in names if name not in used]
    dropped = tuple(name for name in rest if _is_dropped(name))
    kept = tuple(name for name in rest if _is_kept(name) and name not in dropped)
    return ReadPlan(parts, kept, dropped, tuple(name for name in rest if name not in {*kept, *dropped}))


def _is_dropped(name: str) -> bool:
    return name.startswith(_DROPPED) or name.endswith("embeddings.position_ids")


def _is_kept(name: str) -> bool:
    """The unused last block and the head of SD 2.x's OpenCLIP model."""
    return name.startswith(
        tuple(OPEN_CLIP + part for part in ("transformer.resblocks.", "text_projection", "logit_scale"))
    )
