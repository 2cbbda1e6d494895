"""Rules: what is trained - adapters, whole models, a new word, ControlNets, concept pairs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sd_scripts.errors import ConfigError
from sd_scripts.options.families import FAMILIES, labels
from sd_scripts.options.implied import encoder_rates
from sd_scripts.options.methods import FullTraining, Leco, LLLite, Network, TextualInversion
from sd_scripts.options.network_arguments import module_name
from sd_scripts.options.problems import Problem, as_problem, error, note, warning
from sd_scripts.options.rules.base import Families, Rule, all_are, items, named_file

# Kinds of adapters that are made for some families. The others, networks.lora first, fit all or find out themselves.
MODULE_FAMILIES = {
    "networks.lora_flux": ("flux", "chroma"),
    "networks.oft_flux": ("flux", "chroma"),
    "networks.lora_sd3": ("sd3",),
    "networks.lora_lumina": ("lumina",),
    "networks.lora_anima": ("anima",),
    "networks.lora_hunyuan_image": ("hunyuan_image",),
    "networks.lora_fa": ("unet",),
    "networks.dylora": ("unet",),
    "networks.oft": ("unet",),
    "networks.loha": ("unet", "anima"),
    "networks.lokr": ("unet", "anima"),
}
# Text encoders that an adapter can have rates for, in the order of text_encoder_lr.
ENCODERS = {name: family.text_rates for name, family in FAMILIES.items()}
BLOCK_RATES = 23


def kind_of_adapter_fits(options: Network, families: Families) -> Iterator[Problem]:
    wanted = MODULE_FAMILIES.get(module_name(options.network_module))
    if wanted is None or any(FAMILIES[family].has(wanted) for family in families):
        return
    found = " or ".join(FAMILIES[family].label for family in families)
    yield error(
        "network_module",
        f"{options.network_module} is for {labels(wanted)}, not for {found}",
        'set it to "networks.lora", which fits every model',
    )


def network_parts_remain(options: Network) -> Iterator[Problem]:
    if options.network_train_unet_only and options.network_train_text_encoder_only:
        yield error("network_train_unet_only", "excludes network_train_text_encoder_only", "choose one of them")
    elif options.network_train_text_encoder_only and options.unet_lr:
        yield warning("unet_lr", "has no effect: the U-Net or transformer is not trained", "leave it out")
    elif options.network_train_unet_only and any(options.text_encoder_lr or ()):
        yield warning("text_encoder_lr", "has no effect: the text encoder is not trained", "leave it out")


def a_trainable_encoder_exists(options: Network, families: Families) -> Iterator[Problem]:
    """HunyuanImage's text encoders are never trained."""
    if not all_are(families, "hunyuan_image"):
        return
    if options.network_train_text_encoder_only:
        yield error("network_train_text_encoder_only", "leaves nothing to train with this model", "leave it off")
    if any(options.text_encoder_lr or ()):
        yield warning("text_encoder_lr", "has no effect: this model's text encoders are not trained", "leave it out")


def encoders_have_their_rates(options: Network, families: Families) -> Iterator[Problem]:
    given = options.text_encoder_lr or []
    most = max(ENCODERS[family] for family in families)
    if most and len(given) > most:
        have = f"{most} text encoder{'s' if most > 1 else ''}"
        reason = f"has {len(given)} values, but the model has {have}"
        yield as_problem(ConfigError("text_encoder_lr", given, reason))
    if any(rate < 0 for rate in given):
        yield as_problem(ConfigError("text_encoder_lr", given, "a learning rate cannot be negative"))


def t5_learns_with_clip(options: Network, families: Families) -> Iterator[Problem]:
    """A rate for T5 alone does nothing: it is trained only together with CLIP."""
    rates = list(encoder_rates(options))
    is_flux_or_sd3 = all_are(families, "flux", "sd3")
    if is_flux_or_sd3 and len(rates) > 1 and rates[-1] and not any(rates[:-1]):
        yield error("text_encoder_lr", "gives T5 a rate but none to CLIP", "give CLIP a rate too, or 0 to T5")


def network_files_fit(options: Network) -> Iterator[Problem]:
    if options.dim_from_weights and options.network_weights is None:
        yield error("dim_from_weights", "needs a LoRA file to take the rank from", "set network_weights")
    if options.network_weights is not None:
        yield from named_file("network_weights", options.network_weights)
    for path in options.base_weights or []:
        yield from named_file("base_weights", path)
    if len(options.base_weights_multiplier or []) > len(options.base_weights or []):
        yield error("base_weights_multiplier", "has more entries than base_weights", "give one strength per file")


