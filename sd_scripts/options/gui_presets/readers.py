"""Values of preset files, which hold numbers as text, whole numbers as floats, 0 and 1 for false and true, and null.

A reader gives the value, None for one that is not set, and raises `Unreadable` for one that cannot be meant.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from typing import Any

from sd_scripts.options.gui_presets.findings import shown

Reader = Callable[[Any], Any]
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_FLAGS = {
    "true": True, "yes": True, "on": True, "1": True, "1.0": True,
    "false": False, "no": False, "off": False, "0": False, "0.0": False,
}  # fmt: skip


class Unreadable(Exception):
    """A value that is not what its key takes; the text says what it should be."""

    def __init__(self, value: Any, wanted: str):
        super().__init__(f"{shown(value)} is not {wanted}")


def is_blank(value: Any) -> bool:
    """Whether nothing is set: null, blank text, or the text "None" that some programs write for null."""
    return value is None or (isinstance(value, str) and value.strip() in ("", "None", "null"))


def number(value: Any) -> int | float | None:
    """A number, also as text; false and true count as 0 and 1, as the forms that wrote them count them."""
    if is_blank(value):
        return None
    found = value
    if isinstance(value, str) and len(value) <= 400 and _NUMBER.fullmatch(value.strip()):
        found = float(value) if re.search(r"[.eE]", value) else int(value)
    if isinstance(value, bool):
        return int(value)
    if not isinstance(found, (int, float)) or not _is_finite(found):
        raise Unreadable(value, "a number")
    return found


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond the floats
        return False


def whole(value: Any) -> int | None:
    """A whole number, also as text or as a float such as 64.0."""
    found = number(value)
    if found is None:
        return None
    if isinstance(found, float) and not found.is_integer():
        raise Unreadable(value, "a whole number")
    if abs(found) >= 2**63:  # no counter, size or seed of a trainer goes further
        raise Unreadable(value, "a whole number below 2^63")
    return int(found)


def flag(value: Any) -> bool | None:
    """True or false, also as 0 and 1 or as text."""
    if is_blank(value):
        return None
    if isinstance(value, str) and value.strip().lower() in _FLAGS:
        return _FLAGS[value.strip().lower()]
    if isinstance(value, (bool, int, float)) and value in (0, 1):
        return bool(value)
    raise Unreadable(value, "true or false")


def text(value: Any) -> str | None:
    """A text; a number stands for its digits, false for nothing."""
    if is_blank(value) or value is False:
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and _is_finite(value):
        return str(int(value) if float(value).is_integer() else value)
    raise Unreadable(value, "a text")


def word(value: Any) -> str | None:
    """A text without blanks around it: a name, a choice."""
    found = text(value)
    return found and found.strip()


def multiline(value: Any) -> str | None:
    """A text of several lines; a list of texts has one a line."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(value) or None
    return text(value)


def size(value: Any) -> str | None:
    """A picture size in pixels: "W,H" or "N"; "W x H", a number and a list are taken too."""
    if isinstance(value, list):
        sides = [str(whole(item)) for item in value]
    elif (found := text(value)) is None:
        return None
    else:
        sides = [side.strip() for side in re.split(r"[,xX×]", found)]
    if len(sides) not in (1, 2) or not all(re.fullmatch(r"\d{1,6}", side) for side in sides):
        raise Unreadable(value, 'a size such as "1024,1024"')
    return ",".join(sides)


def rates(value: Any) -> list[float] | None:
    """One learning rate or several, as a list."""
    if not isinstance(value, list):
        found = number(value)
        return None if found is None else [float(found)]
    found = [number(item) for item in value]
    if None in found:
        raise Unreadable(value, "a list of numbers")
    return [float(item) for item in found if item is not None] or None


def arguments(value: Any) -> list[str] | None:
    """Arguments such as `decouple=True "betas=0.9, 0.99"`: split at blanks outside quotes; the quotes are left out."""
    if isinstance(value, list):
        if not all(isinstance(item, str) for item in value):
            raise Unreadable(value, "a list of texts")
        return [item for item in value if item.strip()] or None
    found = text(value)
    return None if found is None else split(found, quotes='"') or None


def split(line: str, quotes: str = "\"'") -> list[str]:
    """A line split at blanks outside quotes. Backslashes are no escapes: they are what Windows paths are made of."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    lexer.escape = ""
    lexer.quotes = quotes
    try:
        return list(lexer)
    except ValueError:  # a quote that is not closed
        return re.sub(f"[{quotes}]", "", line).split()
