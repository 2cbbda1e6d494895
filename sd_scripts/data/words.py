"""Counts, names and lists in messages."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """ "1 picture", "2 pictures"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def name_some(items: Iterable[object], limit: int = 5) -> str:
    """A few names and the number of the others."""
    names = [shown(item) for item in items]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def shown(name: object) -> str:
    """A name or path that may hold anything, fit for one line of a message: line ends and bytes that are no text escaped."""
    text = str(name)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
