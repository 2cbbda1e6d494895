"""CLIP's byte-pair tokenizer as SD 1.x and 2.x use it, in rows of 77 ids. Imports torch only when rows are made."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

from sd_scripts.errors import ConfigError
from sd_scripts.models.base import Tokenizer, Tokens
from sd_scripts.models.tokenizers.emphasis import weighted_pieces

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
        pads: of each text encoder the id that fills a row: the end mark for CLIP, 0 for OpenCLIP.
        reads_weights: (word:1.3), (word) and [word] are emphasis.

    Raises:
        ConfigError: another length.
    """

    def __init__(self, max_token_length: int | None = None, *pads: int, reads_weights: bool = False):
        length = max_token_length or TEXT_PER_ROW
        if length not in LENGTHS:
            raise ConfigError("max_token_length", max_token_length, "must be 75, 150 or 225")
        self._length = length
        self._pads = pads or (END,)
        self._reads_weights = reads_weights

    def __call__(self, captions: Sequence[str]) -> Tokens:
        """Ids (b, rows, 77) of int64 for each text encoder."""
        import torch

        weighted = [self._weighted_ids(caption) for caption in captions]
        ids = tuple(torch.tensor([self._rows(ids, pad) for ids, _ in weighted]) for pad in self._pads)
        if not self._reads_weights:
            return Tokens(ids)
        rows = [[[1.0, *row, 1.0] for row in self._split(weights, 1.0)] for _, weights in weighted]
        return Tokens(ids, torch.tensor(rows, dtype=torch.float32))

    def rows(self, caption: str) -> list[list[int]]:
        """The caption's rows of ids, for the first text encoder."""
        return self._rows(self._weighted_ids(caption)[0], self._pads[0])

    def ids(self, caption: str) -> list[int]:
        """All ids of the caption, without start and end."""
        return self._weighted_ids(caption)[0]

    def count(self, caption: str) -> int:
        """Tokens of the caption without start and end."""
        return len(self.ids(caption))

    @property
    def limit(self) -> int:
        """Tokens of a caption that are used."""
        return self._length

    def _weighted_ids(self, caption: str) -> tuple[list[int], list[float]]:
        pieces = weighted_pieces(caption) if self._reads_weights else [(caption, 1.0)]
        ids: list[int] = []
        weights: list[float] = []
        for text, weight in pieces:
            found = clip_bpe().encode(clean(text), add_special_tokens=False).ids
            ids += found
            weights += [weight] * len(found)
        return ids, weights

    def _rows(self, ids: list[int], pad: int) -> list[list[int]]:
        used = ids[: self._length]
        texts = [used[i : i + TEXT_PER_ROW] for i in range(0, self._length, TEXT_PER_ROW)]
        return [[START, *text, END, *[pad] * (TEXT_PER_ROW - len(text))] for text in texts]

    def _split(self, weights: list[float], pad: float) -> list[list[float]]:
        """The weights of each row's text and padding; a row's end mark has that of the padding."""
        used = weights[: self._length] + [pad] * (self._length - len(weights))
        return [used[i : i + TEXT_PER_ROW] for i in range(0, self._length, TEXT_PER_ROW)]


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
