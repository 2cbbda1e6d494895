"""JSON as people write it: comments, trailing commas, single quotes, a byte-order mark, NaN, True and None are all read.

What cannot be read is a UserError with line and column.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from sd_scripts.errors import UserError
from sd_scripts.options.small_files import read_bytes

MAX_DEPTH = 64
_MARKS = (  # UTF-32 first: its mark begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WORDS = {
    "true": True, "True": True, "false": False, "False": False, "null": None, "None": None, "undefined": None,
    "NaN": math.nan, "nan": math.nan, "Infinity": math.inf,
}  # fmt: skip
_BLANK = re.compile(r"[ \t\r\n\f\v\u00a0\u2028\u2029\ufeff]+|//[^\n]*|#[^\n]*|/\*.*?\*/", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_PLAIN = {'"': re.compile(r'[^"\\\r\n]*'), "'": re.compile(r"[^'\\\r\n]*")}
_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def read_json(path: Path) -> tuple[Any, tuple[str, ...]]:
    """The file's content, and the keys that an object holds twice (the last one counts).

    Raises:
        UserError: missing, unreadable, too large, not text, not JSON (with line and column).
    """
    return parse(_text(read_bytes(path), path), str(path))


def parse(text: str, origin: str) -> tuple[Any, tuple[str, ...]]:
    """As `read_json`, for a text; `origin` is named in errors."""
    repeated: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(items)
        if len(content) < len(items):
            counts = Counter(key for key, _ in items)
            repeated.extend(key for key, count in counts.items() if count > 1)
        return content

    try:
        content = json.loads(text, object_pairs_hook=pairs)
        is_plain = _is_flat_enough(content)
    except (ValueError, RecursionError):  # ValueError also: a whole number of thousands of digits
        is_plain = False
    if not is_plain:
        content, repeated = _Reader(text, origin).read()
    return _whole_characters(content, text), tuple(repeated)


def _is_flat_enough(content: Any) -> bool:
    """Whether nothing lies deeper than MAX_DEPTH: what reads the content may then go through it by recursion."""
    level = [content]
    for _ in range(MAX_DEPTH + 1):
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, (dict, list))]
        level = [value for values in inner for value in values]
        if not level:
            return True
    return False


def _whole_characters(content: Any, text: str) -> Any:
    """Escaped halves of characters (\\ud83d) are put together; a half without the other, which no file takes, is replaced."""
    if "\\ud" not in text and "\\uD" not in text:
        return content
    if isinstance(content, str):
        return content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(content, list):
        return [_whole_characters(item, text) for item in content]
    if isinstance(content, dict):
        return {_whole_characters(key, text): _whole_characters(value, text) for key, value in content.items()}
    return content


def _text(data: bytes, path: Path) -> str:
    mark, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", "utf-8"))
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as failure:
        raise UserError(f"{path}: not {encoding.upper()} text (byte {failure.start}); save it again as UTF-8") from None
    if "\0" in text:
        raise UserError(f"{path}: not UTF-8 text (it holds zero bytes); save it again as UTF-8")
    return text


class _Reader:
    """Reads one text from front to back; `at` is the place of the next character."""

    def __init__(self, text: str, origin: str):
        self.text = text
        self.origin = origin
        self.at = 0
        self.repeated: list[str] = []

    def read(self) -> tuple[Any, list[str]]:
        self.skip()
        if self.at == len(self.text):
            self.fail("the file is empty")
        content = self.value(0)
        self.skip()
        if self.at < len(self.text):
            self.fail(f"nothing may follow the end, but {self.shown()} does; is a brace missing before?")
        return content, self.repeated

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        at = self.at if at is None else at
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        raise UserError(f"{self.origin}: not valid JSON: line {line}, column {column}: {message}")

    def shown(self) -> str:
        return repr(self.text[self.at]) if self.at < len(self.text) else "the end of the file"

    def skip(self) -> None:
        """Go past blanks and comments."""
        while found := _BLANK.match(self.text, self.at):
            self.at = found.end()
        if self.text.startswith("/*", self.at):
            self.fail("this comment is not closed with */")

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            self.fail(f"nested deeper than {MAX_DEPTH} levels")
        match self.text[self.at : self.at + 1]:
            case "{":
                return self.object(depth)
            case "[":
                return self.array(depth)
            case '"' | "'":
                return self.string()
        if found := _NUMBER.match(self.text, self.at):
            return self.number(found)
        if (found := _WORD.match(self.text, self.at)) and found[0] in _WORDS:
            self.at = found.end()
            return _WORDS[found[0]]
        if found:
            self.fail(f"{found[0]} is no value; texts stand in quotes")
        return self.fail(f"a value is missing before {self.shown()}")

    def number(self, found: re.Match[str]) -> int | float:
        self.at = found.end()
        if len(found[0]) > 400:
            self.fail("this number has too many digits", found.start())
        return float(found[0]) if re.search(r"[.eEI]", found[0]) else int(found[0])

    def object(self, depth: int) -> dict[str, Any]:
        start = self.at
        content: dict[str, Any] = {}
        self.at += 1
        while not self.closes("}", start, "object"):
            if self.text[self.at] not in "\"'":
                self.fail(f"a key in quotes, or }}, is expected here, not {self.shown()}")
            key = self.string()
            self.skip()
            if not self.text.startswith(":", self.at):
                self.fail(f'a colon is missing after the key "{key[:60]}"')
            self.at += 1
            self.skip()
            if key in content:
                self.repeated.append(key)
            content[key] = self.value(depth + 1)
            self.comma("}", start, "object")
        return content

    def array(self, depth: int) -> list[Any]:
        start = self.at
        content = []
        self.at += 1
        while not self.closes("]", start, "list"):
            content.append(self.value(depth + 1))
            self.comma("]", start, "list")
        return content

    def closes(self, bracket: str, start: int, kind: str) -> bool:
        """Whether the object or list ends here; if so, go past its end."""
        self.skip()
        if self.at == len(self.text):
            self.unclosed(bracket, start, kind)
        is_end = self.text[self.at] == bracket
        self.at += is_end
        return is_end

    def comma(self, bracket: str, start: int, kind: str) -> None:
        """Go past the comma after an item; the last item needs none, and may have one."""
        self.skip()
        if self.at == len(self.text):
            self.unclosed(bracket, start, kind)
        if self.text[self.at] == ",":
            self.at += 1
        elif self.text[self.at] != bracket:
            self.fail(f"a comma or {bracket} is missing before {self.shown()}")

    def unclosed(self, bracket: str, start: int, kind: str) -> NoReturn:
        line = self.text.count("\n", 0, start) + 1
        self.fail(f"the file ends, but the {kind} that begins in line {line} is not closed with {bracket}")

    def string(self) -> str:
        start = self.at
        quote = self.text[start]
        parts = []
        self.at += 1
        while True:
            found = _PLAIN[quote].match(self.text, self.at)
            parts.append(found[0] if found else "")
            self.at = found.end() if found else self.at
            mark = self.text[self.at : self.at + 1]
            if mark == quote:
                self.at += 1
                return "".join(parts)
            if mark != "\\":
                self.fail(f"the text that begins here is not closed with {quote}", start)
            parts.append(self.escape())

    def escape(self) -> str:
        """The character that an escape stands for."""
        mark = self.text[self.at + 1 : self.at + 2]
        if mark in _ESCAPES:
            self.at += 2
            return _ESCAPES[mark]
        digits = self.text[self.at + 2 : self.at + 6]
        if mark == "u" and re.fullmatch(r"[0-9a-fA-F]{4}", digits):
            self.at += 6
            return chr(int(digits, 16))
        return self.fail(f"\\{mark} is no escape; write \\\\ for a backslash, or / in paths")
