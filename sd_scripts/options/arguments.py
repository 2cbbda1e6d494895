"""Reading `key=value` lists such as `optimizer_args`, and pointing at the nearest known name."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from sd_scripts.errors import ConfigError
from sd_scripts.options.class_files import Signature


def parse_arguments(option: str, items: Sequence[str] | None) -> dict[str, Any]:
    """Keyword arguments from texts like `betas=0.9,0.99` or `mode='min'`; values are Python literals or plain words.

    Raises ConfigError for a text without "=", a repeated name, and a value that is neither.
    """
    arguments: dict[str, Any] = {}
    for item in items or ():
        name, equals, text = (part.strip() for part in item.partition("="))
        if not equals or not name.isidentifier():
            raise ConfigError(option, item, "must have the form name=value")
        if name in arguments:
            raise ConfigError(option, item, f"{name} is given twice")
        arguments[name] = _literal(option, item, name, text)
    return arguments


def _literal(option: str, item: str, name: str, text: str) -> Any:
    if text.lower() in ("true", "false", "none"):
        text = text.capitalize()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError):
        if re.fullmatch(r"[\w:.,-]+", text):
            return text  # shells and lists typed in one line lose the quotes
        raise ConfigError(
            option, item, f"{text!r} is no Python value; write a text in quotes: {name}='{text}'"
        ) from None


def check_arguments(option: str, arguments: dict[str, Any], taken_by: str, signature: Signature) -> None:
    """Raise ConfigError if a name is not accepted, a required one is missing, or a number is given as a word."""
    unknown = [name for name in arguments if name not in signature.accepted]
    if unknown and not signature.is_open:
        hint = did_you_mean(unknown[0], signature.accepted)
        accepted = ", ".join(signature.accepted) or "nothing"
        raise ConfigError(option, unknown[0], f"{taken_by} has no such argument{hint}; it takes {accepted}")
    for name, value in arguments.items():
        if isinstance(value, str) and name in signature.not_text:
            raise ConfigError(
                option, f"{name}={value}", f"{taken_by} takes no text there, but a number or True or False"
            )
    missing = [name for name in signature.required if name not in arguments]
    if missing:
        raise ConfigError(option, list(arguments), f"{taken_by} needs {', '.join(missing)}; add {missing[0]}=…")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`, did you mean X?` for the nearest known name, compared without case; empty if none is near."""
    by_folded = {k.casefold(): k for k in known}
    nearest = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return f', did you mean "{by_folded[nearest[0]]}"?' if nearest else ""
