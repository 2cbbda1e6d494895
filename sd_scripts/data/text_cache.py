"""Captions encoded once, in memory or in the stores beside the pictures. The text encoders can then leave the device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from sd_scripts.data.cache_files import CacheEntryProblem
from sd_scripts.data.cache_keys import caption_source, digest, text_key
from sd_scripts.data.cache_store import Store, StoredRows, Writers, first_process_first, writing_problems
from sd_scripts.data.fixed_captions import captions_by_sample, fixed_captions
from sd_scripts.data.words import counted, name_some
from sd_scripts.errors import UserError
from sd_scripts.models.base import Text

if TYPE_CHECKING:
    from torch import Tensor

    from sd_scripts.data.plan import DataPlan

logger = logging.getLogger(__name__)

OPTION = "cache_text_encoder_outputs_to_disk"
FIELDS = tuple(one.name for one in fields(Text))
Row = tuple["Tensor | None", ...]  # what the encoders make of one caption, in the order of FIELDS
EncodeText = Callable[[list[str]], Text]
Progress = Callable[[int, int], None]


@dataclass
class TextReport:
    """What building the cache did."""

    encoded: int = 0  # captions
    reused: int = 0
    damaged_files: list[Path] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """What a user should know, a sentence each."""
        yield f"captions: {counted(self.encoded, 'caption')} encoded, {self.reused} taken from the cache"
        if self.damaged_files:
            yield f"damaged entries in {name_some(self.damaged_files)} are made anew"


class TextCache:
    """Encoded captions by their text. In memory it stays with the training process; on disk loader processes read it.

    Args:
        keys: of the texts in memory; their rows.
        stored: the texts on disk.
        identity: of the encoders, and number format of what they make.
    """

    def __init__(self, keys: dict[bytes, Row], stored: _Stored | None, identity: tuple[str, str], report: TextReport):
        self.is_on_disk = stored is not None
        self.report = report
        self._memory = keys
        self._stored = stored
        self._identity = identity

    @classmethod
    def build(
        cls,
        plan: DataPlan,
        encode: EncodeText,
        *,
        fingerprint: str,
        dtype: str,
        to_disk: bool,
        batch_size: int = 1,
        others: Iterable[str] = (),
        packs: bool = False,
        rank: int = 0,
        world_size: int = 1,
        wait_for_all: Callable[[], None] = lambda: None,
        progress: Progress = lambda done, total: None,
        trust_files: bool = False,
    ) -> TextCache:
        """Encode every caption that has no valid entry yet; the empty one too where captions are dropped.

        On disk each process encodes its share, and all wait for each other. In memory each encodes all.

        Args:
            encode: what the text encoders make of captions.
            fingerprint: identity of the text encoders and of all options that decide what they make of a caption.
            dtype: number format of that.
            others: texts besides the captions, such as the prompts of samples; they are kept in memory.
            packs: compress entries.
            wait_for_all: comes back when every process has called it.
            progress: called with captions done and in all.
            trust_files: do not verify checksums.

        Raises:
            UserError: values are not finite, or nothing can be written.
        """
        identity = (fingerprint, dtype)
        captions = fixed_captions(plan)
        report = TextReport()
        disk = None
        if to_disk:
            disk = _Disk(plan, captions, identity, Writers(packs))
            with first_process_first(rank, wait_for_all):
                disk.open(trusts=trust_files)
            report.damaged_files = disk.store.damaged_parts
            missing = disk.missing(rank, world_size)
            report.reused = len(captions) - len(disk.missing(0, 1))
            report.encoded = len(missing)
            with writing_problems(disk.store.folders, OPTION):
                _encode_all(missing, encode, batch_size, disk.keep, progress)
                disk.writers.close()
            wait_for_all()
        memory: dict[bytes, Row] = {}
        if disk is None:
            report.encoded = len(captions)
            others = list(dict.fromkeys([*captions, *others]))
        else:
            others = list(dict.fromkeys(others).keys() - set(captions))

        def keep(text: str, row: Row) -> None:
            memory[text_key(text, *identity)] = row

        _encode_all(others, encode, batch_size, keep, progress if disk is None else lambda done, total: None)
        for line in report.lines():
            logger.info(line)
        return cls(memory, disk.stored() if disk else None, identity, report)

    def of(self, captions: Sequence[str]) -> Text:
        """What the encoders make of these captions, on the CPU; shorter texts are padded to the longest.

        Raises:
            CacheEntryProblem: a file was removed or damaged since, or a caption was never encoded.
        """
        return _stack([self._row(caption) for caption in captions])

    def _row(self, caption: str) -> Row:
        key = text_key(caption, *self._identity)
        row = self._memory.get(key)
        if row is None and self._stored is not None:
            row = self._stored.row(key)
        if row is None:
            raise CacheEntryProblem(f"the caption {caption[:60]!r} is not in the cache of encoded captions")
        return row


class _Disk:
    """Captions in the stores, each in that of the first picture that has it."""

    def __init__(self, plan: DataPlan, captions: Sequence[str], identity: tuple[str, str], writers: Writers):
        self._identity = identity
        self._captions = captions
        self._folders: dict[str, Path] = {}
        for caption, sample in captions_by_sample(plan):
            self._folders.setdefault(caption, plan.subsets[sample.subset].folder or sample.path.parent)
        for caption in captions:  # the empty one, where captions are dropped
            self._folders.setdefault(caption, next(iter(self._folders.values())))
        self.store = Store(self._folders.values())
        self.writers = writers

    def open(self, *, trusts: bool) -> None:
        self.store.load("none" if trusts else "changed")

    def missing(self, rank: int, world_size: int) -> list[str]:
        """Captions of a process's share without entry."""
        return [
            caption
            for at, caption in enumerate(self._captions)
            if at % world_size == rank and _rows(self.store, self._key(caption)) is None
        ]

    def keep(self, caption: str, row: Row) -> None:
        key, flags = self._key(caption), sum(1 << at for at, values in enumerate(row) if values is not None)
        # From the last to the first: an entry whose first field is there is whole.
        for at, values in reversed(list(enumerate(row))):
            if values is not None:
                writer = self.writers.of(self._folders[caption])
                writer.put(_field_key(key, at), caption_source(caption), values, flags=flags)

    def stored(self) -> _Stored:
        self.store.load("none")
        places, rows = {}, []
        for caption in self._captions:
            found = _rows(self.store, self._key(caption))
            if found is not None:
                places[self._key(caption)] = tuple(
                    None if row is None else len(rows) + at for at, row in enumerate(found)
                )
                rows += [row if row is not None else 0 for row in found]
        return _Stored(StoredRows.of(self.store, rows), places)

    def _key(self, caption: str) -> bytes:
        return text_key(caption, *self._identity)


