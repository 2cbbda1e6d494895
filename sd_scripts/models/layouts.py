"""Which tensor of a file or folder goes where, by the layouts of a family's parts. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sd_scripts.models.family import Layout, ModelFamily, Part
from sd_scripts.models.keymaps.core import Source

if TYPE_CHECKING:
    from torch import Tensor

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
    "denoiser.sigmas",
)
_DROPPED_ENDS = ("embeddings.position_ids", "model.attn_mask")
MARKS = ("v_pred", "ztsnr")  # empty tensors by which files say what the model predicts; written back


@dataclass(frozen=True)
class ReadPlan:
    """Which tensor of a file goes where.

    Attributes:
        parts: part name to library tensor name to its source.
        kept: tensors that no network uses but that belong in a file of this layout; written back when saving.
        dropped: training leftovers (averages, schedule constants, position ids) that are not read.
        unknown: everything else: to be reported.
    """

    parts: Mapping[str, Mapping[str, Source]]
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass
class _Sorted:
    """What was found so far."""

    parts: dict[str, Mapping[str, Source]] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)

    def plan(self, names: Iterable[str]) -> ReadPlan:
        used = {source.key for sources in self.parts.values() for source in sources.values()}
        kept = tuple(
            name for name in names if name in MARKS or (name not in used and name.startswith(tuple(self.kept)))
        )
        rest = [name for name in names if name not in used and name not in set(kept)]
        dropped = tuple(name for name in rest if is_dropped(name))
        return ReadPlan(self.parts, kept, dropped, tuple(name for name in rest if name not in set(dropped)))


def plan_file(family: ModelFamily, names: Collection[str]) -> ReadPlan:
    """Sort the tensors of a file that may hold several parts."""
    found = _Sorted()
    for part in family.parts:
        _find(found, part, names, lambda layout: layout.prefixes)
    return found.plan(names)


def plan_folder(family: ModelFamily, names: Collection[str]) -> ReadPlan:
    """Sort the tensors of a diffusers folder, called `<subfolder>/<name>`."""
    found = _Sorted()
    for part in family.parts:
        _find(found, part, names, lambda layout, part=part: (f"{part.folder}/",))
    return found.plan(names)


def plan_part(part: Part, names: Collection[str]) -> ReadPlan:
    """Sort the tensors of a separate file of one part; empty if it holds no such part.

    The file may be a whole checkpoint: then nothing is said of its other parts.
    """
    found = _Sorted()
    prefix = _find(found, part, names, lambda layout: (*layout.prefixes, ""))
    return found.plan([name for name in names if name.startswith(prefix)])


def stored_tensors(layout: Layout, tensors: Mapping[str, Tensor], prefix: str | None = None) -> dict[str, Tensor]:
    """A network's tensors under the names of a file: below the layout's first prefix, or another one."""
    start = layout.prefixes[0] if prefix is None else prefix
    return {start + name: tensor for name, tensor in layout.write(tensors).to_file(tensors).items()}


def under(prefix: str, names: Iterable[str]) -> dict[str, None]:
    """Names below a prefix, without it, as an ordered set."""
    return {name[len(prefix) :]: None for name in names if name.startswith(prefix)}


def is_dropped(name: str) -> bool:
    """Whether it is a leftover of training."""
    return name.startswith(_DROPPED) or name.endswith(_DROPPED_ENDS)


def _find(found: _Sorted, part: Part, names: Collection[str], prefixes_of: Callable[[Layout], Iterable[str]]) -> str:
    """Add the part's sources by the first layout and prefix of which a marker is there; the prefix. None: it has none."""
    found.parts[part.name] = {}
    for layout in part.layouts:
        for prefix in prefixes_of(layout):
            if any(prefix + marker in names for marker in layout.markers):
                own = [name for name in under(prefix, names) if not is_dropped(name)]
                sources = layout.read(own).sources(own)
                found.parts[part.name] = {n: replace(s, key=prefix + s.key) for n, s in sources.items()}
                found.kept += [prefix + start for start in layout.kept]
                return prefix
    return ""
