"""Values from a file, a command line or a form become a validated, immutable options object, or readable problems."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from sd_scripts.options.problems import CheckFailed, Problem, error, note, warning
from sd_scripts.options.recipes import is_launch, trainers_of
from sd_scripts.options.schema import Options, OptionSpec, specs

MOST_NAME_BYTES = 255
MOST_PATH_BYTES = 4000
NO_OPTIONS = {  # what the GUI that users come from writes into its settings although no trainer reads it
    "epoch": "max_train_epochs and max_train_steps decide the length",
    "noise_offset_type": "the kinds of noise that are set act",
}
O = TypeVar("O", bound=Options)  # noqa: E741 - the options class that goes in comes out


def build(model: type[O], values: Mapping[str, Any], origin: str = "") -> O:
    """The options object for these values.

    Args:
        origin: where they come from, named in errors ("in settings.toml").

    Raises:
        CheckFailed: unknown names (with the nearest known one), wrong types, values out of range: all of them at once.
    """
    options, problems = try_build(model, values, origin)
    if options is None:
        raise CheckFailed(problems)
    return options


def try_build(model: type[O], values: Mapping[str, Any], origin: str = "") -> tuple[O | None, list[Problem]]:
    """As `build`, with the problems returned: warnings and notes beside the object, or None with the errors."""
    known = specs(model)
    where = f" {origin}" if origin else ""
    values, problems = under_current_names(known, values)
    problems += [stranger(name, known, where) for name in values if name not in known]
    problems += [
        error(name, f"{reason}{where}", "check the path")
        for name, value in values.items()
        if name in known and known[name].path and (reason := _why_no_path(value))
    ]
    try:
        options = model(**{name: value for name, value in values.items() if name in known})
    except ValidationError as failure:
        problems += _readable(failure, known, where)
        options = None
    has_errors = any(problem.level == "error" for problem in problems)
    return (None if has_errors else options), problems


def _why_no_path(value: Any) -> str | None:
    """Why a text can be no path on any system; what is no text is left to the validation."""
    if not isinstance(value, str):
        return None
    if "\0" in value:
        return "holds a character that no path may hold"
    if len(value.encode("utf-8", "surrogatepass")) > MOST_PATH_BYTES:
        return f"is a path of {len(value)} letters, more than any system takes"
    longest = max(len(part.encode("utf-8", "surrogatepass")) for part in value.replace("\\", "/").split("/"))
    return f"holds a name of {longest} bytes, more than any file system takes" if longest > MOST_NAME_BYTES else None


def under_current_names(
    known: Mapping[str, OptionSpec], values: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Problem]]:
    """The values with former names of options replaced; the current name wins where both are given."""
    current = {old: spec.name for spec in known.values() for old in spec.formerly}
    renamed = {name: value for name, value in values.items() if name not in current}
    problems = []
    for old, value in values.items():
        if old in current:
            renamed.setdefault(current[old], value)
            problems.append(note(old, f"is called {current[old]} now", "use that name"))
    return renamed, problems


def stranger(name: str, known: Collection[str], where: str = "") -> Problem:
    """What to say of a name that is no option here: another trainer's, the launch's, or nobody's."""
    if trainers := trainers_of(name):
        scripts = f"{', '.join(f'{script}.py' for script in trainers[:3])}{' …' if len(trainers) > 3 else ''}"
        return warning(name, f"has no effect{where}: this trainer has no such option, {scripts} has", "remove it")
    if is_launch(name):
        return warning(name, f"has no effect{where}: it concerns the launch, not the trainer", "remove it")
    if name in NO_OPTIONS:
        return warning(name, f"has no effect{where}: {NO_OPTIONS[name]}", "remove it")
    return unknown_name(name, known, where)


def unknown_name(name: str, known: Iterable[str], where: str = "") -> Problem:
    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    remedy = f"did you mean {nearest[0]}?" if nearest else "remove it, or see docs/options.md for the known names"
    return error(name, f"unknown option{where}", remedy)


def _readable(failure: ValidationError, known: Mapping[str, OptionSpec], where: str) -> list[Problem]:
    """One problem per option: a value tried against several types gives several findings, of which the first says enough."""
    found: dict[str, Problem] = {}
    for finding in failure.errors():
        name = str(finding["loc"][0]) if finding["loc"] else ""
        if name in found:
            continue
        spec = known.get(name)
        value = finding.get("input")
        message = f"{value!r} is not {expected(spec)}{where}" if spec else finding["msg"]
        found[name] = error(name or None, message, _nearest_choice(spec, value))
    return list(found.values())


def expected(spec: OptionSpec) -> str:
    """What an option takes, in words: "one of a, b", "a whole number of at least 1"."""
    if spec.choices:
        return "one of " + ", ".join(str(choice) for choice in spec.choices)
    kind = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}.get(spec.type, "a table")
    limits = [
        ("at least", spec.minimum),
        ("above", spec.exclusive_minimum),
        ("at most", spec.maximum),
        ("below", spec.exclusive_maximum),
    ]
    bounds = [f"{words} {_plain(limit)}" for words, limit in limits if limit is not None]
    if bounds:
        kind += " of " + " and ".join(bounds) if bounds[0].startswith("at") else " " + " and ".join(bounds)
    if spec.words:
        kind += " or " + " or ".join(f'"{word}"' for word in spec.words)
    return f"a list of which each item is {kind}" if spec.is_list else kind


def _plain(limit: float) -> str:
    return str(int(limit)) if float(limit).is_integer() else str(limit)


def _nearest_choice(spec: OptionSpec | None, value: Any) -> str:
    if spec is None or not isinstance(value, str):
        return ""
    offered = [str(c) for c in (*spec.choices, *spec.words)]
    nearest = difflib.get_close_matches(value, offered, n=1, cutoff=0.6)
    return f"did you mean {nearest[0]}?" if nearest else ""
