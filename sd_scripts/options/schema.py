"""How an option is declared, and how its declaration is read back.

    class Saving(Options):
        title: ClassVar[str] = "Saving"
        save_every_n_epochs: int | None = option(None, ge=1, help="Write the weights after every so many epochs.")

A recipe (architecture x method) inherits the groups it uses, so that `cfg.save_every_n_epochs` is all a reader needs, while a
function that only saves takes a `Saving`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator

OptionLevel = Literal["essential", "common", "expert"]
PathKind = Literal["file", "folder", "model", "output_folder"]
SET: Final = object()  # in `only_with`: any value that is given and neither false nor 0


def option(
    default: Any,
    *,
    help: str,
    label: str | None = None,
    level: OptionLevel = "common",
    unit: str | None = None,
    path: PathKind | None = None,
    suggestions: tuple[str, ...] = (),
    secret: bool = False,
    environment: str | None = None,
    only_for: tuple[str, ...] = (),
    only_with: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    available: bool = True,
    formerly: tuple[str, ...] = (),
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
) -> Any:
    """Declare an option.

    Args:
        default: value when nothing is given; None means unset.
        help: one or two plain sentences; says what the value costs or needs where that is known.
        label: name in the GUI; made from the option's name when unset.
        level: how soon a user meets it.
        unit: "px", "steps", …, shown beside the field.
        path: what the text names on disk, if it does.
        suggestions: values offered for a text that may also be something else.
        secret: never written to files or logs.
        environment: the variable in which a secret is looked for too, by which a form can pass it on unwritten.
        only_for: names or traits of the model families it acts for (`families.FAMILIES`); () is all of them.
        only_with: what other options must be for it to act: a value, a tuple of values, or SET.
        defaults: per model family, where the default is not the same for all.
        available: False while the code that uses it is missing; setting it is refused then.
        formerly: older names that mean the same.
    """
    extra = {
        "label": label,
        "level": level,
        "unit": unit,
        "path": path,
        "suggestions": suggestions,
        "secret": secret,
        "environment": environment,
        "only_for": only_for,
        "only_with": only_with or {},
        "defaults": defaults or {},
        "available": available,
        "formerly": formerly,
    }
    return Field(default, description=help, json_schema_extra=extra, ge=ge, gt=gt, le=le, lt=lt)


class Options(BaseModel):
    """A group of options. Immutable; unknown names are refused."""

    # Twenty trainers share these classes: each is compiled when it is first used, not when it is declared.
    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=False, allow_inf_nan=False, defer_build=True
    )
    title: ClassVar[str] = ""  # of the section; groups have one, recipes none
    order: ClassVar[int] = 0  # of the section on a page

    @model_validator(mode="before")
    @classmethod
    def _unset_blanks_and_split_lists(cls, values: Any) -> Any:
        """Only empty is unset: "", null and blank text fall back to the default; zero is a value."""
        if not isinstance(values, Mapping):
            return values
        known = specs(cls)
        kept = {}
        for name, value in values.items():
            spec = known.get(name)
            if not _is_blank(value):
                kept[name] = value if spec is None else _converted(spec, value)
            elif spec is None or (value is None and spec.nullable and spec.default is not None):
                kept[name] = value
        return kept


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _converted(spec: OptionSpec, value: Any) -> Any:
    """A value as its option takes it where the text leaves no doubt; anything else is left to the validation."""
    if spec.is_list and not isinstance(value, (list, tuple)):
        return shlex.split(value) if isinstance(value, str) else [value]
    if spec.choices:
        return next((choice for choice in spec.choices if str(choice) == str(value)), value)
    if spec.type in (int, float) and isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
    return value


@dataclass(frozen=True)
class OptionSpec:
    """An option as its readers need it: command line, TOML, form, documentation."""

    name: str
    group: str
    type: type  # bool, int, float, str; of the items where is_list
    default: Any
    help: str
    label: str
    level: OptionLevel
    choices: tuple[Any, ...] = ()  # the only legal values, if listed
    suggestions: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # texts that a number option takes besides numbers ("auto")
    is_list: bool = False
    nullable: bool = False
    unit: str | None = None
    path: PathKind | None = None
    secret: bool = False
    environment: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None
    only_for: tuple[str, ...] = ()
    only_with: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    available: bool = True
    formerly: tuple[str, ...] = ()

    @property
    def is_flag(self) -> bool:
        return self.type is bool

    def default_for(self, architecture: str | None) -> Any:
        """The default where the model is of this family; the general one when it is not known."""
        return self.defaults.get(architecture, self.default)


@lru_cache
def specs(model: type[Options]) -> dict[str, OptionSpec]:
    """Every option of a group or recipe by name, group by group in declared order."""
    found: dict[str, OptionSpec] = {}
    for group in groups(model):
        for name in group.model_fields:
            if (
                name not in found
            ):  # a method may redeclare an option with a default of its own; it keeps its first section
                found[name] = _spec(name, group, model)
    return found


def groups(model: type[Options]) -> tuple[type[Options], ...]:
    """The groups of a recipe in the order of their sections; a group is its own only one."""
    found = [
        base
        for base in model.__mro__
        if isinstance(base, type) and issubclass(base, Options) and "title" in vars(base) and base.title
    ]
    return tuple(sorted(found, key=lambda group: group.order))


PASSED_ON = (
    "suggestions", "unit", "path", "secret", "environment", "only_for", "only_with", "defaults", "available", "formerly",
)  # fmt: skip


def _spec(name: str, group: type[Options], model: type[Options]) -> OptionSpec:
    info = model.model_fields[name]
    extra = info.json_schema_extra or group.model_fields[name].json_schema_extra
    shape = _read_type(info.annotation)
    limits = _limits([*info.metadata, *shape.pop("limits", ())])
    return OptionSpec(
        name=name,
        group=group.title,
        default=info.default,
        help=info.description or group.model_fields[name].description or "",
        label=extra["label"] or name.replace("_", " ").capitalize(),
        level=extra["level"],
        **{key: extra[key] for key in PASSED_ON},
        minimum=limits.get("ge"),
        maximum=limits.get("le"),
        exclusive_minimum=limits.get("gt"),
        exclusive_maximum=limits.get("lt"),
        **shape,
    )


def _limits(metadata: Sequence[Any]) -> dict[str, float]:
    kinds = ("ge", "le", "gt", "lt")
    return {kind: value for item in metadata for kind in kinds if (value := getattr(item, kind, None)) is not None}


def _read_type(annotation: Any) -> dict[str, Any]:
    """What an annotation such as `int | None`, `list[str]`, `Literal[...]` or `Annotated[int, Ge(0)] | Literal["auto"]` says.

    The limits of a number that may also be a word stand in its own annotation, as they do not concern the word.
    """
    members = list(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else [annotation]
    shape: dict[str, Any] = {"nullable": type(None) in members}
    members = [m for m in members if m is not type(None)]
    if len(members) == 1 and get_origin(members[0]) is list:
        (item,) = get_args(members[0])
        return shape | {"is_list": True, "type": item}
    literals = [m for m in members if get_origin(m) is Literal]
    plain = [m for m in members if get_origin(m) is not Literal]
    if not plain:
        choices = tuple(value for literal in literals for value in get_args(literal))
        return shape | {"choices": choices, "type": type(choices[0])}
    words = tuple(value for literal in literals for value in get_args(literal))
    limits = [item for m in plain if get_origin(m) is Annotated for item in get_args(m)[1:]]
    plain = [get_args(m)[0] if get_origin(m) is Annotated else m for m in plain]
    kind = float if float in plain else plain[0]
    return shape | {"type": kind, "words": words, "limits": limits}
