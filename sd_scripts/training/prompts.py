"""Sample prompts from lines of text, or a text, TOML or JSON file. Needs no torch: the checks before a run read it too.

A line of a text file is a prompt, then marks: `a cat in the snow --n blurry --w 512 --h 768 --d 42 --s 30 --l 7.5`.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sd_scripts.errors import UserError
from sd_scripts.options.output import Samples
from sd_scripts.options.schema import specs

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SAMPLERS = specs(Samples)["sample_sampler"].choices
SMALLEST_SIDE = 64
MOST_STEPS = 1000
_MARK = re.compile(r"\s--(?=[A-Za-z])")  # a mark follows a blank; "wind--swept" and " -- " are text


@dataclass(frozen=True)
class SamplePrompt:
    """One picture to draw.

    Attributes:
        prompt, negative_prompt: the texts.
        width, height: px, multiples of the architecture's divisor.
        steps: of the sampler.
        scale: classifier-free guidance; 1 is none.
        seed: None if the file gives none.
        sampler: None for the option's.
        extra: settings that only some architectures know (guidance_scale, flow_shift, …).
        notes: what was changed in the given values, in words.
    """

    prompt: str
    negative_prompt: str = ""
    width: int = 512
    height: int = 512
    steps: int = 30
    scale: float = 7.5
    seed: int | None = None
    sampler: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_prompts(
    source: Path | str, divisor: int, *, size: int = 512, steps: int = 30, scale: float = 7.5
) -> tuple[SamplePrompt, ...]:
    """All prompts of a `.txt`, `.toml` or `.json` file, or of lines of text.

    Args:
        source: the file, or the lines themselves.
        divisor: sides are rounded down to multiples of this many px, with a note.
        size, steps, scale: the architecture's defaults for what a prompt does not say.

    Raises:
        UserError: no such file, bad syntax, an unknown mark or key, a malformed number; with the line or entry.
    """
    defaults = {"width": size, "height": size, "sample_steps": steps, "scale": scale}
    return tuple(_prompt(defaults | settings, divisor, where) for where, settings in _entries(source))


def _entries(source: Path | str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where each prompt stands, and what it says."""
    if isinstance(source, str):
        return _text_entries("sample_prompts", source)
    try:
        text = source.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"sample_prompts: cannot read {source} ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"sample_prompts: {source} is not UTF-8 text; save it as UTF-8") from error
    reader = _READERS.get(source.suffix.lower())
    return reader(source, text) if reader else _text_entries(source.name, text)


def parse_line(line: str, where: str = "prompt") -> dict[str, Any]:
    """The settings that one line gives; the same mark twice: the last counts.

    Raises:
        UserError: an unknown mark or a malformed value.
    """
    prompt, *marks = _MARK.split(line.strip())
    if prompt.startswith("--"):
        raise UserError(f"{where} starts with a mark; write the prompt first, then marks such as --w 512")
    settings: dict[str, Any] = {"prompt": prompt.strip()}
    for piece in marks:
        mark, _, value = piece.strip().partition(" ")
        key = _MARKS.get(mark.lower())
        if key is None:
            raise UserError(f"{where}: unknown mark --{mark}; known are {', '.join('--' + m for m in _MARKS)}")
        settings[key] = _convert(key, value.strip(), f"{where}: --{mark}")
    return settings


def _whole(text: str) -> int:
    if not re.fullmatch(r"\d+", text) or int(text) >= 2**63:
        raise ValueError("a whole number below 2^63")
    return int(text)


def _number(text: str) -> float:
    if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text):
        raise ValueError("a number")
    if not math.isfinite(float(text)):
        raise ValueError("a number that is not infinite")
    return float(text)


def _sampler(text: str) -> str:
    if text not in SAMPLERS:
        raise ValueError(f"one of {', '.join(SAMPLERS)}")
    return text


def _text(text: str) -> str:
    return text


