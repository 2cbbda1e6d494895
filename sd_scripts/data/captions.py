"""Captions: read from the files beside the pictures, and made into the text of one use.

The order in which a caption is processed: one line is chosen, prefix and suffix are put around it, the whole may be
dropped, wildcards are resolved, tags are split off, fewer in the warm-up, shuffled, dropped, joined, words replaced.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sd_scripts.data.wildcards import choose_wildcards
from sd_scripts.errors import UserError
from sd_scripts.options.dataset import Captions


@dataclass(frozen=True)
class Progress:
    """Where training is when a caption is used: epochs count from 1, steps from 0."""

    epoch: int
    step: int
    total_steps: int


def decode_caption(data: bytes, path: Path | str) -> str:
    """The text of a caption file: UTF-8 or UTF-16 with a byte-order mark, any line ends.

    Raises:
        UserError: the bytes are neither.
    """
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as problem:
        raise UserError(f"caption file {path} is not UTF-8 text: save it as UTF-8") from problem


def caption_lines(text: str) -> tuple[str, ...]:
    """The lines of a caption file that hold text, without blanks around them."""
    return tuple(line.strip() for line in text.split("\n") if line.strip())


def caption_stems(stem: str) -> tuple[str, ...]:
    """The names, without suffix, that a caption file of a picture may have; the first that exists counts.

    The face tool appends `_x_y_w_h` to pictures; a caption of the original then still belongs to the picture.
    """
    parts = stem.split("_")
    has_face_box = len(parts) >= 5 and all(part.isdecimal() for part in parts[-4:])
    return (stem, "_".join(parts[:-4])) if has_face_box else (stem,)


def normal_extension(extension: str) -> str:
    """ ".txt" for "txt" and ".txt"."""
    return extension if extension.startswith(".") else f".{extension}"


def caption_for_use(
    lines: Sequence[str],
    options: Captions,
    progress: Progress,
    draws: random.Random,
    replacements: Mapping[str, str | Sequence[str]] | None = None,
) -> str:
    """The caption as one use of a sample trains it.

    Args:
        lines: lines of the caption file. Without wildcards the first counts, with them one is drawn.
        draws: source of every random choice made here.
        replacements: words to replace; under the key "" a text for the whole caption, or several of which one is drawn.
    """
    line = _one_line(lines, options, draws)
    text = " ".join(part for part in (options.caption_prefix, line, options.caption_suffix) if part)
    if _is_dropped(options, progress, draws):
        return ""
    if options.enable_wildcard:
        text = choose_wildcards(text, draws)
    if _acts_on_tags(options, text):
        text = _process_tags(text, options, progress, draws)
    if options.secondary_separator:
        text = text.replace(options.secondary_separator, options.caption_separator)
    return _replace(text, replacements or {}, draws)


def draws_at_random(options: Captions) -> bool:
    """Whether `caption_for_use` draws anything for captions with these options, replacements apart."""
    return bool(
        options.shuffle_caption
        or options.enable_wildcard
        or options.caption_dropout_rate
        or options.caption_tag_dropout_rate
    )


def tags_of(lines: Sequence[str], options: Captions) -> list[str]:
    """Every tag of a caption in lower case, as it is trained: for the statistics that are stored with a model."""
    found: list[str] = []
    for line in lines if options.enable_wildcard else lines[:1]:
        text = " ".join(part for part in (options.caption_prefix, line, options.caption_suffix) if part)
        for separator in (options.keep_tokens_separator, options.secondary_separator):
            if separator:
                text = text.replace(separator, options.caption_separator)
        found += [tag.lower() for tag in _split(text, options.caption_separator)]
    return found


def _one_line(lines: Sequence[str], options: Captions, draws: random.Random) -> str:
    if not lines:
        return ""
    return draws.choice(lines) if options.enable_wildcard and len(lines) > 1 else lines[0]


def _is_dropped(options: Captions, progress: Progress, draws: random.Random) -> bool:
    every = options.caption_dropout_every_n_epochs
    by_epoch = every > 0 and progress.epoch % every == 0
    by_chance = options.caption_dropout_rate > 0 and draws.random() < options.caption_dropout_rate
    return by_epoch or by_chance


def _acts_on_tags(options: Captions, text: str) -> bool:
    has_marker = bool(options.keep_tokens_separator) and options.keep_tokens_separator in text
    return (
        has_marker or options.shuffle_caption or options.token_warmup_step > 0 or options.caption_tag_dropout_rate > 0
    )


def _process_tags(text: str, options: Captions, progress: Progress, draws: random.Random) -> str:
    first, flexible, last = _split_kept(text, options)
    if options.token_warmup_step > 0:
        flexible = flexible[: _warm_up_count(len(flexible), options, progress)]
    if options.shuffle_caption:
        draws.shuffle(flexible)
    if options.caption_tag_dropout_rate > 0:
        flexible = [tag for tag in flexible if draws.random() >= options.caption_tag_dropout_rate]
    return f"{options.caption_separator.strip()} ".join(first + flexible + last)


def _split_kept(text: str, options: Captions) -> tuple[list[str], list[str], list[str]]:
    """Tags that stay at the start, tags that may move or go, tags that stay at the end."""
    marker, separator = options.keep_tokens_separator, options.caption_separator
    if marker and marker in text:
        first, flexible, *last = text.split(marker, 2)
        return _split(first, separator), _split(flexible, separator), _split("".join(last), separator)
    tags = _split(text, separator)
    return tags[: options.keep_tokens], tags[options.keep_tokens :], []


def _split(text: str, separator: str) -> list[str]:
    return [tag.strip() for tag in text.split(separator) if tag.strip()]


def _warm_up_count(tags: int, options: Captions, progress: Progress) -> int:
    """How many of the flexible tags are in use: grows evenly from token_warmup_min to all."""
    end = options.token_warmup_step
    if end < 1:
        end = math.floor(end * progress.total_steps)
    if progress.step >= end:
        return tags
    return options.token_warmup_min + math.floor(progress.step * (tags - options.token_warmup_min) / end)


def _replace(text: str, replacements: Mapping[str, str | Sequence[str]], draws: random.Random) -> str:
    for word, new in replacements.items():
        chosen = new if isinstance(new, str) else draws.choice(list(new))
        text = text.replace(word, chosen) if word else chosen
    return text
