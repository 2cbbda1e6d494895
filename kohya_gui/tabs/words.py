"""One-line answers to a click."""

from __future__ import annotations

from html import escape


def bad(text: str) -> str:
    return f'<p class="said bad">{escape(text)}</p>'


def good(text: str) -> str:
    return f'<p class="said good">{escape(text)}</p>'
