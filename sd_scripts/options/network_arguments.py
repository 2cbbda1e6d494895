"""Options: the items of `network_args`, each a name=value that only some kinds of adapters have.

A settings file holds them as a list of texts; a form shows them as fields. `unfold` and `fold` turn the one into the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from sd_scripts.errors import ConfigError
from sd_scripts.options.arguments import did_you_mean
from sd_scripts.options.build import try_build
from sd_scripts.options.families import FAMILIES, acts_for, labels
from sd_scripts.options.methods import NETWORK_MODULES
from sd_scripts.options.problems import Problem, as_problem, error, warning
from sd_scripts.options.schema import Options, OptionSpec, option, specs


def _of(*modules: str) -> dict[str, tuple[str, ...]]:
    return {"network_module": tuple(m if "." in m else f"networks.{m}" for m in modules)}


LYCORIS = _of("lycoris.kohya")
UNET_BLOCKS = _of("lora", "lora_fa")
FLUX, SD3, LUMINA = _of("lora_flux"), _of("lora_sd3"), _of("lora_lumina")
OFT = _of("oft", "oft_flux")
FACTORS = _of("loha", "lokr", "lycoris.kohya")
BY_PATTERN = _of("lora_flux", "lora_hunyuan_image", "lora_anima", "loha", "lokr")
WITH_CONV = _of(
    "lora", "lora_fa", "dylora", "lora_flux", "lora_sd3", "lora_lumina", "lora_hunyuan_image", "loha", "lokr",
    "lycoris.kohya",
)  # fmt: skip
WITH_DROPOUT = _of(
    "lora", "lora_fa", "lora_flux", "lora_sd3", "lora_lumina", "lora_anima", "lora_hunyuan_image", "loha", "lokr",
    "lycoris.kohya",
)  # fmt: skip
WITH_PLUS = _of(
    "lora", "dylora", "lora_flux", "lora_sd3", "lora_lumina", "lora_anima", "lora_hunyuan_image", "loha", "lokr",
    "lycoris.kohya",
)  # fmt: skip
DIT_MODULES = _of("lora_flux", "lora_sd3", "lora_lumina", "lora_anima", "lora_hunyuan_image")


def _rank_of(layers: str, only_with: Mapping[str, Any], *families: str) -> Any:
    return option(
        None,
        ge=0,
        level="expert",
        only_for=families,
        only_with=only_with,
        available=False,
        help=f"Rank for {layers}; 0 leaves them out; unset: the rank above.",
    )


def _text(
    help: str, only_with: Mapping[str, Any], *families: str, label: str | None = None, available: bool = False
) -> Any:
    return option(
        None, label=label, level="expert", only_for=families, only_with=only_with, available=available, help=help
    )


def _switch(help: str, only_with: Mapping[str, Any], *families: str, label: str | None = None, on: bool = False) -> Any:
    return option(on, label=label, level="expert", only_for=families, only_with=only_with, available=False, help=help)


class NetworkArguments(Options):
    """Every known item. What an unset one means is said by the kind of adapter."""

    title: ClassVar[str] = "Adapter details"
    order: ClassVar[int] = 41

    algo: Literal[
        "lora", "locon", "loha", "lokr", "dylora", "glora", "full", "diag-oft", "boft", "ia3", "tlora",
    ] = option(
        "lora",
        label="LyCORIS algorithm",
        only_with=LYCORIS,
        available=False,
        help="How LyCORIS builds the change of the weights. lora and locon are the same: a LoRA with convolutions.",
    )  # fmt: skip
    preset: str = option(
        "full",
        label="LyCORIS preset",
        suggestions=(
            "full", "full-lin", "attn-mlp", "attn-only", "unet-only", "unet-transformer-only", "unet-convblock-only",
            "ia3",
        ),
        only_with=LYCORIS,
        available=False,
        help="Which layers LyCORIS trains; a TOML file of your own works too.",
    )  # fmt: skip
    conv_dim: int | None = option(
        None,
        ge=1,
        label="Rank of convolutions",
        only_with=WITH_CONV,
        help="Train the convolutions too, with this rank; unset: they stay as they are. Helps with styles; the file grows.",
    )
    conv_alpha: float | None = option(
        None,
        ge=0,
        label="Alpha of convolutions",
        only_with=WITH_CONV,
        help="The convolutions act with alpha / rank; 1 when unset.",
    )
    dropout: float | None = option(
        None, ge=0, lt=1, level="expert", only_with=LYCORIS, available=False,
        help="Chance to drop each value in a step; unset: the network dropout.",
    )  # fmt: skip
    rank_dropout: float | None = option(
        None, ge=0, lt=1, level="expert", only_with=WITH_DROPOUT,
        help="Chance to drop each rank for a picture in a step. 0.1 to 0.3 keep the adapter from learning by heart.",
    )  # fmt: skip
    module_dropout: float | None = option(
        None, ge=0, lt=1, level="expert", only_with=WITH_DROPOUT, help="Chance to skip each module in a step."
    )
    loraplus_lr_ratio: float | None = option(
        None, gt=0, level="expert", label="LoRA+ ratio", only_with=WITH_PLUS,
        help="Rate of the up matrices as a multiple of the learning rate. 4 to 16 learn faster.",
    )  # fmt: skip
    loraplus_unet_lr_ratio: float | None = option(
        None, gt=0, level="expert", label="LoRA+ ratio of the U-Net", only_with=WITH_PLUS,
        help="The same for the U-Net or transformer only.",
    )  # fmt: skip
    loraplus_text_encoder_lr_ratio: float | None = option(
        None, gt=0, level="expert", label="LoRA+ ratio of the text encoders", only_with=WITH_PLUS,
        help="The same for the text encoders only.",
    )  # fmt: skip

    use_tucker: bool = option(
        False, level="expert", only_with=FACTORS, available=False, formerly=("use_cp", "use_conv_cp"),
        help="Split convolutions by Tucker decomposition: smaller files at the same rank.",
    )  # fmt: skip
    disable_conv_cp: bool = _switch("Older way to switch the Tucker decomposition off.", LYCORIS)
    rank_dropout_scale: bool = _switch("Make up for dropped ranks by scaling the others.", LYCORIS)
    train_on_input: bool = _switch(
        "Let the ia3 algorithm scale what goes into a layer instead of what comes out.", LYCORIS
    )
    use_scalar: bool = _switch("Give every module a strength that is trained.", LYCORIS)
    factor: int | None = option(
        None, ge=-1, level="expert", label="LoKr factor", only_with=_of("lokr", "lycoris.kohya"), available=False,
        help="Size of the smaller of the two factors of LoKr; -1 is about the square root. Smaller gives larger files.",
    )  # fmt: skip
    decompose_both: bool = _switch("Split both factors of LoKr into low ranks.", LYCORIS)
    full_matrix: bool = _switch("Keep the larger factor of LoKr whole instead of splitting it into low ranks.", LYCORIS)
    unbalanced_factorization: bool = _switch("Swap which side of a layer gets the larger factor of LoKr.", LYCORIS)
    block_size: int | None = option(
        None, ge=1, level="expert", only_with=LYCORIS, available=False,
        help="Ranks that the dylora algorithm trains at a time; 4 when unset.",
    )  # fmt: skip
    train_norm: bool = _switch("Train the norm layers too.", LYCORIS)
    dora_wd: bool = _switch(
        "Train length and direction of the weights apart (DoRA). Closer to full training, slower.", LYCORIS,
        label="DoRA",
    )  # fmt: skip
    wd_on_output: bool = _switch("Take the length for DoRA over the outputs instead of the inputs.", LYCORIS, on=True)
    constraint: float | None = option(
        None, ge=0, level="expert", only_with=LYCORIS, available=False, formerly=("constrain",),
        help="How far OFT and BOFT may turn the weights; unset or 0: as far as they like.",
    )  # fmt: skip
    rescaled: bool = _switch("Let OFT and BOFT also change the length of the weights.", LYCORIS)
    bypass_mode: bool = _switch("Add to a layer's output instead of to its weights. For quantised models.", LYCORIS)
    rs_lora: bool = _switch("Divide alpha by the square root of the rank, so that high ranks still act.", LYCORIS)
    warn_on_unmatched: bool = _switch("Tell of parts of the preset that no layer fits.", LYCORIS, on=True)

    unit: int | None = option(
        None, ge=1, level="expert", label="DyLoRA unit", only_with=_of("dylora"), available=False,
        help="Ranks trained at a time; must divide the rank; 1 when unset.",
    )  # fmt: skip
    enable_all_linear: bool = _switch("Train all linear layers instead of attention only.", OFT)
    enable_conv: bool = _switch("Train the convolutions too.", _of("oft"), "unet")

    block_dims: str | None = _text(
        "A rank for each block of the U-Net, separated by commas: 25 for SD, 23 for SDXL.",
        UNET_BLOCKS,
        "unet",
        available=True,
    )
    block_alphas: str | None = _text(
        "An alpha for each block, separated by commas.", UNET_BLOCKS, "unet", available=True
    )
    conv_block_dims: str | None = _text(
        "A rank for the convolutions of each block, separated by commas.", UNET_BLOCKS, "unet", available=True
    )
    conv_block_alphas: str | None = _text(
        "An alpha for the convolutions of each block, separated by commas.", UNET_BLOCKS, "unet", available=True
    )
    down_lr_weight: str | None = _text(
        "Multiples of the rate for the blocks of the first half, separated by commas, or a curve: cosine, sine, linear, "
        "reverse_linear, zeros. 0 leaves a block out.", UNET_BLOCKS, "unet", available=True,
    )  # fmt: skip
    mid_lr_weight: str | None = _text(
        "Multiples of the rate for the middle block.", UNET_BLOCKS, "unet", available=True
    )
    up_lr_weight: str | None = _text(
        "Multiples of the rate for the blocks of the second half, written like those of the first.",
        UNET_BLOCKS, "unet", available=True,
    )  # fmt: skip
    block_lr_zero_threshold: float | None = option(
        None, ge=0, level="expert", only_for=("unet",), only_with=UNET_BLOCKS,
        help="Blocks whose multiple is not above this are left out; 0 when unset.",
    )  # fmt: skip

    img_attn_dim: int | None = _rank_of("attention over the picture in double blocks", FLUX, "flux", "chroma")
    txt_attn_dim: int | None = _rank_of("attention over the caption in double blocks", FLUX, "flux", "chroma")
    img_mlp_dim: int | None = _rank_of("the MLPs of the picture in double blocks", FLUX, "flux", "chroma")
    txt_mlp_dim: int | None = _rank_of("the MLPs of the caption in double blocks", FLUX, "flux", "chroma")
    img_mod_dim: int | None = _rank_of("the modulation of the picture in double blocks", FLUX, "flux", "chroma")
    txt_mod_dim: int | None = _rank_of("the modulation of the caption in double blocks", FLUX, "flux", "chroma")
    single_dim: int | None = _rank_of("the linear layers of single blocks", FLUX, "flux", "chroma")
    single_mod_dim: int | None = _rank_of("the modulation of single blocks", FLUX, "flux", "chroma")
    in_dims: str | None = _text(
        "Ranks for the five layers before the blocks (picture, time, vector, guidance, text), separated by commas.",
        FLUX, "flux", "chroma",
    )  # fmt: skip
    train_double_block_indices: str | None = _text(
        "Double blocks to train: all, none, or a selection such as 0-3,7.", FLUX, "flux", "chroma"
    )
    train_single_block_indices: str | None = _text(
        "Single blocks to train: all, none, or a selection such as 0-3,7.", FLUX, "flux", "chroma"
    )
    train_blocks: Literal[
        "all", "single", "double", "transformer", "refiners", "noise_refiner", "context_refiner",
    ] = option(
        "all", level="expert", only_for=("flux", "chroma", "lumina"), only_with=_of("lora_flux", "lora_lumina"),
        available=False,
        help="Train only this kind of blocks: single or double of FLUX; transformer or refiners of Lumina.",
    )  # fmt: skip
    split_qkv: bool = _switch(
        "Train query, key and value each for themselves where the model has them in one layer. The file stays the same.",
        _of("lora_flux", "lora_sd3", "lora_lumina", "lora_hunyuan_image"), "dit",
    )  # fmt: skip
    train_t5xxl: bool = _switch(
        "Train T5 too; captions cannot be cached then.", _of("lora_flux", "lora_sd3", "lycoris.kohya"), "t5",
        label="Train T5 too",
    )  # fmt: skip
    ggpo_beta: float | None = option(
        None, ge=0, level="expert", label="GGPO beta", only_for=("flux", "chroma", "hunyuan_image"),
        only_with=_of("lora_flux", "lora_hunyuan_image"), available=False,
        help="Noise on the weights, guided by the gradient: share that grows with the weights. Acts with GGPO sigma.",
    )  # fmt: skip
    ggpo_sigma: float | None = option(
        None, ge=0, level="expert", label="GGPO sigma", only_for=("flux", "chroma", "hunyuan_image"),
        only_with=_of("lora_flux", "lora_hunyuan_image"), available=False,
        help="Strength of that noise. Acts with GGPO beta.",
    )  # fmt: skip
    network_reg_lrs: str | None = _text(
        "Rates of their own for modules whose names fit a pattern, as pattern=rate, separated by commas; the first that "
        "fits counts.", BY_PATTERN, label="Rates by pattern",
    )  # fmt: skip
    network_reg_dims: str | None = _text(
        "Ranks of their own for modules whose names fit a pattern, as pattern=rank, separated by commas.",
        BY_PATTERN, label="Ranks by pattern",
    )  # fmt: skip

    context_attn_dim: int | None = _rank_of("attention over the caption", SD3, "sd3")
    context_mlp_dim: int | None = _rank_of("the MLPs of the caption", SD3, "sd3")
    context_mod_dim: int | None = _rank_of("the modulation of the caption", SD3, "sd3")
    x_attn_dim: int | None = _rank_of("attention over the picture", SD3, "sd3")
    x_mlp_dim: int | None = _rank_of("the MLPs of the picture", SD3, "sd3")
    x_mod_dim: int | None = _rank_of("the modulation of the picture", SD3, "sd3")
    emb_dims: str | None = _text(
        "Ranks for six layers around the blocks (caption, time, picture, vector, last modulation, last linear), separated "
        "by commas.", SD3, "sd3",
    )  # fmt: skip
    train_block_indices: str | None = _text("Blocks to train: all, none, or a selection such as 0-3,7.", SD3, "sd3")

    attn_dim: int | None = _rank_of("attention", LUMINA, "lumina")
    mlp_dim: int | None = _rank_of("the MLPs", LUMINA, "lumina")
    mod_dim: int | None = _rank_of("the modulation", LUMINA, "lumina")
    refiner_dim: int | None = _rank_of("the refiner blocks", LUMINA, "lumina")
    embedder_dims: str | None = _text(
        "Ranks for the three layers before the blocks (picture, time, caption), separated by commas.",
        LUMINA, "lumina",
    )  # fmt: skip

    train_llm_adapter: bool = _switch(
        "Train the adapter between text encoder and model too.",
        _of("lora_anima", "loha", "lokr", "lycoris.kohya"), "anima",
    )  # fmt: skip
    exclude_patterns: str | None = _text(
        "Leave out modules whose whole names fit one of these patterns, written as a Python list.",
        _of("lora_anima", "loha", "lokr"),
    )  # fmt: skip
    include_patterns: str | None = _text(
        "Train modules whose whole names fit one of these patterns although they were left out.",
        _of("lora_anima", "loha", "lokr"),
    )  # fmt: skip
    verbose: bool = _switch("List every module that is trained in the log.", DIT_MODULES, "dit")


def module_name(network_module: str) -> str:
    """The name of a kind of adapter: `networks.lora`, `lora`, `networks/lora.py`, `sd_scripts.networks.lora` are one."""
    name = network_module.strip().lower().replace("\\", ".").replace("/", ".").removesuffix(".py").strip(".")
    name = name.removeprefix("sd_scripts.").removeprefix("library.")
    return f"networks.{name}" if f"networks.{name}" in NETWORK_MODULES else name


def items_of(network_module: str) -> dict[str, OptionSpec]:
    """The items that a kind of adapter has."""
    return {name: spec for name, spec in specs(NetworkArguments).items() if network_module in kinds_with(spec)}


def kinds_with(spec: OptionSpec) -> tuple[str, ...]:
    """The kinds of adapters that have an item."""
    return spec.only_with["network_module"]


def current_name(name: str) -> str:
    """The name under which an item is declared."""
    return next((spec.name for spec in specs(NetworkArguments).values() if name in spec.formerly), name)


def split_items(network_args: Iterable[str]) -> dict[str, str]:
    """`name=value` texts as a dict, split at the first `=`. ConfigError where there is none or a name comes twice."""
    texts: dict[str, str] = {}
    for item in network_args:
        name, equals, text = item.partition("=")
        if not equals:
            raise ConfigError("network_args", item, "each argument must read name=value")
        if name.strip() in texts:
            raise ConfigError("network_args", item, f"{name.strip()} is given twice; leave one")
        texts[name.strip()] = text.strip()
    return texts


def read_item(name: str, text: str) -> tuple[Any, Problem | None]:
    """The value of a declared item, None for an unset one, and what is wrong with it."""
    if not text or text.lower() == "none":
        return None, None
    options, problems = try_build(NetworkArguments, {name: text})
    return (None, problems[0]) if options is None else (getattr(options, name), None)


def check_items(network_module: str, network_args: Sequence[str], architectures: Sequence[str]) -> Iterator[Problem]:
    """What is wrong with the items, for a kind of adapter and the families that the model may be of."""
    try:
        texts = split_items(network_args)
    except ConfigError as failure:
        yield as_problem(failure)
        return
    for name, text in texts.items():
        if problem := item_problem(network_module, name, text, architectures):
            yield replace(problem, message=f"{name}={text}: {problem.message}")


def item_problem(network_module: str, name: str, text: str, architectures: Sequence[str]) -> Problem | None:
    """What is wrong with one item; the message does not repeat it."""
    module = module_name(network_module)
    spec = specs(NetworkArguments).get(current_name(name))
    if spec is None:
        hint = did_you_mean(name, items_of(module) or specs(NetworkArguments)).removeprefix(", ")
        return error("network_args", "there is no such argument", hint)
    value, problem = read_item(spec.name, text)
    if problem:
        return replace(problem, option="network_args")
    if value is None or value == spec.default:
        return None
    if module not in kinds_with(spec):
        return warning(
            "network_args", f"has no effect for {network_module}", f"it is for {', '.join(kinds_with(spec))}"
        )
    if not acts_for(spec.only_for, architectures):
        families = ", ".join(FAMILIES[name].label for name in architectures)
        return warning("network_args", f"has no effect for {families}", f"it is for {labels(spec.only_for)}")
    if not spec.available:
        return error("network_args", "is not yet available", "leave it out")
    return None


def unfold(network_args: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The items that are declared, as values under their current names, and the rest as it is.

    The rest is what no field can show: unknown names, texts without "=", values that do not fit, items given again.
    """
    known: dict[str, Any] = {}
    rest = []
    for item in network_args:
        given, equals, text = item.partition("=")
        name = current_name(given.strip())
        value, problem = None, None
        if equals and name in specs(NetworkArguments) and name not in known:
            value, problem = read_item(name, text.strip())
        if value is None or problem:
            rest.append(item)
        else:
            known[name] = value
    return known, rest


def fold(known: Mapping[str, Any], rest: Sequence[str]) -> list[str]:
    """The list that `unfold` takes apart. Unset items (None, "") are left out."""
    return [f"{name}={value}" for name, value in known.items() if value not in (None, "")] + list(rest)
