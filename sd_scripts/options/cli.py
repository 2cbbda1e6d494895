"""The command line of a trainer, made from its recipe. A value given here beats the same one in the settings file."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from sd_scripts.errors import UserError
from sd_scripts.options.build import build, try_build, unknown_name
from sd_scripts.options.config_file import read_config_file
from sd_scripts.options.problems import CheckFailed, Problem
from sd_scripts.options.recipes import CommonOptions, Recipe, all_models
from sd_scripts.options.schema import OptionSpec, groups, specs
from sd_scripts.options.toml_files import write_settings


@dataclass(frozen=True)
class Invocation:
    """What a trainer was asked to do."""

    options: CommonOptions
    problems: tuple[Problem, ...]  # warnings and notes about what was given
    only_check: bool
    as_json: bool


def parse(recipe: Recipe, arguments: Sequence[str]) -> Invocation:
    """Read a command line and the settings file that it names.

    Raises:
        UserError: unknown arguments with the nearest known one, wrong values, a settings file that cannot be read.
        SystemExit: after `--help`.
    """
    parser = make_parser(recipe)
    given, unknown = parser.parse_known_args(list(arguments))
    known = specs(recipe.options)
    if unknown:
        raise CheckFailed(_unknown_arguments(unknown, known))
    given_values = vars(given)
    own = {name: given_values.pop(name) for name in ("config_file", "check", "json", "output_config")}
    config_file = Path(own["config_file"]) if own["config_file"] else None
    if own["output_config"]:
        _write_given(recipe, given_values, config_file)
    from_file, found = read_config_file(config_file) if config_file else ({}, [])
    _, problems = try_build(recipe.options, from_file, f"in {config_file}")
    problems = found + [p for p in problems if p.option not in given_values or p.option not in known]
    options, more = try_build(
        recipe.options,
        {name: value for name, value in from_file.items() if name in known} | given_values,
        "on the command line" if given_values else "",
    )
    problems += [p for p in more if p.option in given_values]
    if options is None or any(p.level == "error" for p in problems):
        raise CheckFailed([p for p in dict.fromkeys((*problems, *more)) if p.level == "error"])
    return Invocation(options, tuple(problems), own["check"] or own["json"], own["json"])


def make_parser(recipe: Recipe) -> argparse.ArgumentParser:
    """The argument parser; every value stays text, as the schema does the converting and checking."""
    parser = PlainParser(
        prog=f"{recipe.script}.py",
        usage="%(prog)s [--config_file FILE] [--option value …]",
        description=f"{recipe.summary} Options can stand in a TOML file (--config_file) and on the command line, "
        f"which wins. "
        "A switch is turned off with =false.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    settings = parser.add_argument_group("Settings file and check")
    settings.add_argument("--config_file", default=None, metavar="FILE", help="TOML file with options.")
    settings.add_argument("--check", action="store_true", default=False, help="Print the plan of the run and stop.")
    settings.add_argument("--json", action="store_true", default=False, help="Print the plan as JSON and stop.")
    settings.add_argument(
        "--output_config",
        action="store_true",
        default=False,
        help="Write the options given here to --config_file and stop.",
    )
    known = specs(recipe.options)
    for group in groups(recipe.options):
        section = parser.add_argument_group(group.title)
        for name in group.model_fields:
            if known[name].group == group.title and recipe.takes(known[name]):
                _add(section, known[name])
    _add_quietly(parser, recipe)
    return parser


def _add_quietly(parser: argparse.ArgumentParser, recipe: Recipe) -> None:
    """Options without an effect here and former names: taken, so that it can be said what they are, but not shown."""
    own = specs(recipe.options)
    others = {name: spec for model in all_models() for name, spec in specs(model).items() if name not in own}
    hidden = [spec for spec in own.values() if not recipe.takes(spec)] + list(others.values())
    names = {spec.name: spec for spec in hidden} | {old: spec for spec in own.values() for old in spec.formerly}
    for name, spec in names.items():
        shape = _shape(spec)
        shape.pop("metavar", None)
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS, **shape)


def _add(section: argparse._ArgumentGroup, spec: OptionSpec) -> None:
    default = "" if spec.default is None else f" (default: {_shown(spec.default)})"
    later = "" if spec.available else " Not yet available."
    text = f"{spec.help}{later}{default}".replace("%", "%%")
    section.add_argument(f"--{spec.name}", help=text, **_shape(spec))


def _shape(spec: OptionSpec) -> dict[str, Any]:
    """How argparse takes an option; every value stays text."""
    if spec.is_flag:
        return {"nargs": "?", "const": "true", "metavar": "true|false"}
    if spec.is_list:
        return {"nargs": "*", "action": "extend", "metavar": "VALUE"}
    if spec.choices:
        return {"metavar": "|".join(str(choice) for choice in spec.choices)}
    return {"metavar": {int: "N", float: "X", str: "TEXT"}[spec.type]}


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unknown_arguments(unknown: Sequence[str], known: dict[str, OptionSpec]) -> list[Problem]:
    names = [text.split("=", 1)[0].lstrip("-") for text in unknown if text.startswith("--")]
    if not names:
        raise UserError(f"{unknown[0]}: does not belong to any option; options start with --")
    return [unknown_name(name, known, " on the command line") for name in names]


def _write_given(recipe: Recipe, values: dict[str, Any], target: Path | None) -> NoReturn:
    """Write the options of the command line as a settings file and leave; an existing file is never overwritten."""
    if target is None:
        raise UserError("output_config: name the file to write with --config_file")
    if target.suffix != ".toml":
        target = target.with_name(target.name + ".toml")
    if target.exists():
        raise UserError(f"{target}: exists already; choose another name for --config_file")
    write_settings(target, build(recipe.options, values, "on the command line"))
    raise SystemExit(0)


class PlainParser(argparse.ArgumentParser):
    """argparse, with errors as exceptions instead of a usage text of a hundred lines."""

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        # Before Python 3.14 a value such as -1e-4 is taken for an option (bpo-9334).
        self._negative_number_matcher = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see --help")
