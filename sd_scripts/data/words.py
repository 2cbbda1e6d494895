"""Counts and lists in messages."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """ "1 picture", "2 pictures"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def name_some(items: Iterable[object], limit: int = 5) -> str:
    """A few names and the number of the others."""
    names = [str(item) for item in items]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
