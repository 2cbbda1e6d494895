"""The machinery of key maps: one table of module names, followed in both directions. Needs no torch to be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Source:
    """Where a library tensor comes from: a tensor of the file, whole or one of `pieces` equal parts of its rows."""

    key: str
    piece: int = 0
    pieces: int = 1
    conv1x1: bool = False  # (out, in, 1, 1) in the file, (out, in) in the library

    def shape(self, stored: Shape) -> Shape:
        """Shape of the library tensor, from that of the stored one."""
        shape = stored[:2] if self.conv1x1 else stored
        return shape if self.pieces == 1 else (shape[0] // self.pieces, *shape[1:])

    def take(self, stored: Tensor) -> Tensor:
        """The library tensor; a view of the stored one."""
        tensor = stored.flatten(1) if self.conv1x1 else stored
        return tensor if self.pieces == 1 else tensor.chunk(self.pieces)[self.piece]


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
        fused: file tensors that the library has in equal parts: file name to library names in row order.
        conv1x1: library weights (out, in) that files store as 1x1 convolutions.
    """

    def __init__(
        self,
        modules: Iterable[tuple[str, str]],
        fused: Mapping[str, tuple[str, ...]] | None = None,
        conv1x1: Iterable[str] = (),
    ):
        self._to_file = dict(modules)
        self._to_library = {stored: library for library, stored in self._to_file.items()}
        self._fused = dict(fused or {})
        self._conv1x1 = frozenset(conv1x1)

    def sources(self, names: Iterable[str]) -> dict[str, Source]:
        """Library tensors that the named file tensors hold; names that the map does not know give nothing."""
        found: dict[str, Source] = {}
        for name in names:
            for piece, library in enumerate(parts := self._library_names(name)):
                found[library] = Source(name, piece, len(parts), library in self._conv1x1)
        return found

    def to_file(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The file's tensors, from the library's.

        Raises:
            KeyError: a tensor that the map does not know, or a missing part of a fused one.
        """
        import torch

        fused_parts = {part for parts in self._fused.values() for part in parts}
        stored: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            if name in fused_parts:
                continue
            file_name = translate(name, self._to_file)
            if file_name is None:
                raise KeyError(name)
            stored[file_name] = tensor[..., None, None] if name in self._conv1x1 else tensor
        for file_name, parts in self._fused.items():
            stored[file_name] = torch.cat([tensors[part] for part in parts])
        return stored

    def _library_names(self, name: str) -> tuple[str, ...]:
        if name in self._fused:
            return self._fused[name]
        library = translate(name, self._to_library)
        return () if library is None else (library,)


def count_indices(names: Iterable[str], prefix: str) -> int:
    """How many consecutive numbers from 0 follow the prefix: the length of a module list."""
    found = {rest.split(".", 1)[0] for name in names if (rest := name.removeprefix(prefix)) != name}
    count = 0
    while str(count) in found:
        count += 1
    return count
