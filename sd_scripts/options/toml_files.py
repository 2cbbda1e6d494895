"""Training settings as TOML files: flat or in sections (section names carry no meaning), read and written."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from sd_scripts.errors import UserError
from sd_scripts.options.schema import Options, groups, specs
from sd_scripts.options.small_files import read_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def load_toml(path: Path) -> dict[str, Any]:
    """The file's content. UTF-8 with or without byte-order mark.

    Raises:
        UserError: missing, unreadable, not UTF-8, not TOML (with line and column).
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise UserError(f"{path}: not UTF-8 text (byte {failure.start}); save it again as UTF-8") from None
    try:
        return tomllib.loads(text)
    except ValueError as failure:  # TOMLDecodeError, or a number of thousands of digits
        last = text.rsplit("\n", 1)[-1]
        end = f"at line {text.count(chr(10)) + 1}, column {len(last) + 1}, the end of the file"
        raise UserError(f"{path}: not valid TOML: {str(failure).replace('at end of document', end)}") from None
    except RecursionError:
        raise UserError(f"{path}: not valid settings: tables or lists are nested too deeply") from None


def with_suffix(path: Path) -> Path:
    """The path, or the one with `.toml` appended when it lacks it and leads to nothing."""
    if path.suffix == ".toml" or not path.name or os.path.exists(path):  # noqa: PTH110 - raises nothing
        return path
    return path.with_name(path.name + ".toml")


def read_settings(path: Path) -> dict[str, Any]:
    """Option values of a settings file, sections merged; nothing is checked against the schema yet.

    `.toml` is appended when the name lacks it and no such file exists.

    Raises:
        UserError: as `load_toml`; a table inside a section; a dataset file given as settings.
    """
    content = load_toml(with_suffix(path))
    if "datasets" in content:
        raise UserError(f"{path}: this is a dataset file, not a settings file; give it as dataset_config")
    values: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            nested = [name for name, item in value.items() if isinstance(item, dict)]
            if nested:
                raise UserError(
                    f"{path}: [{key}.{nested[0]}] is a table inside a section; options stand one level deep"
                )
            values.update(value)
        else:
            values[key] = value
    return values


def settings_toml(options: Options, *, leave_out: frozenset[str] = frozenset()) -> str:
    """Settings that differ from the defaults as TOML text, a section per group, in the schema's order; never secrets."""
    import tomli_w

    tables: dict[str, dict[str, Any]] = {}
    known = specs(type(options))
    for group in groups(type(options)):
        table = {
            name: getattr(options, name)
            for name in group.model_fields
            if known[name].group == group.title
            and getattr(options, name) is not None
            and getattr(options, name) != known[name].default
            and not known[name].secret
            and name not in leave_out
        }
        if table:
            tables[group.title.lower().replace(" ", "_").replace("-", "_")] = table
    return tomli_w.dumps(tables)


def write_settings(path: Path, options: Options, *, leave_out: frozenset[str] = frozenset()) -> None:
    """Write `settings_toml` under a temporary name and rename it, so that a broken write leaves no half file."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(settings_toml(options, leave_out=leave_out).encode("utf-8"))
    temporary.replace(path)
