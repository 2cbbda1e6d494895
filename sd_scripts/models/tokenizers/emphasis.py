"""Emphasis in captions: (word:1.3), (word) and [word]."""

from __future__ import annotations

import re
from math import prod

MORE, LESS = 1.1, 1 / 1.1  # of a round and of a square pair of brackets without a number
_PIECE = re.compile(
    r"\\(?P<literal>[\\()\[\]])"
    r"|(?P<open>[(\[])"
    r"|:\s*(?P<weight>[+-]?(?:\d+\.?\d*|\.\d+))\s*\)"
    r"|(?P<close>[)\]])"
    r"|(?P<text>[^\\()\[\]:]+|.)",
    re.DOTALL,
)
_PAIRS = {")": "(", "]": "["}


def weighted_pieces(caption: str) -> list[tuple[str, float]]:
    """The caption's text without its marks, in pieces of one weight each.

    A backslash makes a bracket plain text. A bracket that is never closed acts up to the end; one that was never opened is
    text.
    """
    texts: list[str] = []
    factors: list[list[float]] = []
    opened: list[tuple[str, int]] = []  # the bracket, and the first piece inside it

    def multiply(bracket: str, factor: float) -> bool:
        """Close the innermost bracket of this kind; False if there is none."""
        place = next((i for i in reversed(range(len(opened))) if opened[i][0] == bracket), None)
        if place is None:
            return False
        for piece in factors[opened.pop(place)[1] :]:
            piece.append(factor)
        return True

    for found in _PIECE.finditer(caption):
        mark = found.lastgroup
        if mark == "open":
            opened.append((found[0], len(texts)))
            continue
        if mark == "weight" and multiply("(", float(found["weight"])):
            continue
        if mark == "close" and multiply(_PAIRS[found[0]], MORE if found[0] == ")" else LESS):
            continue
        texts.append(found["literal"] or found[0])
        factors.append([])
    for bracket, _ in list(opened):
        multiply(bracket, MORE if bracket == "(" else LESS)
    return _joined(texts, [prod(piece) for piece in factors]) or [("", 1.0)]


def _joined(texts: list[str], weights: list[float]) -> list[tuple[str, float]]:
    pieces: list[tuple[str, float]] = []
    for text, weight in zip(texts, weights, strict=True):
        if pieces and pieces[-1][1] == weight:
            pieces[-1] = (pieces[-1][0] + text, weight)
        else:
            pieces.append((text, weight))
    return pieces