def alpha_fits_the_kind(options: Network) -> Iterator[Problem]:
    """Orthogonal adapters read alpha as how far they may turn."""
    if module_name(options.network_module) in ("networks.oft", "networks.oft_flux") and options.network_alpha >= 1:
        yield warning("network_alpha", f"{options.network_alpha:g} hardly limits OFT", "about 0.001 is usual")


def dylora_ranks_fit(options: Network) -> Iterator[Problem]:
    if module_name(options.network_module) != "networks.dylora":
        return
    given, rank = items(options.network_args), options.network_dim or 4
    unit, conv = given.get("unit", "1"), given.get("conv_dim")
    if unit.isdecimal() and int(unit) and rank % int(unit):
        yield error("network_args", f"unit={unit} does not divide the rank {rank}", "choose one that does")
    if conv and conv.isdecimal() and int(conv) != rank:
        yield error("network_args", f"conv_dim={conv} must equal the rank {rank} with DyLoRA", "make them equal")


def run_starts_before_its_end(options: Network) -> Iterator[Problem]:
    if options.initial_step is None:
        return
    if options.initial_epoch is not None:
        yield warning("initial_epoch", "not used, because initial_step is set", "leave one of the two out")
    length = getattr(options, "max_train_steps", None)
    if getattr(options, "max_train_epochs", None) is None and length is not None and options.initial_step >= length:
        yield error(
            "initial_step", f"{options.initial_step} is not before the end of the run, step {length}", "lower it"
        )


def a_rate_is_left(options: FullTraining, families: Families) -> Iterator[Problem]:
    """Rate 0 leaves the main model as it is; then an encoder has to learn."""
    own = ("learning_rate_te", "learning_rate_te1", "learning_rate_te2", "learning_rate_te3")
    own += ("self_attn_lr", "cross_attn_lr", "mlp_lr", "mod_lr", "llm_adapter_lr")
    rates = [getattr(options, name) for name in own if getattr(options, name)]
    if getattr(options, "learning_rate", 1.0) == 0 and not rates and not options.block_lr:
        yield error("learning_rate", "0 leaves nothing to train", "give a rate, such as 1e-5")


def blocks_have_their_rates(options: FullTraining, families: Families) -> Iterator[Problem]:
    if options.block_lr is None or not all_are(families, "sdxl"):
        return
    texts = options.block_lr.split(",")
    try:
        rates = [float(text) for text in texts]
    except ValueError:
        rates = []
    if len(rates) != BLOCK_RATES or min(rates) < 0:
        yield error("block_lr", f"is not {BLOCK_RATES} rates", f"write {BLOCK_RATES} numbers, separated by commas")


def a_new_word_is_given(options: TextualInversion) -> Iterator[Problem]:
    if options.token_string is None:
        yield error("token_string", "no new word is given", "write the word that shall stand for the pictures")
    if options.init_word is None and options.weights is None:
        yield note("init_word", "without one the start is random", "give a word that comes near")
    if options.weights is not None:
        yield from named_file("weights", options.weights)
    if options.use_object_template and options.use_style_template:
        yield warning("use_style_template", "not used, because use_object_template is set", "choose one of them")


def control_picture_width_fits(options: LLLite) -> Iterator[Problem]:
    if options.cond_emb_dim % 2:
        yield error("cond_emb_dim", f"{options.cond_emb_dim} is not even", f"set it to {options.cond_emb_dim + 1}")
    if options.network_weights is not None:
        yield from named_file("network_weights", options.network_weights)


def prompt_pairs_are_given(options: Leco) -> Iterator[Problem]:
    if options.prompts_file is None:
        yield error("prompts_file", "no prompt pairs are given", "name the file that holds them")
    elif not Path(options.prompts_file).is_file():
        yield error("prompts_file", f"{options.prompts_file}: no such file", "check the path")


RULES: tuple[Rule, ...] = (
    kind_of_adapter_fits,
    network_parts_remain,
    a_trainable_encoder_exists,
    encoders_have_their_rates,
    t5_learns_with_clip,
    network_files_fit,
    alpha_fits_the_kind,
    dylora_ranks_fit,
    run_starts_before_its_end,
    a_rate_is_left,
    blocks_have_their_rates,
    a_new_word_is_given,
    control_picture_width_fits,
    prompt_pairs_are_given,
)
