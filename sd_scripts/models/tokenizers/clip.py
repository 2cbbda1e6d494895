"""CLIP's byte-pair tokenizer as SD 1.x and 2.x use it, in rows of 77 ids. Imports torch only when rows are made."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

from sd_scripts.errors import ConfigError
from sd_scripts.models.base import Tokenizer, Tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer as FastTokenizer

START, END = 49406, 49407
ROW = 77  # ids in a row: start, 75 of text, end
TEXT_PER_ROW = ROW - 2
LENGTHS = (75, 150, 225)

_WORDS = (  # CLIP's rule of what is one word
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)


class ClipTokenizer(Tokenizer):
    """Captions to rows of 77 ids: start, up to 75 tokens, end, padding.

    Args:
        max_token_length: 75, 150 or 225 tokens of a caption are used, in one, two or three rows.
        pad: id that fills a row: the end mark for SD 1.x, 0 for SD 2.x.

    Raises:
        ConfigError: another length.
    """

    def __init__(self, max_token_length: int | None = None, pad: int = END):
        length = max_token_length or TEXT_PER_ROW
        if length not in LENGTHS:
            raise ConfigError("max_token_length", max_token_length, "must be 75, 150 or 225")
        self._length = length
        self._pad = pad

    def __call__(self, captions: Sequence[str]) -> Tokens:
        """Ids (b, rows, 77) of int64."""
        import torch

        return Tokens((torch.tensor([self.rows(caption) for caption in captions], dtype=torch.int64),))

    def rows(self, caption: str) -> list[list[int]]:
        """The caption's rows of ids."""
        ids = self.ids(caption)[: self._length]
        return [self._row(ids[i : i + TEXT_PER_ROW]) for i in range(0, self._length, TEXT_PER_ROW)]

    def ids(self, caption: str) -> list[int]:
        """All ids of the caption, without start and end."""
        return clip_bpe().encode(clean(caption), add_special_tokens=False).ids

    def count(self, caption: str) -> int:
        """Tokens of the caption without start and end."""
        return len(self.ids(caption))

    @property
    def limit(self) -> int:
        """Tokens of a caption that are used."""
        return self._length

    def _row(self, ids: list[int]) -> list[int]:
        return [START, *ids, END, *[self._pad] * (TEXT_PER_ROW - len(ids))]


def clean(caption: str) -> str:
    """The caption as CLIP was trained to see it: broken characters mended, straight quotes, lower case."""
    import ftfy

    return " ".join(ftfy.fix_text(caption).split()).lower()


def clip_vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Token to id, and the merges in their order."""
    packed = resources.files(__package__).joinpath("clip_merges.txt.gz").read_bytes()
    merges = [tuple(line.split(" ")) for line in gzip.decompress(packed).decode("utf-8").splitlines()]
    symbols = _byte_symbols()
    tokens = [*symbols, *(s + "</w>" for s in symbols), *(a + b for a, b in merges), "<|startoftext|>", "<|endoftext|>"]
    return {token: i for i, token in enumerate(tokens)}, merges


def _byte_symbols() -> list[str]:
    """A visible character for each byte, in the order of their ids: visible bytes as they are, then the others."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    return [chr(b) for b in visible] + [chr(256 + n) for n in range(256 - len(visible))]


@lru_cache(maxsize=1)
def clip_bpe() -> FastTokenizer:
    """The byte-pair encoder, made once in each process (measured: 0.12 s)."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

    vocabulary, merges = clip_vocabulary()
    bpe = Tokenizer(models.BPE(vocabulary, merges, end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    bpe.add_special_tokens([AddedToken("<|startoftext|>", special=True), AddedToken("<|endoftext|>", special=True)])
    return bpe
