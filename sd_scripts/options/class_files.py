"""Read what a class accepts from its source file, without importing it (importing an optimizer imports torch).

A class is named by its path, e.g. `torch.optim.AdamW`; imports between the files of the package are followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class Signature:
    """Names that a class takes by keyword, after the object it works on (`params`, `optimizer`)."""

    accepted: tuple[str, ...]
    required: tuple[str, ...]
    is_open: bool = False  # takes any further name (**kwargs)
    not_text: frozenset[str] = frozenset()  # names whose default is a number, a truth value or several of them
    subject: str | None = None  # the class's own name for the object it works on

    def without(self, name: str) -> Signature:
        """The same, with a name that the caller fills in itself left out."""
        accepted, required = (tuple(n for n in names if n != name) for names in (self.accepted, self.required))
        return replace(self, accepted=accepted, required=required)


def is_installed(path: str) -> bool:
    """Whether the package of a class path can be imported."""
    return _top_spec(path.split(".")[0]) is not None


@lru_cache
def signature(path: str) -> Signature | None:
    """What a class accepts; None where its source does not tell (then only importing it does)."""
    module, name = _split(path)
    found = module and _find(module, name)
    if not found:
        return None
    init = _init(*found)
    if init is None:
        return None
    names = [a.arg for a in (*init.args.posonlyargs, *init.args.args)]
    defaults = dict(zip(reversed(names), reversed(init.args.defaults), strict=False))
    keywords = [a.arg for a in init.args.kwonlyargs]
    defaults |= {k: d for k, d in zip(keywords, init.args.kw_defaults, strict=True) if d is not None}
    accepted = (*names[2:], *keywords)  # without self and the object
    required = tuple(name for name in accepted if name not in defaults)
    not_text = frozenset(name for name in accepted if name in defaults and _is_number_like(defaults[name]))
    return Signature(accepted, required, init.args.kwarg is not None, not_text, names[1] if len(names) > 1 else None)


def _is_number_like(default: ast.expr) -> bool:
    try:
        value = ast.literal_eval(default)
    except ValueError:
        return False
    return isinstance(value, bool | int | float | tuple)


@lru_cache
def class_names(module_path: str) -> tuple[str, ...]:
    """Public names with a capital that a module's file defines or imports; empty where there is no such file."""
    module = _module(module_path.split("."))
    if module is None:
        return ()
    names = [local for local, _, _ in _imports(module)]
    names += [node.name for node in module.tree.body if isinstance(node, ast.ClassDef)]
    return tuple(dict.fromkeys(n for n in names if n[:1].isupper()))


def is_certainly_missing(path: str) -> bool:
    """Whether the module's file is found and says all it has, and the class is not in it."""
    module, name = _split(path)
    if module is None or _find(module, name):
        return False
    if any(local == "*" for local, _, _ in _imports(module)):
        return False
    known = {n.name for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    known |= {n.id for n in ast.walk(module.tree) if isinstance(n, ast.Name)}
    known |= {a.asname or a.name for n in ast.walk(module.tree) if isinstance(n, ast.ImportFrom) for a in n.names}
    return not known & {name, "*", "__getattr__", "globals", "sys"}


@dataclass(frozen=True)
class _Module:
    file: Path
    parts: tuple[str, ...]
    tree: ast.Module

    @property
    def package(self) -> tuple[str, ...]:
        return self.parts if self.file.name == "__init__.py" else self.parts[:-1]


def _split(path: str) -> tuple[_Module | None, str]:
    *parts, name = path.split(".")
    return (_module(parts) if parts else None), name


def _module(parts: list[str] | tuple[str, ...]) -> _Module | None:
    """The module's parsed source; only the top package is looked up through Python, which does not import it."""
    if not parts or not all(part.isidentifier() for part in parts):
        return None
    spec = _top_spec(parts[0])
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    file = Path(spec.origin)
    for part in parts[1:]:
        if file.name != "__init__.py":
            return None
        as_package = file.parent / part / "__init__.py"
        file = as_package if as_package.is_file() else file.parent / f"{part}.py"
    tree = _parse(file) if file.is_file() else None
    return _Module(file, tuple(parts), tree) if tree else None


def _top_spec(name: str) -> ModuleSpec | None:
    """Where a top package lies; None if it is not there or is no importable name (as `__main__`)."""
    try:
        return find_spec(name) if name.isidentifier() else None
    except ValueError:
        return None


@lru_cache
def _parse(file: Path) -> ast.Module | None:
    try:
        return ast.parse(file.read_bytes())  # bytes: the file may declare its encoding
    except SyntaxError:
        return None  # for another Python version


def _imports(module: _Module) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """(local name, module it comes from, name there) of every `from … import …` at the top of a file; "*" for stars."""
    for node in module.tree.body:
        if not isinstance(node, ast.ImportFrom):
            continue
        base = module.package[: len(module.package) - node.level + 1] if node.level else ()
        source = (*base, *(node.module.split(".") if node.module else ()))
        for alias in node.names:
            yield alias.asname or alias.name, source, alias.name


def _find(module: _Module, name: str, depth: int = 0) -> tuple[_Module, ast.ClassDef] | None:
    """The class's definition, in this file or where the file imports it from."""
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, node
    if depth > 5:
        return None
    for local, source, original in _imports(module):
        if local in (name, "*") and (other := _module(source)):
            found = _find(other, name if local == "*" else original, depth + 1)
            if found:
                return found
    return None


def _init(module: _Module, node: ast.ClassDef, depth: int = 0) -> ast.FunctionDef | None:
    """The constructor, the class's own or one of a base class."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return item
    for base in node.bases:
        if isinstance(base, ast.Name) and depth < 5 and (found := _find(module, base.id)):
            init = _init(*found, depth + 1)
            if init:
                return init
    return None
