"""Reads a subset's source: which pictures it has, with which captions, masks and guiding pictures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from sd_scripts.data import metadata_file, pairs
from sd_scripts.data.captions import caption_stems, normal_extension
from sd_scripts.data.entries import Entry, Found, SubsetContent
from sd_scripts.data.listing import FolderListing
from sd_scripts.data.parallel import in_parts
from sd_scripts.data.preflight import check_listing
from sd_scripts.data.scan import FolderScan, Scanner
from sd_scripts.data.sources import Subset
from sd_scripts.data.words import shown
from sd_scripts.errors import UserError
from sd_scripts.options.dataset import DatasetOptions
from sd_scripts.options.problems import Problem, error, warning

Role = Literal["control", "mask"]  # what pictures of the same name in a second folder are


class SubsetReader:
    """Reads subsets; a folder that several of them use is looked at once."""

    def __init__(self, options: DatasetOptions, scanner: Scanner, role: Role | None):
        """
        Args:
            role: what second pictures are; None: they have no effect.
        """
        self._scanner = scanner
        self._role = role
        self._skips = options.on_bad_image == "skip"
        self._captions: dict[tuple[Path, str], _Captions] = {}
        self._names: dict[str, set[str]] = {}  # of the pictures of each folder
        self._files: dict[Path, dict[str, tuple[int, int]]] = {}
        # Where problems of the source as a whole are shown.
        sources = ("dataset_config", "dataset_class")
        self._option = next((name for name in sources if getattr(options, name)), "train_data_dir")
        self._metadata_option = "dataset_config" if options.dataset_config else "in_json"

    def read(self, subset: Subset) -> SubsetContent:
        """All that the source gives.

        Raises:
            UserError: a folder or metadata file cannot be read.
        """
        if subset.metadata_file is not None:
            content = self._read_metadata(subset, subset.metadata_file)
        elif subset.entries is not None:
            content = self._read_entries(subset.entries, self._option)
        else:
            content = self._read_folder(subset)
        if subset.conditioning_dir is not None or self._role == "control":
            self._add_pairs(subset, content)
        return content

    def _read_folder(self, subset: Subset) -> SubsetContent:
        assert subset.folder is not None
        scan = self._scanner.folder(subset.folder, trusts_index=subset.options.cache_info)
        listing, headers = scan.listing, scan.headers
        captions = self._captions_of(scan, subset.options)
        content = SubsetContent(
            problems=check_listing(listing, self._option) + captions.problems, extension=captions.extension
        )
        content.bad = {listing.path / name: problem for name, problem in scan.problems.items()}
        content.bad |= dict.fromkeys(listing.broken_links, "is a link to a file that does not exist")
        fallback = ((subset.class_tokens,), "folder") if subset.class_tokens else ((), "none")
        for name, size, mtime_ns in listing.pictures:
            if name in headers:
                lines = captions.lines.get(name)
                said = fallback if lines is None else (lines, "file")
                content.found.append(Found(listing.path / name, size, mtime_ns, headers[name], *said))
        return content

    def _captions_of(self, scan: FolderScan, options: DatasetOptions) -> _Captions:
        extension = _caption_extension(scan.listing, options)
        key = (scan.listing.path, extension)
        if key not in self._captions:
            self._captions[key] = _Captions(scan, extension, self._option)
        return self._captions[key]

    def _read_metadata(self, subset: Subset, path: Path) -> SubsetContent:
        option = self._metadata_option
        records, problems = metadata_file.read_records(path, option)
        finder = metadata_file.Finder((subset.folder or path.parent).absolute(), self._names_in)
        places = [finder.find(record.key) for record in records]
        pairs = [(record, place) for record, place in zip(records, places, strict=True) if place is not None]
        missing = [record.key for record, place in zip(records, places, strict=True) if place is None]
        entries = []
        for record, place in pairs:
            lines = metadata_file.record_lines(record, subset.options)
            entries.append(Entry(Path(*place), lines, "file" if lines else "none"))
        content = self._read_entries(entries, option)
        content.extension = path.suffix
        content.tag_counts = metadata_file.count_tags([record for record, _ in pairs], subset.options.caption_separator)
        content.problems += problems
        content.problems += metadata_file.missing_pictures(
            missing, len(records), path, are_skipped=self._skips, option=option
        )
        textless = [record.key for record in records if not (record.caption or record.tags)]
        content.problems += metadata_file.missing_captions(textless, len(records), path, option)
        sizes = {picture.path: picture.header.size for picture in content.found}
        stated = [(record, sizes.get(entry.path)) for (record, _), entry in zip(pairs, entries, strict=True)]
        content.problems += metadata_file.check_sizes(stated, path)
        used: dict[str, set[str]] = {}
        for _, (folder, name) in pairs:
            used.setdefault(folder, set()).add(name)
        unlisted = [name for folder, names in used.items() for name in sorted(self._names_in(folder) - names)]
        content.problems += metadata_file.unlisted_pictures(unlisted, path, option)
        return content

    def _read_entries(self, entries: list[Entry] | tuple[Entry, ...], option: str) -> SubsetContent:
        content = SubsetContent()
        taken: set[Path] = set()
        doubles = []
        for entry in entries:
            if entry.path in taken:
                doubles.append(entry.path)
                continue
            taken.add(entry.path)
            folder, name = entry.path.parent, entry.path.name
            files = self._files_in(folder)
            if name not in files:
                content.bad[entry.path] = self._why_not(folder, name)
                continue
            if bad := self._bad_seconds(entry):
                content.bad |= bad
                continue
            header = self._scanner.folder(folder).headers[name]
            content.found.append(
                Found(entry.path, *files[name], header, entry.lines, entry.caption_source, entry.mask, entry.control)
            )
        if doubles:
            text = f"{len(doubles)} pictures stand twice, the second time is not used: {shown(doubles[0])}"
            content.problems.append(warning(option, text, "remove one, or raise num_repeats"))
        return content

    def _bad_seconds(self, entry: Entry) -> dict[Path, str]:
        """The mask and the guiding picture that an entry names and that cannot be used."""
        return {
            second: self._why_not(second.parent, second.name)
            for second in (entry.mask, entry.control)
            if second is not None and second.name not in self._files_in(second.parent)
        }

    def _files_in(self, folder: Path) -> dict[str, tuple[int, int]]:
        """Bytes and time of the usable pictures of a folder, by name; none if there is no such folder."""
        if folder not in self._files:
            self._files[folder] = {}
            if folder.is_dir():
                scan = self._scanner.folder(folder)
                pictures = (picture for picture in scan.listing.pictures if picture.name in scan.headers)
                self._files[folder] = {name: (size, mtime_ns) for name, size, mtime_ns in pictures}
        return self._files[folder]

    def _names_in(self, folder: str) -> set[str]:
        if folder not in self._names:
            place = Path(folder)
            names = self._scanner.folder(place).listing.pictures if place.is_dir() else ()
            self._names[folder] = {picture.name for picture in names}
        return self._names[folder]

    def _why_not(self, folder: Path, name: str) -> str:
        if not folder.is_dir():
            return "does not exist"
        return self._scanner.folder(folder).problems.get(name, "does not exist or is no picture of a kind that is read")

    def _add_pairs(self, subset: Subset, content: SubsetContent) -> None:
        """Masks or guiding pictures from the second folder."""
        folder, role = subset.conditioning_dir, self._role
        if subset.is_reg or not content.found:
            return
        if subset.entries is not None and folder is None:
            return self._check_given(content)
        if folder is None or not folder.is_dir():
            given = "is not set" if folder is None else f"{shown(folder)} is no folder"
            content.problems.append(error("conditioning_data_dir", given, "choose the folder of the second pictures"))
            return None
        if role is None:
            remedy = "set masked_loss = true to use its pictures as masks"
            content.problems.append(warning("conditioning_data_dir", "has no effect in this trainer", remedy))
            return None
        scan = self._scanner.folder(folder)
        pairing = pairs.pair([found.path.name for found in content.found], scan)
        check = pairs.check_guides if role == "control" else pairs.check_masks
        content.problems += check(pairing, folder, "conditioning_data_dir")
        used = set(pairing.partners.values())
        bad = {folder / name: text for name, text in scan.problems.items() if folder / name in used}
        content.bad |= bad
        paired = [(found, pairing.partners.get(found.path.name)) for found in content.found]
        content.found = [replace(found, **{role: partner}) for found, partner in paired if partner not in bad]
        return None

    def _check_given(self, content: SubsetContent) -> None:
        """Every picture of a dataset class needs its guiding one."""
        without = [found.path for found in content.found if found.control is None]
        if without and self._role == "control":
            text = f"{len(without)} pictures have no control picture: {shown(without[0])}"
            content.problems.append(error(self._option, text, "give each its control"))


class _Captions:
    """The caption files of a folder: lines by the picture's name, where there is a file."""

    def __init__(self, scan: FolderScan, extension: str, option: str):
        self.extension = extension
        self.lines: dict[str, tuple[str, ...]] = {}
        self.problems: list[Problem] = []
        named = ((p.name, _caption_name(p.name, extension, scan.listing)) for p in scan.listing.pictures)
        found = [(picture, name) for picture, name in named if name is not None]
        read = (lines for part in in_parts(lambda pair: _read_lines(scan, pair[1]), found) for lines in part)
        for (picture, _), lines in zip(found, read, strict=True):
            if isinstance(lines, tuple):
                self.lines[picture] = lines
            else:
                self.problems.append(error(option, *lines.said))


