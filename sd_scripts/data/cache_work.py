"""What a run's latent cache lacks and where the results go: in memory, or in the stores of the picture folders."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from sd_scripts.data.cache_files import CacheEntryProblem, FileContent, PartWriter
from sd_scripts.data.cache_fill import Prepared
from sd_scripts.data.cache_keys import EntryKeys, LatentRecipe, content_hash, digest
from sd_scripts.data.cache_store import Store, StoredRows, Writers, relative_name, writing_problems
from sd_scripts.data.old_latents import OldFile, OldFiles, OldLatentsProblem, read_old
from sd_scripts.data.pictures import load_picture
from sd_scripts.data.words import counted, name_some

if TYPE_CHECKING:
    from torch import Tensor

    from sd_scripts.data.plan import DataPlan, Sample
    from sd_scripts.models.base import LatentSpec


@dataclass
class CacheReport:
    """What building the cache did."""

    encoded: int = 0  # pictures
    reused: int = 0
    foreign: int = 0  # of those, made by another program
    damaged: list[Path] = field(default_factory=list)  # pictures
    damaged_files: list[Path] = field(default_factory=list)
    outdated: list[Path] = field(default_factory=list)  # pictures that were cached for another VAE, size, …
    unfit: list[Path] = field(default_factory=list)  # files of other programs
    unreadable: dict[Path, str] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """What a user should know, a sentence each."""
        yield f"latents: {counted(self.encoded, 'picture')} encoded, {self.reused} taken from the cache"
        if self.foreign:
            yield (
                f"latents of {counted(self.foreign, 'picture')} come from cache files made by another program;"
                " delete those if they were made with another VAE"
            )
        if self.damaged_files:
            names = f": {name_some(self.damaged)}" if self.damaged else ""
            yield f"damaged entries in {name_some(self.damaged_files)} are made anew{names}"
        if self.outdated:
            yield (
                f"cached for another VAE, size, cut or number format, made anew: {counted(len(self.outdated), 'picture')}:"
                f" {name_some(self.outdated)}; the earlier entries stay until the cache is purged"
            )
        if self.unfit:
            yield f"cache files of another program that do not fit or are damaged: {name_some(self.unfit)}"
        for path, problem in self.unreadable.items():
            yield f"{path} {problem} and is left out"


class _Work:
    """What memory and disk share: which tensors a picture needs, and that equal content is encoded once."""

    def __init__(self, plan: DataPlan, recipes: Sequence[LatentRecipe], half: bool):
        self.report = CacheReport()
        self._half = half
        self._plan = plan
        self._recipes = recipes
        self._claimed: set[bytes] = set()  # keys that some thread is at work on
        self._lock = threading.Lock()

    @property
    def skips_bad_pictures(self) -> bool:
        return self._plan.skips_bad_pictures

    def path(self, number: int) -> Path:
        return self._plan.samples[number].path

    def encodings(self, number: int) -> int:
        return 1 + self._recipe(number).has_flipped

    def leave_out(self, number: int, problem: str) -> None:
        self.report.unreadable[self.path(number)] = problem

    def close(self) -> None:
        """Nothing is added any more."""

    def _missed(self, number: int) -> None:
        """A sample has no entry: another process or an equal picture could not be read."""
        if self.skips_bad_pictures:
            self.report.unreadable.setdefault(self.path(number), "could not be read when the cache was made")

    def _recipe(self, number: int) -> LatentRecipe:
        return self._recipes[self._plan.samples[number].subset]

    def _prepare(self, number: int, content: bytes, mask: bytes | None) -> Prepared:
        sample = self._plan.samples[number]
        keys = self._recipe(number).keys(sample, content, mask)
        with self._lock:
            needed = frozenset(key for key in keys if key not in self._claimed and not self._has(key))
            self._claimed |= needed
        picture = load_picture(sample, self._plan.subsets[sample.subset].options) if needed else None
        return Prepared(number, sample.path, content, keys, needed, picture)

    def _has_mask(self, number: int) -> bool:
        return self._plan.samples[number].mask is not None

    def _mask_file(self, number: int) -> Path | None:
        """The file that a sample's mask is in; None if it is the picture's own opacity, or there is none."""
        mask = self._plan.samples[number].mask
        return mask if isinstance(mask, Path) else None

    def _has(self, key: bytes) -> bool:
        raise NotImplementedError

    def _stored(self, values: Tensor) -> Tensor:
        """As they are kept, a copy: in half precision unless that is not wanted or a value does not fit."""
        if self._half:
            half = values.to(torch.float16, copy=True)
            if torch.isfinite(half).all():
                return half
        return values.to(torch.float32, copy=True)

    def _tensors(self, prepared: Prepared) -> Iterator[tuple[bytes, Tensor]]:
        """What there is to store of a picture."""
        for is_flipped, values in prepared.done.items():
            key = prepared.keys.flipped if is_flipped else prepared.keys.latents
            yield key, self._stored(values)
        mask = prepared.keys.mask
        if mask in prepared.needed and prepared.picture is not None and prepared.picture.mask is not None:
            yield mask, torch.from_numpy(np.array(prepared.picture.mask))


class MemoryWork(_Work):
    """Everything is encoded, and kept by this process."""

    def __init__(self, plan: DataPlan, recipes: Sequence[LatentRecipe], half: bool):
        super().__init__(plan, recipes, half)
        self._tensor_of: dict[bytes, Tensor] = {}
        self._keys: dict[int, EntryKeys] = {}

    def open(self) -> None:
        """Nothing is there yet."""

    def missing(self) -> list[int]:
        return list(range(len(self._plan.samples)))

    def prepare(self, number: int) -> Prepared:
        content = content_hash(self.path(number))
        file = self._mask_file(number)
        mask = content_hash(file) if file else content if self._has_mask(number) else None
        prepared = self._prepare(number, content, mask)
        self._keys[number] = prepared.keys
        return prepared

    def keep(self, prepared: Prepared) -> None:
        self.report.encoded += bool(prepared.done)
        self.report.reused += not prepared.done
        self._tensor_of.update(self._tensors(prepared))

    def entries(self) -> _InMemory:
        for number, keys in self._keys.items():
            if keys.latents not in self._tensor_of:
                self._missed(number)
        return _InMemory(self._keys, self._tensor_of)

    def _has(self, key: bytes) -> bool:
        return key in self._tensor_of


class DiskWork(_Work):
    """What no store has is encoded or taken over from another program's files.

    Args:
        old: finds those files.
        share: number of this process and of all.
        trusts: neither dates of pictures nor checksums are looked at.
    """

    def __init__(
        self,
        plan: DataPlan,
        recipes: Sequence[LatentRecipe],
        half: bool,
        latent: LatentSpec,
        old: OldFiles,
        writers: Writers,
        share: tuple[int, int],
        *,
        trusts: bool,
    ):
        super().__init__(plan, recipes, half)
        self._latent = latent
        self._old = old
        self._writers = writers
        self._share = share
        self._trusts = trusts
        self._store = Store(map(self._folder, plan.samples))
        self._there: dict[int, _Found] = {}  # what was there at the start
        # Whose VAE made them is not known.
        precision = "half" if half else "float32"
        self._old_recipes = [replace(recipe, encoding=f"{latent}/other/{precision}") for recipe in recipes]

    def open(self) -> None:
        self._store.load("none" if self._trusts else "changed")

    def missing(self) -> list[int]:
        """Samples of this process's share without entry."""
        places = {path: at for at, path in enumerate(dict.fromkeys(sample.path for sample in self._plan.samples))}
        rank, world_size = self._share
        missing = []
        for number, sample in enumerate(self._plan.samples):
            found = self._find(number)
            if found is not None:
                self._there[number] = found
                self.report.reused += 1
                self.report.foreign += found.is_foreign
            elif places[sample.path] % world_size == rank:
                missing.append(number)
        self.report.damaged_files = list(self._store.damaged_parts)
        return missing

    def prepare(self, number: int) -> Prepared | None:
        sample = self._plan.samples[number]
        if self._take_over(number):
            return None
        before = self._content(sample)
        content = before or content_hash(sample.path)
        prepared = self._prepare(number, content, self._mask(number, content, looks=True))
        if before is None:
            self._know(sample, sample.path, sample.bytes, sample.mtime_ns, content)
        with self._lock:
            if not prepared.needed:
                self.report.reused += 1
            elif self._store.damaged_keys.intersection(prepared.keys):
                self.report.damaged.append(sample.path)
            elif before is not None:
                self.report.outdated.append(sample.path)
        return prepared

    def keep(self, prepared: Prepared) -> None:
        sample = self._plan.samples[prepared.number]
        self.report.encoded += bool(prepared.done)
        self._put(sample, prepared.content, self._tensors(prepared))

    def close(self) -> None:
        with writing_problems(self._store.folders, "cache_latents_to_disk"):
            self._writers.close()

    def entries(self) -> _OnDisk:
        is_complete = len(self._there) == len(self._plan.samples)
        if not is_complete:
            self._store.load("none")
        rows, places = [], np.full((len(self._plan.samples), 3), -1, np.int32)
        for number in range(len(self._plan.samples)):
            found = self._there[number] if is_complete else self._find(number)
            if found is None:
                self._missed(number)
                continue
            for at, row in enumerate((found.latents, found.flipped, found.mask)):
                if row is not None:
                    places[number, at] = len(rows)
                    rows.append(row)
        return _OnDisk(StoredRows.of(self._store, rows), places, tuple(sample.path for sample in self._plan.samples))

    def _has(self, key: bytes) -> bool:
        return key in self._store

    def _folder(self, sample: Sample) -> Path:
        """The picture folder in whose store a sample's entries go."""
        return self._plan.subsets[sample.subset].folder or sample.path.parent

    def _content(self, sample: Sample) -> bytes | None:
        folder = self._folder(sample)
        return self._store.content(folder, sample.path, sample.bytes, sample.mtime_ns, trusts=self._trusts)

    def _mask(self, number: int, content: bytes, *, looks: bool = False) -> bytes | None:
        """Content of what a sample's mask comes from; None without mask, or if it is not known yet.

        Args:
            looks: look at a mask file that is not known.
        """
        sample, file = self._plan.samples[number], self._mask_file(number)
        if file is None:
            return content if self._has_mask(number) else None
        status = file.stat()
        folder = self._folder(sample)
        known = self._store.content(folder, file, status.st_size, status.st_mtime_ns, trusts=self._trusts)
        if known is None and looks:
            known = content_hash(file)
            self._know(sample, file, status.st_size, status.st_mtime_ns, known)
        return known

    def _know(self, sample: Sample, path: Path, size: int, mtime_ns: int, content: bytes) -> None:
        name = relative_name(self._folder(sample), path)
        with self._writing(sample) as writer:
            writer.know(FileContent(name, size, mtime_ns, content))

    def _find(self, number: int) -> _Found | None:
        """Where a sample's tensors are: made by us, or taken over from a file of another program that is still there."""
        sample = self._plan.samples[number]
        content = self._content(sample)
        if content is not None:
            mask = self._mask(number, content)
            keys = self._recipe(number).keys(sample, content, mask)
            if (mask is not None or not self._has_mask(number)) and (found := self._found(keys)):
                return found
        for old in self._old_files(number):
            if found := self._found(self._old_keys(number, old), is_foreign=True):
                return found
        return None

    def _old_files(self, number: int) -> Iterator[OldFile]:
        """Files of other programs that a sample's latents may come from; none where its mask is a file of its own."""
        return iter(()) if self._mask_file(number) else self._old.of(self._plan.samples[number])

    def _old_keys(self, number: int, old: OldFile) -> EntryKeys:
        sample = self._plan.samples[number]
        mask = old.identity if self._has_mask(number) else None
        return self._old_recipes[sample.subset].keys(sample, old.identity, mask)

    def _found(self, keys: EntryKeys, is_foreign: bool = False) -> _Found | None:
        rows = [self._store.row(key) for key in (keys.latents, keys.flipped, keys.mask)]
        wanted = [key is not None for key in (keys.latents, keys.flipped, keys.mask)]
        if any(row is None and is_wanted for row, is_wanted in zip(rows, wanted, strict=True)):
            return None
        return _Found(*rows, is_foreign)

    def _take_over(self, number: int) -> bool:
        """Copy latents that another program has stored; False where there are none that fit."""
        sample, recipe = self._plan.samples[number], self._recipe(number)
        for old in self._old_files(number):
            try:
                found = read_old(
                    old.path, sample, self._old.format, self._latent,
                    has_flipped=recipe.has_flipped, has_mask=self._has_mask(number),
                )  # fmt: skip
            except OldLatentsProblem:
                found = None
            if found is None:
                if not old.is_guess:
                    self.report.unfit.append(old.path)
                continue
            keys = self._old_keys(number, old)
            tensors = {keys.latents: self._stored(found.latents)}
            if keys.flipped is not None and found.flipped is not None:
                tensors[keys.flipped] = self._stored(found.flipped)
            if keys.mask is not None and found.mask is not None:
                tensors[keys.mask] = found.mask
            self._put(sample, old_source(old), tensors.items())
            with self._lock:
                self.report.reused += 1
                self.report.foreign += 1
            return True
        return False

    def _put(self, sample: Sample, source: bytes, tensors: Iterable[tuple[bytes, Tensor]]) -> None:
        with self._writing(sample) as writer:
            for key, tensor in tensors:
                is_mask = tensor.dtype == torch.uint8  # mostly flat
                writer.put(key, source, tensor, packs=True if is_mask else None)

    @contextmanager
    def _writing(self, sample: Sample) -> Iterator[PartWriter]:
        """The writer for a sample, for one thread at a time."""
        folder = self._folder(sample)
        with self._lock, writing_problems([folder], "cache_latents_to_disk"):
            yield self._writers.of(folder)


