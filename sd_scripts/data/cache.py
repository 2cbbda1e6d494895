"""Latents encoded once instead of in each step, in memory or in files beside the pictures."""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from sd_scripts.data.cache_files import (
    CacheFormat,
    Entry,
    EntrySpec,
    check_entry,
    content_hash,
    entry_spec,
    read_entry,
    write_entry,
)
from sd_scripts.data.images import UNREADABLE_REMEDY, PictureProblem
from sd_scripts.data.pictures import Picture, load_picture
from sd_scripts.data.words import counted, name_some
from sd_scripts.errors import UserError
from sd_scripts.seeds import seed_of

if TYPE_CHECKING:
    from torch import Tensor

    from sd_scripts.data.plan import DataPlan
    from sd_scripts.models.base import LatentSpec

logger = logging.getLogger(__name__)

Encode = Callable[["Tensor", list[int]], "Tensor"]
AHEAD = 2  # batches that are decoded while one is encoded


@dataclass
class CacheReport:
    """What building the cache did."""

    encoded: int = 0  # pictures
    reused: int = 0
    foreign: int = 0  # of those, made by another program
    damaged: list[Path] = field(default_factory=list)
    stale: list[Path] = field(default_factory=list)
    unreadable: dict[Path, str] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """What a user should know, a sentence each."""
        yield f"latents: {counted(self.encoded, 'picture')} encoded, {self.reused} taken from the cache"
        if self.foreign:
            yield (
                f"latents of {counted(self.foreign, 'picture')} come from cache files made by another program;"
                " delete those if they were made with another VAE"
            )
        if self.damaged:
            yield f"made anew: {counted(len(self.damaged), 'damaged cache file')}: {name_some(self.damaged)}"
        if self.stale:
            yield f"made anew: {counted(len(self.stale), 'cache file')} that no longer fitted: {name_some(self.stale)}"
        for path, problem in self.unreadable.items():
            yield f"{path} {problem} and is left out"


