"""Encodes the pictures that a cache lacks: they are decoded ahead by threads, and stored behind by another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from sd_scripts.data.images import UNREADABLE_REMEDY, PictureProblem
from sd_scripts.data.words import counted
from sd_scripts.data.workers import usable_cores
from sd_scripts.errors import UserError
from sd_scripts.seeds import seed_of

if TYPE_CHECKING:
    from torch import Tensor

    from sd_scripts.data.cache_keys import EntryKeys
    from sd_scripts.data.pictures import Picture

Encode = Callable[["Tensor", list[int]], "Tensor"]
Progress = Callable[[int, int], None]
AHEAD = 2  # batches that are decoded, and that are stored, while one is encoded
MOST_THREADS = 16


@dataclass
class Prepared:
    """A picture that is ready to be encoded, as far as its tensors are not there yet."""

    number: int  # of the sample
    path: Path
    content: bytes
    keys: EntryKeys
    needed: frozenset[bytes]  # keys of the tensors to make; empty: all are there already
    picture: Picture | None = None
    done: dict[bool, Tensor] = field(default_factory=dict)  # by mirrored or not

    @property
    def flips(self) -> list[bool]:
        """The encodings to make."""
        both = ((False, self.keys.latents), (True, self.keys.flipped))
        return [is_flipped for is_flipped, key in both if key in self.needed]


@dataclass(frozen=True)
class Item:
    """One encoding."""

    prepared: Prepared
    is_flipped: bool
    pixels: Tensor  # (3, h, w) uint8

    @property
    def seed(self) -> int:
        """Of the VAE's draw: the same for the same content, wherever the picture lies."""
        return seed_of("latent", self.prepared.content.hex(), self.is_flipped)


class Work(Protocol):
    """What there is to encode, and where the results go. `prepare` runs in many threads, `keep` in one."""

    @property
    def skips_bad_pictures(self) -> bool: ...

    def path(self, number: int) -> Path:
        """The picture of a sample."""

    def encodings(self, number: int) -> int:
        """Encodings that a sample may need."""

    def prepare(self, number: int) -> Prepared | None:
        """A sample with its picture; None if nothing is to be done for it any more."""

    def leave_out(self, number: int, problem: str) -> None:
        """The picture cannot be read."""

    def keep(self, prepared: Prepared) -> None:
        """Store the latents and the mask of a picture."""


