"""The model families: every module in this package with a `FAMILIES`. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from sd_scripts.models.family import ModelFamily


@cache
def all_families() -> Mapping[str, ModelFamily]:
    """Every family by its name, in their order for lists."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    families = [family for module in modules for family in module.FAMILIES]
    return MappingProxyType({family.name: family for family in sorted(families, key=lambda family: family.place)})
