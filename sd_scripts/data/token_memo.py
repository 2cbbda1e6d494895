"""Token ids of captions that come again and again: made once, since reading cached latents takes less time than that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sd_scripts.models.base import Tokenizer, Tokens

MOST = 20_000  # captions that are remembered, about 2 kB each


class TokenMemo:
    """A tokenizer that remembers; goes to other processes without its memory."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._known: dict[str, Tokens] = {}

    def __call__(self, captions: Sequence[str]) -> Tokens:
        rows = [self._row(caption) for caption in captions]
        if len(rows) == 1:
            return rows[0].mapped(torch.clone)  # what is remembered stays as it is
        ids = tuple(torch.cat(column) for column in zip(*(row.ids for row in rows), strict=True))
        return replace(rows[0], ids=ids, weights=_joined_weights(rows))

    def __getstate__(self) -> dict[str, object]:
        return {"_tokenizer": self._tokenizer, "_known": {}}

    def _row(self, caption: str) -> Tokens:
        row = self._known.get(caption)
        if row is None:
            if len(self._known) >= MOST:
                self._known.clear()
            row = self._known[caption] = self._tokenizer([caption])
        return row


def _joined_weights(rows: list[Tokens]) -> Tensor | None:
    """Weights of all rows; rows without emphasis count in full."""
    if all(row.weights is None for row in rows):
        return None
    return torch.cat([torch.ones(row.ids[0].shape) if row.weights is None else row.weights for row in rows])
