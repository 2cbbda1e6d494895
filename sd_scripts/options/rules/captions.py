"""Rules: captions, and what cached captions allow.

A caption that is dropped as a whole is one more cached caption, the empty one, so dropping captions goes with the cache.
Dropping, shuffling or drawing their parts does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from sd_scripts.options.dataset import Caching, Captions
from sd_scripts.options.implied import caches_all_text, caches_text, trains_text_encoders
from sd_scripts.options.methods import FullTraining, Network, TextualInversion
from sd_scripts.options.problems import Problem, error, warning
from sd_scripts.options.rules.base import Families, Rule, all_are, items, some_are

CHANGE_THE_CAPTION = {
    "shuffle_caption": "shuffles the tags",
    "caption_tag_dropout_rate": "drops tags",
    "token_warmup_step": "changes the number of tags",
    "enable_wildcard": "draws a text",
}
ONE_ENCODER_STATE = ("sd1", "sd2", "sdxl", "lumina", "anima")  # captions are cached for all encoders at once


def cached_captions_do_not_change(options: Caching, families: Families) -> Iterator[Problem]:
    if not caches_text(options):
        return
    for name, what in CHANGE_THE_CAPTION.items():
        if getattr(options, name, False):
            yield error(
                name,
                f"{what} at each use, which cached captions cannot",
                f"set cache_text_encoder_outputs = false, or leave {name} off",
            )


def cached_encoders_are_not_trained(options: Caching, families: Families) -> Iterator[Problem]:
    """FLUX and SD 3 adapters may train CLIP: then only what T5 says is cached."""
    if not caches_all_text(options) or not trains_text_encoders(options):
        return
    remedy = "set cache_text_encoder_outputs = false"
    if isinstance(options, TextualInversion):
        yield error("cache_text_encoder_outputs", "the new word changes what the text encoders say", remedy)
    elif isinstance(options, Network) and all_are(families, *ONE_ENCODER_STATE):
        yield error(
            "cache_text_encoder_outputs",
            "the text encoder is trained, so what it says changes",
            f"set network_train_unet_only = true, or {remedy.removeprefix('set ')}",
        )
    elif isinstance(options, FullTraining) and all_are(families, "clip", "sd3") and not options.use_t5xxl_cache_only:
        yield error(
            "train_text_encoder",
            "what the text encoders say is cached, so they cannot be trained",
            "set it to false" + ("; or use_t5xxl_cache_only = true" if all_are(families, "sd3") else ""),
        )


def cached_t5_is_not_trained(options: Caching, families: Families) -> Iterator[Problem]:
    if not caches_text(options) or not some_are(families, "t5"):
        return
    remedy = "set it to false, or do not cache captions"
    if isinstance(options, FullTraining) and options.train_t5xxl and all_are(families, "sd3"):
        yield error("train_t5xxl", "what T5 says is cached, so it cannot be trained", remedy)
    if isinstance(options, Network) and items(options.network_args).get("train_t5xxl", "").lower() == "true":
        yield error("network_args", "train_t5xxl=True: what T5 says is cached, so it cannot be trained", remedy)


def t5_is_trained_with_the_others(options: FullTraining, families: Families) -> Iterator[Problem]:
    if options.train_t5xxl and not options.train_text_encoder and all_are(families, "sd3"):
        yield error("train_t5xxl", "needs train_text_encoder", "set train_text_encoder = true, or leave it off")


def captions_of_a_new_word(options: TextualInversion) -> Iterator[Problem]:
    """The captions of textual inversion hold the new word each time."""
    for name in ("caption_dropout_rate", "caption_dropout_every_n_epochs", "caption_tag_dropout_rate"):
        if getattr(options, name, 0):
            yield warning(name, "has no effect: the new word must stay in the captions", "leave it out")
    if getattr(options, "weighted_captions", False):
        yield warning("weighted_captions", "has no effect for textual inversion", "leave it out")


def warmup_has_room(options: Captions) -> Iterator[Problem]:
    """Fewer than all tags are used up to a step that the run must reach."""
    steps, length = options.token_warmup_step, getattr(options, "max_train_steps", None)
    is_counted = getattr(options, "max_train_epochs", None) is None and length is not None
    if is_counted and steps >= 1 and steps > length:
        yield warning(
            "token_warmup_step", f"{steps:g} lies behind the end of the run, step {length}", "make it smaller"
        )


RULES: tuple[Rule, ...] = (
    cached_captions_do_not_change,
    cached_encoders_are_not_trained,
    cached_t5_is_not_trained,
    t5_is_trained_with_the_others,
    captions_of_a_new_word,
    warmup_has_room,
)
