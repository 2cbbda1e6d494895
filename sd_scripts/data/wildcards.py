"""Wildcards in captions: `{a|b|c}` stands for one of its choices, `{{` and `}}` for braces. They may be nested."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

_PIECES = re.compile(r"\{\{|\}\}|[{}|]|[^{}|]+")


def choose_wildcards(text: str, draws: random.Random) -> str:
    """The text with one choice drawn for each wildcard; a brace without partner stays as it is."""
    return _resolve(text, draws)[0]


def has_unbalanced_braces(text: str) -> bool:
    """Whether a brace has no partner and would be trained as text."""
    return _resolve(text, random.Random(0))[1]


def _resolve(text: str, draws: random.Random) -> tuple[str, bool]:
    stack: list[list[str]] = [[""]]  # of each open wildcard the choices so far; at the bottom the text itself
    literal_opens = [0]  # in each of them, `{{` that are still open
    has_stray = False
    for piece in _pieces(text, literal_opens):
        choices = stack[-1]
        match piece:
            case "{{" | "}}":
                choices[-1] += piece[0]
                literal_opens[-1] += 1 if piece == "{{" else -1
            case "{":
                stack.append([""])
                literal_opens.append(0)
            case "|" if len(stack) > 1:
                choices.append("")
            case "}" if len(stack) > 1:
                stack.pop()
                literal_opens.pop()
                stack[-1][-1] += draws.choice(choices) if choices != [""] else "{}"
            case _:
                has_stray |= piece == "}"
                choices[-1] += piece
    has_stray |= len(stack) > 1
    while len(stack) > 1:  # never closed
        unclosed = stack.pop()
        stack[-1][-1] += "{" + "|".join(unclosed)
    return stack[0][0], has_stray


def _pieces(text: str, literal_opens: list[int]) -> Iterator[str]:
    """Text split at braces and bars. `}}` inside a wildcard closes it and the one around it, unless a `{{` is open."""
    for piece in _PIECES.findall(text):
        closes_wildcards = piece == "}}" and len(literal_opens) > 1 and literal_opens[-1] == 0
        yield from ("}", "}") if closes_wildcards else (piece,)