# mark in a line, key in TOML and JSON, what its value must be
_SETTINGS: tuple[tuple[str | None, str, Callable[[str], Any]], ...] = (
    (None, "prompt", _text),
    ("n", "negative_prompt", _text),
    ("w", "width", _whole),
    ("h", "height", _whole),
    ("d", "seed", _whole),
    ("s", "sample_steps", _whole),
    ("l", "scale", _number),
    ("ss", "sample_sampler", _sampler),
    ("g", "guidance_scale", _number),
    ("cn", "controlnet_image", _text),
    ("ctr", "cfg_trunc_ratio", _number),
    ("rcfg", "renorm_cfg", _number),
    ("fs", "flow_shift", _number),
)
_MARKS = {mark: key for mark, key, _ in _SETTINGS if mark}
_CONVERTERS = {key: converter for _, key, converter in _SETTINGS}
_COMMON = ("prompt", "negative_prompt", "width", "height", "seed", "sample_steps", "scale", "sample_sampler")


def _convert(key: str, value: str, where: str) -> Any:
    try:
        return _CONVERTERS[key](value)
    except ValueError as expected:
        raise UserError(f"{where} {value!r} must be {expected}") from None


def _prompt(settings: Mapping[str, Any], divisor: int, where: str) -> SamplePrompt:
    notes: list[str] = []
    width, height = (_side(side, settings[side], divisor, where, notes) for side in ("width", "height"))
    steps = min(max(settings["sample_steps"], 1), MOST_STEPS)
    if steps != settings["sample_steps"]:
        notes.append(f"{where}: {settings['sample_steps']} steps, {steps} are drawn")
    return SamplePrompt(
        prompt=settings.get("prompt", ""),
        negative_prompt=settings.get("negative_prompt", ""),
        width=width,
        height=height,
        steps=steps,
        scale=settings["scale"],
        seed=settings.get("seed"),
        sampler=settings.get("sample_sampler"),
        extra={key: value for key, value in settings.items() if key not in _COMMON},
        notes=tuple(notes),
    )


def _side(name: str, wanted: int, divisor: int, where: str, notes: list[str]) -> int:
    side = max(SMALLEST_SIDE, wanted - wanted % divisor)
    if side != wanted:
        notes.append(f"{where}: {name} {wanted} becomes {side} (at least {SMALLEST_SIDE}, a multiple of {divisor})")
    return side


def _text_entries(name: str, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            where = f"{name}, line {number}"
            yield where, parse_line(line, where)


def _toml_entries(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        common = tomllib.loads(text).get("prompt")
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"sample_prompts: {path} is no valid TOML: {error}") from error
    if not isinstance(common, dict):
        raise UserError(f"sample_prompts: {path} needs a [prompt] table, with a [[prompt.subset]] for each picture")
    subsets = common.pop("subset", None) or [{}]
    for number, subset in enumerate(subsets, start=1):
        where = f"{path.name}, subset {number}"
        if twice := sorted(set(common) & set(subset)):
            raise UserError(f"{where}: {twice[0]} is in [prompt] too; give it in one place")
        yield where, _object({**common, **subset}, where)


def _json_entries(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise UserError(f"sample_prompts: {path} is no valid JSON: {error}") from error
    if not isinstance(entries, list):
        raise UserError(f"sample_prompts: {path} must hold a list of prompts")
    for number, entry in enumerate(entries, start=1):
        where = f"{path.name}, entry {number}"
        if isinstance(entry, str):
            yield where, parse_line(entry, where)
        elif isinstance(entry, dict):
            yield where, _object(entry, where)
        else:
            raise UserError(f"{where} must be a text or an object")


def _object(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for key, value in entry.items():
        if key not in _CONVERTERS:
            near = difflib.get_close_matches(key, _CONVERTERS, n=1)
            raise UserError(
                f"{where}: unknown key {key!r}; " + (f"did you mean {near[0]}?" if near else "leave it out")
            )
        settings[key] = _convert(key, str(value), f"{where}: {key}")
    return settings


_READERS = {".toml": _toml_entries, ".json": _json_entries}
