"""The LoRA types of the known GUI: which network module each is, and which of the network's arguments it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sd_scripts.options.gui_presets import readers
from sd_scripts.options.gui_presets.readers import Reader


@dataclass(frozen=True)
class LoraType:
    """A choice of the field "LoRA type". `families`: those that it is for; () is SD 1.x, 2.x, SDXL and SD 3."""

    module: str
    algo: str | None = None
    families: tuple[str, ...] = ()


@dataclass(frozen=True)
class Item:
    """A key that sets an argument of the network, for the LoRA types that have it."""

    name: str
    read: Reader
    types: tuple[str, ...]
    unset: tuple[Any, ...] = ()
    idle: Any = None


_UNET_FAMILIES = ("sd1", "sd2", "sdxl", "sd3")
_ALL = ("sd1", "sd2", "sdxl", "sd3", "flux", "chroma", "lumina", "anima", "hunyuan_image")
TYPES: Mapping[str, LoraType] = {
    "Standard": LoraType("networks.lora"),
    "Kohya LoCon": LoraType("networks.lora"),
    "LoRA-FA": LoraType("networks.lora_fa"),
    "Kohya DyLoRA": LoraType("networks.dylora"),
    "Kohya LoHa": LoraType("networks.loha", families=("sdxl", "anima")),
    "Kohya LoKr": LoraType("networks.lokr", families=("sdxl", "anima")),
    "Flux1": LoraType("networks.lora_flux", families=("flux", "chroma")),
    "Flux1 OFT": LoraType("networks.oft_flux", families=("flux", "chroma")),
    "HunyuanImage-2.1": LoraType("networks.lora_hunyuan_image", families=("hunyuan_image",)),
    "Anima": LoraType("networks.lora_anima", families=("anima",)),
    "Lumina": LoraType("networks.lora_lumina", families=("lumina",)),
    "LyCORIS/LoCon": LoraType("lycoris.kohya", "locon", _ALL),
    "LyCORIS/LoHa": LoraType("lycoris.kohya", "loha", _ALL),
    "LyCORIS/LoKr": LoraType("lycoris.kohya", "lokr", _ALL),
    "LyCORIS/iA3": LoraType("lycoris.kohya", "ia3", _ALL),
    "LyCORIS/Diag-OFT": LoraType("lycoris.kohya", "diag-oft", _ALL),
    "LyCORIS/BOFT": LoraType("lycoris.kohya", "boft", _ALL),
    "LyCORIS/GLoRA": LoraType("lycoris.kohya", "glora", _ALL),
    "LyCORIS/DyLoRA": LoraType("lycoris.kohya", "dylora", _ALL),
    "LyCORIS/Native Fine-Tuning": LoraType("lycoris.kohya", "full", _ALL),
}
OLD_NAMES = {"LoCon": "LyCORIS/LoCon", "LyCORIS/(IA)^3": "LyCORIS/iA3", "DyLoRA": "Kohya DyLoRA"}
PLAIN = ("Standard", "Kohya LoCon")  # on another family, the family's own module does the same
OF_FAMILY = {  # the type that is the plain LoRA of a family
    "flux": "Flux1", "chroma": "Flux1", "anima": "Anima", "hunyuan_image": "HunyuanImage-2.1", "lumina": "Lumina",
}  # fmt: skip

_LYCORIS = tuple(name for name, kind in TYPES.items() if kind.algo)
_DENSE = ("LyCORIS/LoCon", "LyCORIS/LoHa", "LyCORIS/LoKr")
_BLOCKS = ("Standard", "Kohya LoCon", "LoRA-FA", "Kohya DyLoRA")
_CONV = (
    "Kohya LoCon", "Kohya DyLoRA", "Kohya LoHa", "Kohya LoKr", *_DENSE, "LyCORIS/Diag-OFT", "LyCORIS/BOFT",
    "LyCORIS/GLoRA", "LyCORIS/DyLoRA",
)  # fmt: skip
_TUCKER = ("Kohya LoHa", "Kohya LoKr", *_DENSE, "LyCORIS/BOFT", "LyCORIS/Diag-OFT", "LyCORIS/DyLoRA", "LyCORIS/GLoRA")
_NORM = (*_DENSE, "LyCORIS/BOFT", "LyCORIS/Diag-OFT", "LyCORIS/DyLoRA", "LyCORIS/GLoRA", "LyCORIS/Native Fine-Tuning")
_SCALED_DROPOUT = tuple(name for name in _NORM if name != "LyCORIS/DyLoRA")
_DROPOUT = tuple(name for name in TYPES if name not in ("Flux1 OFT", "LyCORIS/iA3"))
_FLUX = ("Flux1",)
_OFT = ("LyCORIS/Diag-OFT",)
_LOKR = ("LyCORIS/LoKr",)


def _items(read: Reader, keys: str, types: tuple[str, ...], **details: Any) -> dict[str, Item]:
    return {key: Item(key, read, types, **details) for key in keys.split()}


ITEMS: Mapping[str, Item] = {
    "LyCORIS_preset": Item("preset", readers.word, _LYCORIS, idle="full"),
    "conv_dim": Item("conv_dim", readers.whole, _CONV, (0,), idle=1),  # 0: the network has no such part
    "conv_alpha": Item("conv_alpha", readers.number, _CONV, idle=1),
    "rank_dropout": Item("rank_dropout", readers.number, _DROPOUT, (0,)),
    "module_dropout": Item("module_dropout", readers.number, _DROPOUT, (0,)),
    **_items(
        readers.number,
        "loraplus_lr_ratio loraplus_unet_lr_ratio loraplus_text_encoder_lr_ratio",
        tuple(TYPES),
        unset=(0,),
    ),
    **_items(
        readers.word,
        "down_lr_weight mid_lr_weight up_lr_weight block_lr_zero_threshold block_dims block_alphas conv_block_dims "
        "conv_block_alphas",
        _BLOCKS,
    ),
    "factor": Item("factor", readers.whole, ("Kohya LoKr", *_LOKR), idle=-1),
    **_items(readers.flag, "bypass_mode dora_wd use_scalar", _DENSE),
    "use_tucker": Item("use_tucker", readers.flag, _TUCKER),
    "use_cp": Item("use_tucker", readers.flag, _LOKR),  # its older name
    "rank_dropout_scale": Item("rank_dropout_scale", readers.flag, _SCALED_DROPOUT),
    "train_norm": Item("train_norm", readers.flag, _NORM),
    "decompose_both": Item("decompose_both", readers.flag, _LOKR),
    "constrain": Item("constraint", readers.number, _OFT, (0,)),
    "rescaled": Item("rescaled", readers.flag, _OFT),
    "train_on_input": Item("train_on_input", readers.flag, ("LyCORIS/iA3",), idle=True),
    "unit": Item("unit", readers.whole, ("Kohya DyLoRA", "LyCORIS/DyLoRA"), (0,), idle=1),
    "enable_all_linear": Item("enable_all_linear", readers.flag, ("Flux1 OFT",)),
    **_items(readers.flag, "split_qkv train_t5xxl", _FLUX),
    "train_blocks": Item("train_blocks", readers.word, _FLUX, ("all",), "all"),
    **_items(readers.word, "train_double_block_indices train_single_block_indices", _FLUX, unset=("all",), idle="all"),
    **_items(
        readers.word,
        "img_attn_dim img_mlp_dim img_mod_dim single_dim txt_attn_dim txt_mlp_dim txt_mod_dim single_mod_dim in_dims",
        _FLUX,
    ),
    "ggpo_sigma": Item("ggpo_sigma", readers.number, _FLUX, idle=0.03),
    "ggpo_beta": Item("ggpo_beta", readers.number, _FLUX, idle=0.01),
}
ALGO_NAMES = {"LyCORIS/DyLoRA": {"unit": "block_size"}}  # where an algorithm calls an argument otherwise


def find_type(name: str) -> str | None:
    """The type of this name, also an older one, whatever the case; None for an unknown one."""
    folded = {known.casefold(): known for known in TYPES} | {old.casefold(): new for old, new in OLD_NAMES.items()}
    return folded.get(name.strip().casefold())


def families_of(kind: LoraType) -> tuple[str, ...]:
    """The model families that a LoRA type is for."""
    return kind.families or _UNET_FAMILIES
