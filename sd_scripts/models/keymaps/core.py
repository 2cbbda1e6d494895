"""The machinery of key maps: one table of module names, followed in both directions. Needs no torch to be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Shape = tuple[int, ...]

# What becomes of a tensor on its way from the file to the library, and in the opposite sense on the way back:
#   conv1x1     (out, in, 1, 1) in the file, (out, in) in the library
#   transposed  (in, out) in the file, (out, in) in the library
#   swapped     the two halves of the rows change places
Change = Literal["conv1x1", "transposed", "swapped"]


@dataclass(frozen=True)
class Source:
    """Where a library tensor comes from: a tensor of the file, or the rows from `first` to `last` of its `of` equal
    pieces; changed in one way or not at all."""

    key: str
    first: int = 0
    last: int = 1
    of: int = 1
    change: Change | None = None

    def shape(self, stored: Shape) -> Shape:
        """Shape of the library tensor, from that of the stored one."""
        shape = stored[:2] if self.change == "conv1x1" else stored
        if self.change == "transposed":
            shape = shape[::-1]
        return shape if self.of == 1 else (shape[0] // self.of * (self.last - self.first), *shape[1:])

    def take(self, stored: Tensor) -> Tensor:
        """The library tensor; a view of the stored one where that is possible."""
        tensor = change(stored, self.change)
        if self.of == 1:
            return tensor
        piece = tensor.shape[0] // self.of
        return tensor[piece * self.first : piece * self.last]


def change(tensor: Tensor, how: Change | None) -> Tensor:
    """The tensor as the library has it, from the file's."""
    import torch

    match how:
        case "conv1x1":
            return tensor.flatten(1)
        case "transposed":
            return tensor.T.contiguous()
        case "swapped":
            return torch.cat([*reversed(tensor.chunk(2))])
        case None:
            return tensor


def change_back(tensor: Tensor, how: Change | None) -> Tensor:
    """The tensor as the file has it, from the library's."""
    return tensor[..., None, None] if how == "conv1x1" else change(tensor, how)


def translate(key: str, table: Mapping[str, str]) -> str | None:
    """Replace the longest leading run of dotted segments that the table knows; None if it knows none."""
    head = key
    while head:
        if head in table:
            return table[head] + key[len(head) :]
        head = head.rpartition(".")[0]
    return None


class KeyMap:
    """Names of one network in the file and in the library.

    Args:
        modules: pairs (library name, file name) of modules or of single tensors.
        fused: file tensors that the library has in several: file name to the library names in row order; a pair
            (name, n) has n times as many rows as one without.
        changes: library name to what becomes of the file's tensor.
    """

    def __init__(
        self,
        modules: Iterable[tuple[str, str]],
        fused: Mapping[str, Sequence[str | tuple[str, int]]] | None = None,
        changes: Mapping[str, Change] | None = None,
    ):
        self._to_file = dict(modules)
        self._to_library = {stored: library for library, stored in self._to_file.items()}
        self._fused = {
            key: [(p, 1) if isinstance(p, str) else p for p in parts] for key, parts in (fused or {}).items()
        }
        self._changes = dict(changes or {})

    def sources(self, names: Iterable[str]) -> dict[str, Source]:
        """Library tensors that the named file tensors hold; names that the map does not know give nothing."""
        found: dict[str, Source] = {}
        for name in names:
            parts = self._library_names(name)
            of, first = sum(rows for _, rows in parts), 0
            for library, rows in parts:
                found[library] = Source(name, first, first + rows, of, self._changes.get(library))
                first += rows
        return found

    def to_file(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The file's tensors, from the library's.

        Raises:
            KeyError: a tensor that the map does not know, or a missing part of a fused one.
        """
        import torch

        fused_parts = {part for parts in self._fused.values() for part, _ in parts}
        stored: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            if name in fused_parts:
                continue
            file_name = translate(name, self._to_file)
            if file_name is None:
                raise KeyError(name)
            stored[file_name] = change_back(tensor, self._changes.get(name))
        for file_name, parts in self._fused.items():
            if any(part in tensors for part, _ in parts):
                stored[file_name] = torch.cat([tensors[part] for part, _ in parts])
        return stored

    def file_name(self, library: str) -> str | None:
        """The file's name of a module or tensor that the map does not fuse."""
        return translate(library, self._to_file)

    def _library_names(self, name: str) -> list[tuple[str, int]]:
        if name in self._fused:
            return self._fused[name]
        library = translate(name, self._to_library)
        return [] if library is None else [(library, 1)]


def same_names(names: Iterable[str]) -> KeyMap:
    """The map of a file that names tensors as the library does."""
    return KeyMap((top, top) for top in {name.split(".")[0] for name in names})


def count_indices(names: Iterable[str], prefix: str) -> int:
    """How many consecutive numbers from 0 follow the prefix: the length of a module list."""
    found = {rest.split(".", 1)[0] for name in names if (rest := name.removeprefix(prefix)) != name}
    count = 0
    while str(count) in found:
        count += 1
    return count