@dataclass(frozen=True)
class _Stored:
    rows: StoredRows
    places: dict[bytes, tuple[int | None, ...]]

    def row(self, key: bytes) -> Row | None:
        places = self.places.get(key)
        return None if places is None else tuple(None if at is None else self.rows.read(at) for at in places)


def _rows(store: Store, key: bytes) -> tuple[int | None, ...] | None:
    """Rows of a caption's fields in the store; None unless all are there."""
    first = store.row(_field_key(key, 0))
    if first is None:
        return None
    flags = int(store.records[first]["flags"])
    rows = tuple(store.row(_field_key(key, at)) if flags >> at & 1 else None for at in range(len(FIELDS)))
    return rows if all(row is not None or not flags >> at & 1 for at, row in enumerate(rows)) else None


def _field_key(key: bytes, at: int) -> bytes:
    return key if at == 0 else digest(key.hex(), FIELDS[at])


def _encode_all(
    captions: Sequence[str], encode: EncodeText, batch_size: int, keep: Callable[[str, Row], None], progress: Progress
) -> None:
    """Encode in batches; what is done is stored by a thread while the next batch is encoded."""
    progress(0, len(captions))
    with ThreadPoolExecutor(1) as keeper:
        storing: Future[None] | None = None
        for start in range(0, len(captions), batch_size):
            batch = list(captions[start : start + batch_size])
            text = encode(batch)
            if storing is not None:
                storing.result()
            storing = keeper.submit(_keep_batch, batch, text, keep)
            progress(start + len(batch), len(captions))
        if storing is not None:
            storing.result()


def _keep_batch(captions: list[str], text: Text, keep: Callable[[str, Row], None]) -> None:
    columns = [None if (values := getattr(text, name)) is None else values.detach().to("cpu") for name in FIELDS]
    for at, caption in enumerate(captions):
        row = tuple(None if values is None else values[at].clone() for values in columns)
        if any(
            values is not None and values.is_floating_point() and not torch.isfinite(values).all() for values in row
        ):
            raise UserError(
                f"the text encoder made values that are not finite of the caption {caption[:60]!r}"
                ' - set mixed_precision = "bf16" or "no"'
            )
        keep(caption, row)


def _stack(rows: Sequence[Row]) -> Text:
    columns = {
        name: None if rows[0][at] is None else _padded([row[at] for row in rows]) for at, name in enumerate(FIELDS)
    }
    return Text(**columns)


def _padded(values: list[Tensor]) -> Tensor:
    """Tensors stacked; shorter ones get zeros at the end of their first axis."""
    if len({one.shape for one in values}) == 1:
        return torch.stack(values)
    return torch.nn.utils.rnn.pad_sequence(values, batch_first=True)
