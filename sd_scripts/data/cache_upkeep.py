"""Looking after the caches of a data set: verifying every byte, dropping what nothing uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sd_scripts.data.cache_keys import caption_source, content_hash
from sd_scripts.data.cache_store import Purged, Store
from sd_scripts.data.cache_work import old_source
from sd_scripts.data.fixed_captions import fixed_captions
from sd_scripts.data.old_latents import FORMATS, OldFiles

if TYPE_CHECKING:
    from sd_scripts.data.plan import DataPlan


def verify(plan: DataPlan) -> tuple[int, list[Path]]:
    """Verify every entry of the stores beside the pictures; damaged ones are dropped.

    Returns:
        Number of entries that are whole, and the files that held damaged ones.
    """
    store = Store(_folders(plan)).load("all")
    return len(store), store.damaged_parts


def purge(plan: DataPlan) -> Purged:
    """Drop the entries that come from no picture, mask or caption of the data set as it is now, for whichever model.

    Entries that were taken over from another program's files stay as long as those.

    Raises:
        UserError: files cannot be written or removed.
    """
    store = Store(_folders(plan)).load()
    old = [OldFiles(family) for family in FORMATS]
    sources = {caption_source(caption) for caption in fixed_captions(plan)}
    for sample, folder in zip(plan.samples, _folders(plan), strict=True):
        known = store.content(folder, sample.path, sample.bytes, sample.mtime_ns)
        sources.add(known or content_hash(sample.path))
        sources.update(old_source(file) for files in old for file in files.of(sample))
    return store.purge(sources)


def _folders(plan: DataPlan) -> list[Path]:
    """The picture folder of each sample, beside which its store lies."""
    return [plan.subsets[sample.subset].folder or sample.path.parent for sample in plan.samples]
