"""Latents encoded once instead of in each step, in memory or in stores beside the pictures."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sd_scripts.data.cache_fill import Encode, Filler, Progress
from sd_scripts.data.cache_keys import LatentRecipe
from sd_scripts.data.cache_store import Writers, first_process_first
from sd_scripts.data.cache_work import CacheReport, DiskWork, Entries, MemoryWork
from sd_scripts.data.old_latents import OldFiles

if TYPE_CHECKING:
    from torch import Tensor

    from sd_scripts.data.plan import DataPlan
    from sd_scripts.models.base import LatentSpec

logger = logging.getLogger(__name__)


class LatentCache:
    """Latents by sample number. In memory it stays with the training process; on disk every loader process reads it."""

    def __init__(self, entries: Entries, report: CacheReport, *, is_on_disk: bool):
        self.is_on_disk = is_on_disk
        self.report = report
        self._entries = entries

    @classmethod
    def build(
        cls,
        plan: DataPlan,
        encode: Encode,
        *,
        latent: LatentSpec,
        fingerprint: str,
        to_disk: bool,
        family: str = "sd1",
        batch_size: int = 1,
        half: bool = True,
        encode_exactly: Encode | None = None,
        packs: bool = False,
        rank: int = 0,
        world_size: int = 1,
        wait_for_all: Callable[[], None] = lambda: None,
        progress: Progress = lambda done, total: None,
        trust_files: bool = False,
    ) -> LatentCache:
        """Encode every picture that has no valid entry yet.

        On disk each process encodes its share, and all wait for each other. In memory each encodes all.

        Args:
            encode: latents (b, c, h, w), scaled, of uint8 pixels (b, 3, h, w) with a seed for each.
            fingerprint: identity of the VAE and the precision it runs in.
            family: model family: whose files of other programs are read.
            half: store half precision, where values fit into it.
            encode_exactly: encodes in full precision what `encode` makes not finite of.
            packs: compress entries.
            wait_for_all: comes back when every process has called it.
            progress: called with encodings done and in all.
            trust_files: take stores as they are: neither compare dates of pictures nor verify checksums.

        Raises:
            UserError: a picture cannot be read (unless those are skipped), latents are not finite, the disk is full.
        """
        precision = "half" if half else "float32"
        recipes = tuple(LatentRecipe.of(subset.options, latent, fingerprint, precision) for subset in plan.subsets)
        share = (rank, world_size)
        work: MemoryWork | DiskWork = (
            DiskWork(plan, recipes, half, latent, OldFiles(family), Writers(packs), share, trusts=trust_files)
            if to_disk
            else MemoryWork(plan, recipes, half)
        )
        with first_process_first(rank, wait_for_all):
            work.open()
        filler = Filler(
            work,
            encode,
            encode_exactly,
            lambda height, width: (latent.channels, height // latent.downscale, width // latent.downscale),
            batch_size=batch_size,
            processes=world_size,
        )
        missing = sorted(work.missing(), key=lambda number: (plan.samples[number].bucket, number))
        try:
            filler.fill(missing, progress)
        finally:
            work.close()
        wait_for_all()
        cache = cls(work.entries(), work.report, is_on_disk=to_disk)
        for line in (*work.report.lines(), *filler.lines()):
            logger.info(line)
        return cache

    @property
    def unreadable(self) -> dict[Path, str]:
        """Pictures that have no entry because they cannot be read, with the reason."""
        return self.report.unreadable

    def latents(self, number: int, is_flipped: bool) -> tuple[Tensor, Tensor | None]:
        """Latents (c, h, w) as they are stored, and mask (picture h, picture w) in 0…1 or None, of one sample.

        Raises:
            CacheEntryProblem: its file was removed or damaged since.
        """
        mask = self._entries.mask(number)
        if mask is not None:
            mask = (mask.flip(1) if is_flipped else mask).float() / 255
        return self._entries.latents(number, is_flipped), mask
