"""What the reading of a file found, in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

FindingKind = Literal["recognised", "converted", "renamed", "ignored", "invalid"]


@dataclass(frozen=True)
class Finding:
    """One thing that the reader of a file should know; `key` is the file's own key, "" for the file as a whole."""

    kind: FindingKind
    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


def shown(value: Any) -> str:
    """A value for a message, cut short; secrets are never passed here."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits; lists in lists in lists
        return f"a very long {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}…"
