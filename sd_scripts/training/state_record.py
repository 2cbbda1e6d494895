"""What a state was made with, kept beside it: settings, versions, files. So a resume can say what has changed since."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sd_scripts.options.output import Hub, Logging, Metadata, Samples, Saving
from sd_scripts.options.schema import specs
from sd_scripts.options.toml_files import settings_toml
from sd_scripts.versions import version_lines

if TYPE_CHECKING:
    from sd_scripts.data.plan import DataPlan
    from sd_scripts.options.recipes import CommonOptions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SETTINGS, VERSIONS, FILES = "settings.toml", "versions.txt", "files.json"
ENDS = 64 * 2**10  # bytes at both ends of a file that are looked at: a model of many gigabytes is told apart at once
# Options of these groups say what is written and shown, and nothing of the training.
SILENT_GROUPS = frozenset(group.title for group in (Saving, Samples, Logging, Hub, Metadata))
# So do these: they decide how fast the same is done.
WITHOUT_EFFECT = frozenset(
    {
        "max_data_loader_n_workers", "persistent_data_loader_workers", "skip_cache_check", "compress_cache", "lowram",
        "highvram", "ddp_timeout", "max_nan_steps", "disable_mmap_load_safetensors",
    }
)  # fmt: skip


@dataclass(frozen=True)
class FileMark:
    """A file by its name and content, wherever it lies."""

    name: str
    bytes: int
    ends: str  # hash of its first and last bytes


@dataclass(frozen=True)
class Record:
    """What a run is made with."""

    settings: str  # as TOML
    versions: tuple[str, ...]  # "torch 2.9.0"
    files: dict[str, FileMark]  # by option; "pictures" is all of them

    def write(self, folder: Path) -> None:
        (folder / SETTINGS).write_text(self.settings, encoding="utf-8")
        (folder / VERSIONS).write_text("\n".join(self.versions) + "\n", encoding="utf-8")
        marks = {name: asdict(mark) for name, mark in self.files.items()}
        (folder / FILES).write_text(json.dumps(marks, ensure_ascii=False, indent=1), encoding="utf-8")


def record_of(options: CommonOptions, data: DataPlan | None) -> Record:
    """What this run is made with."""
    files = {name: mark_of(path) for name, path in _named_files(options)}
    if data is not None:
        files["pictures"] = _mark_of_pictures(data)
    return Record(settings_toml(options), tuple(version_lines()), files)


def read_record(folder: Path) -> Record | None:
    """What a state was made with; None where that was not kept, or cannot be read."""
    try:
        marks = json.loads((folder / FILES).read_text(encoding="utf-8"))
        return Record(
            (folder / SETTINGS).read_text(encoding="utf-8"),
            tuple((folder / VERSIONS).read_text(encoding="utf-8").splitlines()),
            {name: FileMark(**mark) for name, mark in marks.items()},
        )
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def changes(before: Record, now: Record, options: type[CommonOptions]) -> list[str]:
    """What differs and can change the training, in words: settings, files, versions."""
    return [
        *_changed_settings(before.settings, now.settings, options),
        *_changed_files(before.files, now.files),
        *_changed_versions(before.versions, now.versions),
    ]


def mark_of(path: Path) -> FileMark:
    """Name, size and a hash of the ends of a file."""
    size = path.stat().st_size
    digest = hashlib.blake2b(digest_size=8)
    with path.open("rb") as file:
        digest.update(file.read(ENDS))
        file.seek(max(0, size - ENDS))
        digest.update(file.read(ENDS))
    return FileMark(path.name, size, digest.hexdigest())


def _named_files(options: CommonOptions) -> Iterator[tuple[str, Path]]:
    for name, spec in specs(type(options)).items():
        value = getattr(options, name)
        if spec.path and spec.group not in SILENT_GROUPS and isinstance(value, str) and Path(value).is_file():
            yield name, Path(value)


def _mark_of_pictures(data: DataPlan) -> FileMark:
    digest = hashlib.blake2b(digest_size=8)
    lines = sorted(f"{sample.path.name}\t{sample.bytes}\t{sample.repeats}\t{sample.caption}" for sample in data.samples)
    for line in lines:
        digest.update(line.encode("utf-8", "surrogatepass"))
    size = sum(sample.bytes for sample in data.samples)
    return FileMark(f"{len(lines)} pictures", size, digest.hexdigest())


def _changed_settings(before: str, now: str, options: type[CommonOptions]) -> Iterator[str]:
    try:
        first, second = _flat(before), _flat(now)
    except tomllib.TOMLDecodeError:
        return
    known = specs(options)
    for name in sorted(first.keys() | second.keys()):
        spec = known.get(name)
        if spec is None or spec.group in SILENT_GROUPS or name in WITHOUT_EFFECT:
            continue
        old, new = first.get(name, spec.default), second.get(name, spec.default)
        if old != new and not (spec.path and _same_name(old, new)):  # a file that moved is told apart by its content
            yield f"{name} was {old}, is {new}"


def _flat(text: str) -> dict[str, Any]:
    return {name: value for table in tomllib.loads(text).values() for name, value in table.items()}


def _same_name(old: object, new: object) -> bool:
    return isinstance(old, str) and isinstance(new, str) and Path(old).name == Path(new).name


def _changed_files(before: dict[str, FileMark], now: dict[str, FileMark]) -> Iterator[str]:
    for name in sorted(before.keys() & now.keys()):
        old, new = before[name], now[name]
        if (old.bytes, old.ends) == (new.bytes, new.ends):
            continue
        if name == "pictures":
            what = f"were {old.name}, are {new.name}" if old.name != new.name else "or captions were edited"
            yield f"the pictures {what}"
        else:
            yield f"{name} is another file ({old.name}, {old.bytes} bytes; now {new.name}, {new.bytes} bytes)"


def _changed_versions(before: Iterable[str], now: Iterable[str]) -> Iterator[str]:
    old, new = _by_name(before), _by_name(now)
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            yield f"{name} was {old[name]}, is {new[name]}"


def _by_name(lines: Iterable[str]) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in lines if " " in line)