@dataclass(frozen=True)
class _Found:
    """Rows of a sample's tensors in the store."""

    latents: int
    flipped: int | None
    mask: int | None
    is_foreign: bool


class Entries(Protocol):
    """Where the finished tensors are."""

    def latents(self, number: int, is_flipped: bool) -> Tensor: ...

    def mask(self, number: int) -> Tensor | None:
        """Not mirrored, uint8."""


class _InMemory:
    def __init__(self, keys: dict[int, EntryKeys], tensors: dict[bytes, Tensor]):
        self._keys = keys
        self._tensors = tensors

    def latents(self, number: int, is_flipped: bool) -> Tensor:
        keys = self._keys[number]
        return self._tensors[keys.flipped if is_flipped and keys.flipped else keys.latents]

    def mask(self, number: int) -> Tensor | None:
        key = self._keys[number].mask
        return None if key is None else self._tensors.get(key)


class _OnDisk:
    def __init__(self, rows: StoredRows, places: np.ndarray, paths: tuple[Path, ...]):
        self._rows = rows
        self._places = places  # of latents, mirrored ones and mask of each sample in the rows; -1 where there is none
        self._paths = paths

    def latents(self, number: int, is_flipped: bool) -> Tensor:
        plain, flipped, _ = self._places[number]
        at = flipped if is_flipped and flipped >= 0 else plain
        if at < 0:
            raise CacheEntryProblem(f"the latents of {self._paths[number]} are not in the cache")
        return self._rows.read(at)

    def mask(self, number: int) -> Tensor | None:
        at = self._places[number, 2]
        return None if at < 0 else self._rows.read(at)


def old_source(old: OldFile) -> bytes:
    """What an entry comes from that another program has made."""
    return digest("old", old.identity)