class Filler:
    """Encodes samples.

    Args:
        encode: latents (b, c, h, w) of uint8 pixels (b, 3, h, w), with a seed for each.
        encode_exactly: the same in full precision, for pictures of which `encode` makes values that are not finite.
        shape: of the latents of a picture of h x w px.
    """

    def __init__(
        self,
        work: Work,
        encode: Encode,
        encode_exactly: Encode | None,
        shape: Callable[[int, int], tuple[int, int, int]],
        *,
        batch_size: int,
        processes: int = 1,
    ):
        self.exact: list[Path] = []  # pictures that were encoded in full precision
        self._work = work
        self._encode = encode
        self._encode_exactly = encode_exactly
        self._shape = shape
        self._batch_size = batch_size
        self._threads = min(MOST_THREADS, max(2, usable_cores() // processes))

    def fill(self, numbers: Sequence[int], progress: Progress) -> None:
        """Encode these samples; those of one shape should be neighbours.

        Raises:
            UserError: a picture cannot be read and that is not allowed, or its latents are not finite.
        """
        total = sum(map(self._work.encodings, numbers))
        progress(0, total)
        self._done = 0
        with ThreadPoolExecutor(self._threads) as readers, ThreadPoolExecutor(1) as self._keeper:
            self._storing: deque[Future[list[Item] | None]] = deque()
            try:
                for batch in batched(self._items(numbers, readers), self._batch_size):
                    latents = self._encode(torch.stack([item.pixels for item in batch]), [item.seed for item in batch])
                    self._storing.append(self._keeper.submit(self._store, batch, latents))
                    self._finish_all_but(AHEAD)
                    self._done += len(batch)
                    progress(self._done, total)
                self._finish_all_but(0)
            except BaseException:
                readers.shutdown(cancel_futures=True)
                raise
        progress(total, total)

    def _items(self, numbers: Sequence[int], readers: ThreadPoolExecutor) -> Iterator[Item]:
        """Every encoding to make, decoded ahead of time."""
        waiting: deque[tuple[int, Future[tuple[Prepared | None, list[Item]]]]] = deque()
        left = iter(numbers)
        window = AHEAD * self._batch_size + self._threads
        while True:
            while len(waiting) < window and (number := next(left, None)) is not None:
                waiting.append((number, readers.submit(self._prepare, number)))
            if not waiting:
                return
            number, future = waiting.popleft()
            try:
                prepared, items = future.result()
            except (PictureProblem, OSError) as problem:
                if not self._work.skips_bad_pictures:
                    raise UserError(f"{self._work.path(number)} {problem} - {UNREADABLE_REMEDY}") from problem
                self._work.leave_out(number, str(problem))
                prepared, items = None, []
            self._done += self._work.encodings(number) - len(items)
            if prepared is not None and not items:  # at most a mask
                self._storing.append(self._keeper.submit(self._work.keep, prepared))
            yield from items

    def _prepare(self, number: int) -> tuple[Prepared | None, list[Item]]:
        prepared = self._work.prepare(number)
        if prepared is None:
            return None, []
        flips = prepared.flips
        return prepared, [Item(prepared, is_flipped, _pixels(prepared.picture, is_flipped)) for is_flipped in flips]

    def _store(self, batch: list[Item], latents: Tensor) -> list[Item]:
        """Store the pictures that are complete now. Those of which something is not finite come back."""
        failed = []
        for item, values in zip(batch, latents.detach().to("cpu"), strict=True):
            height, width = item.pixels.shape[1:]
            if values.shape != self._shape(height, width):
                raise ValueError(f"encode gave {tuple(values.shape)}, the cache needs {self._shape(height, width)}")
            if torch.isfinite(values).all():
                self._complete(item, values)
            else:
                failed.append(item)
        return failed

    def _complete(self, item: Item, values: Tensor) -> None:
        item.prepared.done[item.is_flipped] = values
        if len(item.prepared.done) == len(item.prepared.flips):
            self._work.keep(item.prepared)

    def _finish_all_but(self, count: int) -> None:
        """Wait until at most `count` batches are still being stored."""
        while len(self._storing) > count:
            for item in self._storing.popleft().result() or ():
                self._keeper.submit(self._complete, item, self._exactly(item)).result()

    def _exactly(self, item: Item) -> Tensor:
        """Latents (c, h, w) in full precision, where half was too narrow."""
        values = None
        if self._encode_exactly is not None:
            values = self._encode_exactly(item.pixels[None], [item.seed])[0].detach().to("cpu")
        if values is None or not torch.isfinite(values).all():
            raise UserError(
                f"the VAE made latents of {item.prepared.path} that are not finite - set no_half_vae = true:"
                " this VAE may need full precision; or the picture or the VAE file is damaged"
            )
        self.exact.append(item.prepared.path)
        return values

    def lines(self) -> Iterator[str]:
        """What a user should know."""
        if self.exact:
            count = counted(len(dict.fromkeys(self.exact)), "picture")
            yield f"the VAE overflowed in half precision; encoded in full precision: {count} - no_half_vae avoids it"


def _pixels(picture: Picture, is_flipped: bool) -> Tensor:
    rgb = picture.rgb[:, ::-1] if is_flipped else picture.rgb
    return torch.from_numpy(np.ascontiguousarray(rgb.transpose(2, 0, 1)))


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of at most `size` items of one shape, in order."""
    batch: list[Item] = []
    for item in items:
        if batch and (len(batch) == size or item.pixels.shape != batch[0].pixels.shape):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch
