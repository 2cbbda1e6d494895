"""What a file says about itself: `modelspec.*` keys (Stability's ModelSpec 1.0.1), and the names of base models."""

from __future__ import annotations

import base64
import mimetypes
from datetime import datetime
from pathlib import Path
from typing import Literal

from sd_scripts.errors import UserError
from sd_scripts.models.family import ModelIdentity

VERSION = "1.0.1"
STABILITY = "https://github.com/Stability-AI/generative-models"
FREE_TEXTS = (  # written from the metadata_* option of the same name, when it is given
    "author", "description", "license", "tags", "usage_hint", "merged_from", "trigger_phrase", "preprocessor",
    "is_negative_embedding",
)  # fmt: skip


def modelspec(
    cfg: object,
    identity: ModelIdentity,
    kind: Literal["lora", "textual-inversion", "checkpoint"],
    *,
    made_at: float,
    resolution: tuple[int, int] | None,
    version: str,
) -> dict[str, str]:
    """The modelspec keys of a file.

    Args:
        cfg: options; read are metadata_*, output_name, min_timestep, max_timestep, clip_skip.
        made_at: Unix time, s.
        resolution: (width, height) in px that was trained at.
        version: of this program: its commit, or "(unknown)".
    """
    width, height = resolution or (identity.default_resolution,) * 2
    uses_original = kind == "textual-inversion" or kind == "checkpoint"
    keys = {
        "sai_model_spec": VERSION,
        "architecture": identity.architecture + ("" if kind == "checkpoint" else f"/{kind}"),
        "implementation": STABILITY if uses_original else identity.implementation,
        "title": _title(cfg, kind, made_at),
        "resolution": f"{width}x{height}",
        "date": datetime.fromtimestamp(int(made_at)).isoformat(),
        "prediction_type": identity.prediction,
        "timestep_range": _timestep_range(cfg),
        "encoder_layer": getattr(cfg, "clip_skip", None),
        "implementation_version": f"sd-scripts/{version}",
        "thumbnail": _thumbnail(getattr(cfg, "metadata_thumbnail", None)),
    } | {name: getattr(cfg, f"metadata_{name}", None) for name in FREE_TEXTS}
    return {f"modelspec.{name}": str(value) for name, value in keys.items() if value not in (None, "")}


def _title(cfg: object, kind: str, made_at: float) -> str:
    names = {"lora": "LoRA", "textual-inversion": "TextualInversion", "checkpoint": "Checkpoint"}
    given = getattr(cfg, "metadata_title", None) or getattr(cfg, "output_name", None)
    return given or f"{names[kind]}@{int(made_at)}"


def _timestep_range(cfg: object) -> str | None:
    low, high = getattr(cfg, "min_timestep", None), getattr(cfg, "max_timestep", None)
    if low is None and high is None:
        return None
    return f"{0 if low is None else low},{1000 if high is None else high}"


def _thumbnail(source: str | None) -> str | None:
    """A data URL of the picture, so that no path is written."""
    if not source or source.startswith("data:"):
        return source
    path = Path(source)
    if not path.is_file():
        raise UserError(f"metadata_thumbnail = {source!r}: no such picture; give a file or a data: URL")
    kind = mimetypes.guess_type(path.name)[0] or "image/png"
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"