@dataclass(frozen=True)
class _Unreadable:
    said: tuple[str, ...]  # message and remedy


def _read_lines(scan: FolderScan, name: str) -> tuple[str, ...] | _Unreadable:
    try:
        return scan.lines(name)
    except UserError as problem:
        return _Unreadable((str(problem),))
    except OSError as problem:
        text = f"caption file {shown(scan.listing.path / name)} cannot be read: {problem.strerror or problem}"
        return _Unreadable((text, "check its permissions"))


def _caption_name(picture: str, extension: str, listing: FolderListing) -> str | None:
    """The name of a picture's caption file."""
    stem = picture.rpartition(".")[0]
    if stem + extension in listing.others:
        return stem + extension
    if not listing.others:
        return None
    by_lower = listing.others_by_lower_suffix
    return next(
        (by_lower[s + extension.lower()] for s in caption_stems(stem) if s + extension.lower() in by_lower), None
    )


def _caption_extension(listing: FolderListing, options: DatasetOptions) -> str:
    """The chosen one; else .caption where such files belong to pictures, else .txt."""
    if options.caption_extension:
        return normal_extension(options.caption_extension)
    candidates = {name.rpartition(".")[0] for name in listing.others if name.endswith(".caption")}
    if not candidates:
        return ".txt"
    stems = {stem for picture in listing.pictures for stem in caption_stems(picture.name.rpartition(".")[0])}
    return ".caption" if candidates & stems else ".txt"
