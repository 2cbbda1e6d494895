"""Pictures of runs for the page: small copies for the wall, and permission for exactly the files that are shown."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from PIL import Image

THUMB_SIDE = 256
SMALL_ENOUGH_BYTES = 60_000


class PictureShelf:
    """Makes pictures reachable for the browser.

    Args:
        allow: makes the server give out a file; called for what is shown and for nothing else.
    """

    def __init__(self, allow: Callable[[str], None]):
        self._allow = allow
        self._known: set[str] = set()
        self._folder: Path | None = None

    def thumb_url(self, picture: Path) -> str:
        """Address of a small copy; of the picture itself when that is small, or cannot be read."""
        try:
            if picture.stat().st_size <= SMALL_ENOUGH_BYTES:
                return self.url(picture)
            return self.url(self._thumb(picture))
        except OSError:
            return self.url(picture)

    def url(self, picture: Path) -> str:
        """Address of a picture in full size, relative to the page, so that it also holds behind a proxy."""
        path = str(picture.absolute())
        if path not in self._known:
            self._known.add(path)
            self._allow(path)
        return f"gradio_api/file={quote(path)}"

    def _thumb(self, picture: Path) -> Path:
        stat = picture.stat()
        key = hashlib.sha256(f"{picture.absolute()}|{stat.st_size}|{stat.st_mtime_ns}".encode()).hexdigest()[:24]
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="kohya-gui-pictures-"))
        target = self._folder / f"{key}.webp"
        if not target.exists():
            with Image.open(picture) as image:
                small = image.convert("RGB")
                small.thumbnail((THUMB_SIDE, THUMB_SIDE), Image.Resampling.LANCZOS)
                small.save(target, "WEBP", quality=82)
        return target
