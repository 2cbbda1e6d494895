"""What one option means for another. Options are never changed after they were checked: who reads them asks here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sd_scripts.models.family import DENOISER
from sd_scripts.options.dataset import Caching
from sd_scripts.options.families import acts_for
from sd_scripts.options.memory import Memory, Precision
from sd_scripts.options.methods import FullTraining, Network, TextualInversion
from sd_scripts.options.schema import specs

if TYPE_CHECKING:
    from sd_scripts.models.family import ModelFamily
    from sd_scripts.options.recipes import CommonOptions

SPLIT_MODE_BLOCKS = 18  # what the older switch stands for
WITHOUT_PLAIN_8_BITS = ("anima", "hunyuan_image")


def caches_latents(options: Caching) -> bool:
    """Whether pictures are encoded once at the start: a cache on disk is a cache."""
    return options.cache_latents or options.cache_latents_to_disk


def caches_text(options: Caching) -> bool:
    """Whether captions are encoded once at the start, by all text encoders or by T5 alone."""
    return caches_all_text(options) or (isinstance(options, FullTraining) and options.use_t5xxl_cache_only)


def caches_all_text(options: Caching) -> bool:
    """Whether captions are encoded once at the start by all text encoders that are not trained."""
    return options.cache_text_encoder_outputs or options.cache_text_encoder_outputs_to_disk


def checkpoints_gradients(options: CommonOptions) -> bool:
    """Whether activations are computed twice: keeping checkpoints in main memory means it too."""
    return options.gradient_checkpointing or options.cpu_offload_checkpointing or options.unsloth_offload_checkpointing


def swapped_blocks(options: Memory) -> int:
    """Blocks that live in main memory, by the current option or by one of the older ways to give their number."""
    if options.blocks_to_swap is not None:
        return options.blocks_to_swap
    older = (options.double_blocks_to_swap or 0) + (options.single_blocks_to_swap or 0) // 2
    return older or (SPLIT_MODE_BLOCKS if options.split_mode else 0)


def wanted_blocks(options: Memory, family: str) -> int:
    """Blocks of a model of this family that live in main memory; the older ways to say so are FLUX's."""
    return swapped_blocks(options) if acts_for(("flux", "chroma"), (family,)) else options.blocks_to_swap or 0


def keeps_base_in_8_bits(options: Precision, family: str) -> bool:
    """Whether the frozen U-Net or transformer is kept in 8-bit floats; with scales where the family has those."""
    if family in WITHOUT_PLAIN_8_BITS:
        return options.fp8_scaled and family == "hunyuan_image"
    return options.fp8_base or options.fp8_base_unet


def trains_text_encoders(options: CommonOptions) -> bool:
    """Whether a text encoder, or an embedding in it, learns. A rate of 0 leaves an encoder as it is."""
    if isinstance(options, TextualInversion):
        return True
    if isinstance(options, Network):
        return not options.network_train_unet_only and any(encoder_rates(options))
    if isinstance(options, FullTraining):
        one, first, second = options.learning_rate_te, options.learning_rate_te1, options.learning_rate_te2
        own = (one,) if one is not None else (first, second)
        return options.train_text_encoder and any(options.learning_rate if rate is None else rate for rate in own)
    return False


def full_rates(options: FullTraining, family: ModelFamily) -> dict[str, float]:
    """Part to the rate at which a trainer of whole models trains it; 0: it stays as it is."""
    encoders = [part.name for part in family.parts if part.is_text_encoder]
    own = (options.learning_rate_te1, options.learning_rate_te2, options.learning_rate_te3)
    if len(encoders) == 1:
        own = (options.learning_rate_te,)
    learns = options.train_text_encoder and family.has(specs(type(options))["train_text_encoder"].only_for)
    rates = {DENOISER: options.learning_rate}
    for number, encoder in enumerate(encoders):
        rate = options.learning_rate if own[number] is None else own[number]
        rates[encoder] = rate if learns and (number < 2 or options.train_t5xxl) else 0.0
    return rates


def block_rates(options: FullTraining, family: ModelFamily) -> list[float] | None:
    """The rates that take the place of the denoiser's own, one for each block; None where they are not given."""
    if options.block_lr is None or not family.has(specs(type(options))["block_lr"].only_for):
        return None
    return [float(text) for text in options.block_lr.split(",")]


def encoder_rates(options: Network) -> Sequence[float]:
    """Rates that the options give the text encoders of an adapter; the last also serves those after it."""
    return options.text_encoder_lr or [options.learning_rate]