class LatentCache:
    """Latents by sample number. In memory it stays with the training process; on disk every loader process reads it."""

    def __init__(self, specs: dict[int, EntrySpec], latent: LatentSpec, form: CacheFormat, *, is_on_disk: bool):
        self.is_on_disk = is_on_disk
        self.report = CacheReport()
        self._specs = specs
        self._latent = latent
        self._form = form
        self._memory = _Memory()

    @classmethod
    def build(
        cls,
        plan: DataPlan,
        encode: Encode,
        *,
        latent: LatentSpec,
        fingerprint: str,
        to_disk: bool,
        batch_size: int = 1,
        rank: int = 0,
        world_size: int = 1,
        progress: Callable[[int, int], None] = lambda done, total: None,
        form: CacheFormat | None = None,
        trust_files: bool = False,
    ) -> LatentCache:
        """Encode every picture that has no valid entry yet.

        On disk each process encodes its share; let all finish before the cache is used. In memory each encodes all.

        Args:
            encode: latents (b, c, h, w), scaled, of uint8 pixels (b, 3, h, w) with a seed for each.
            fingerprint: identity of the VAE and the precision it runs in.
            progress: called with encodings done and in all.
            form: names of files, SD's if unset.
            trust_files: take files that exist without a look at what they were made from.

        Raises:
            UserError: a picture cannot be read (unless those are skipped), latents are not finite, the disk is full.
        """
        form = form or CacheFormat()
        specs = {
            number: entry_spec(sample, plan.subsets[sample.subset].options, latent, fingerprint, form)
            for number, sample in enumerate(plan.samples)
        }
        cache = cls(specs, latent, form, is_on_disk=to_disk)
        missing = cache._missing(trust_files) if to_disk else list(specs)
        if to_disk:
            paths = {path: at for at, path in enumerate(dict.fromkeys(specs[number].path for number in missing))}
            missing = [number for number in missing if paths[specs[number].path] % world_size == rank]
        cache._encode_all(plan, missing, encode, batch_size, progress)
        for line in cache.report.lines():
            logger.info(line)
        return cache

    @property
    def unreadable(self) -> dict[Path, str]:
        """Pictures that have no entry because they cannot be read, with the reason."""
        return self.report.unreadable

    def latents(self, number: int, is_flipped: bool) -> tuple[Tensor, Tensor | None]:
        """Latents (c, h, w) and mask (picture h, picture w) in 0…1 or None, of one sample.

        Raises:
            CacheEntryProblem: its file was removed or damaged since.
        """
        if not self.is_on_disk:
            return self._memory.get(number, is_flipped)
        entry = read_entry(self._specs[number], self._latent, self._form)
        mask = None
        if entry.mask is not None:
            mask = torch.from_numpy(np.ascontiguousarray(entry.mask[:, ::-1] if is_flipped else entry.mask))
        return torch.from_numpy(entry.flipped if is_flipped and entry.flipped is not None else entry.latents), mask

    def _missing(self, trust_files: bool) -> list[int]:
        """Samples whose entry must be made."""
        if trust_files:
            states = ["good" if spec.path.is_file() else "missing" for spec in self._specs.values()]
        else:
            with ThreadPoolExecutor(min(8, (os.cpu_count() or 1) * 2)) as pool:
                states = list(pool.map(check_entry, self._specs.values(), chunksize=16))
        missing = []
        for (number, spec), state in zip(self._specs.items(), states, strict=True):
            match state:
                case "good" | "foreign":
                    self.report.reused += 1
                    self.report.foreign += state == "foreign"
                    continue
                case "damaged":
                    self.report.damaged.append(spec.path)
                case "stale":
                    self.report.stale.append(spec.path)
            missing.append(number)
        return missing

    def _encode_all(
        self, plan: DataPlan, missing: list[int], encode: Encode, batch_size: int, progress: Callable[[int, int], None]
    ) -> None:
        missing = sorted(missing, key=lambda number: (self._specs[number].sample.bucket, number))
        total = sum(1 + self._specs[number].has_flipped for number in missing)
        done = 0
        progress(done, total)
        with ThreadPoolExecutor(2) as readers, ThreadPoolExecutor(1) as writer:
            writes: deque[Future] = deque()
            items = self._items(plan, missing, readers, batch_size)
            for batch in _batched(items, batch_size):
                for ready in self._encode(batch, encode):
                    writes.append(writer.submit(self._keep, ready))
                while len(writes) > AHEAD * batch_size:
                    writes.popleft().result()
                done += len(batch)
                progress(done, total)
            for write in writes:
                write.result()

    def _items(
        self, plan: DataPlan, missing: Sequence[int], readers: ThreadPoolExecutor, batch_size: int
    ) -> Iterator[_Item]:
        """Every picture to encode, as it is and mirrored, decoded ahead of time."""

        def prepare(number: int) -> _Prepared:
            sample = plan.samples[number]
            picture = load_picture(sample, plan.subsets[sample.subset].options)
            return _Prepared(number, picture, content_hash(sample.path))

        waiting: deque[tuple[int, Future[_Prepared]]] = deque()
        numbers = iter(missing)
        while True:
            while len(waiting) < AHEAD * batch_size + 1 and (number := next(numbers, None)) is not None:
                waiting.append((number, readers.submit(prepare, number)))
            if not waiting:
                return
            number, future = waiting.popleft()
            path = plan.samples[number].path
            try:
                prepared = future.result()
            except (PictureProblem, OSError) as problem:
                if not plan.skips_bad_pictures:
                    raise UserError(f"{path} {problem} - {UNREADABLE_REMEDY}") from problem
                self.report.unreadable[path] = str(problem)
                continue
            for is_flipped in (False, True)[: 1 + self._specs[number].has_flipped]:
                yield _Item(prepared, is_flipped)

    def _encode(self, batch: list[_Item], encode: Encode) -> Iterator[_Prepared]:
        """Encode a batch; yields the pictures that are now complete."""
        pixels = torch.from_numpy(np.stack([item.rgb.transpose(2, 0, 1) for item in batch]))
        seeds = [seed_of("latent", item.prepared.content, item.is_flipped) for item in batch]
        latents = encode(pixels, seeds).detach().to("cpu")
        for item, values in zip(batch, latents, strict=True):
            prepared, spec = item.prepared, self._specs[item.prepared.number]
            if values.shape != spec.shape:
                raise ValueError(f"encode gave {tuple(values.shape)}, the cache needs {spec.shape}")
            if not torch.isfinite(values).all():
                raise UserError(
                    f"the VAE made latents of {spec.sample.path} that are not finite - set no_half_vae = true:"
                    " this VAE may need full precision"
                )
            prepared.done[item.is_flipped] = values
            if len(prepared.done) == 1 + spec.has_flipped:
                yield prepared

    def _keep(self, prepared: _Prepared) -> None:
        """Put a picture's finished latents where they belong."""
        spec = self._specs[prepared.number]
        self.report.encoded += 1
        if not self.is_on_disk:
            self._memory.put(prepared.number, prepared.done, prepared.picture.mask)
            return
        mask = prepared.picture.mask
        entry = Entry(
            latents=prepared.done[False].float().numpy(),
            flipped=prepared.done[True].float().numpy() if spec.has_flipped else None,
            mask=None if mask is None else mask.astype(np.float32) / 255,
        )
        try:
            write_entry(spec, entry, prepared.content, self._latent, self._form)
        except OSError as problem:
            raise UserError(_write_problem(spec.path, problem)) from problem


@dataclass
class _Prepared:
    """A decoded picture and its latents so far."""

    number: int
    picture: Picture
    content: str
    done: dict[bool, Tensor] = field(default_factory=dict)  # by mirrored or not


@dataclass(frozen=True)
class _Item:
    prepared: _Prepared
    is_flipped: bool

    @property
    def rgb(self) -> np.ndarray:
        return self.prepared.picture.flipped().rgb if self.is_flipped else self.prepared.picture.rgb


class _Memory:
    """Latents and masks in memory."""

    def __init__(self) -> None:
        self._latents: dict[tuple[int, bool], Tensor] = {}
        self._masks: dict[int, Tensor] = {}  # uint8

    def put(self, number: int, latents: dict[bool, Tensor], mask: np.ndarray | None) -> None:
        for is_flipped, values in latents.items():
            self._latents[number, is_flipped] = values.clone()  # not a view that keeps a whole batch alive
        if mask is not None:
            self._masks[number] = torch.from_numpy(np.ascontiguousarray(mask))

    def get(self, number: int, is_flipped: bool) -> tuple[Tensor, Tensor | None]:
        mask = self._masks.get(number)
        if mask is not None:
            mask = (mask.flip(1) if is_flipped else mask).float() / 255
        return self._latents[number, is_flipped], mask


def _batched(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """Lists of at most `size` items of one shape, in order."""
    batch: list[_Item] = []
    for item in items:
        if batch and (len(batch) == size or item.rgb.shape != batch[0].rgb.shape):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def _write_problem(path: Path, problem: OSError) -> str:
    if problem.errno == errno.ENOSPC:
        return f"no space left to write {path} - free some, or set cache_latents_to_disk = false"
    return (
        f"cannot write {path}: {problem.strerror or problem} - make the folder writable,"
        " or set cache_latents_to_disk = false to keep the cache in memory"
    )
