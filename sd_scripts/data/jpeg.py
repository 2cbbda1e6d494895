"""JPEG files decoded straight into an array, at a reduced scale where that leaves enough pixels.

The pixels are those of Pillow, which decodes whatever is refused here; this way skips its copies (a fifth of the time),
and a reduced scale skips most of the rest: 3 to 5 times in all for photographs of 8 to 12 megapixels (bench/decode.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sd_scripts.data.resizing import load_cv2

if TYPE_CHECKING:
    import numpy as np

    from sd_scripts.data.buckets import Size

# A picture is decoded at a half, a quarter or an eighth as long as so many times the wanted size is left: less of a margin
# for files of few bits a pixel, which hold no fine detail that could be lost, and at a half. Scaled on from there by
# Lanczos, pictures differ by 45 dB or better from those scaled from the full decode (bench/decode.py).
MARGINS = (  # up to so many bits a pixel, the margin at a half, and at a quarter and below
    (1.2, 1.0, 1.0),
    (1.6, 1.1, 1.35),
    (1.95, 1.35, 1.35),
    (float("inf"), 1.75, 1.75),
)

_SOI, _EOI = b"\xff\xd8", b"\xff\xd9"
_START_OF_SCAN = 0xDA
_WITHOUT_LENGTH = (0x01, *range(0xD0, 0xD8))


@dataclass(frozen=True)
class Decoded:
    """A decoded JPEG as it is stored, not turned."""

    rgb: np.ndarray  # (h, w, 3) uint8
    extent: tuple[float, float]  # of the picture in these pixels: the last column and row may belong to it in part only


def decode(data: bytes, size: Size, wanted: Size | None = None) -> Decoded | None:
    """The picture, or None where Pillow must see to it.

    Args:
        data: the file, of a kind that Pillow opens as RGB or grey.
        size: of the stored picture.
        wanted: size that it will be scaled to, as stored; the result is nowhere smaller.
    """
    import numpy as np

    if not is_whole(data):
        return None
    cv2 = load_cv2()
    reduction = reduction_for(size, wanted, len(data)) if wanted else 1
    flag = {
        1: cv2.IMREAD_COLOR_RGB,
        2: cv2.IMREAD_REDUCED_COLOR_2,
        4: cv2.IMREAD_REDUCED_COLOR_4,
        8: cv2.IMREAD_REDUCED_COLOR_8,
    }[reduction]
    try:
        decoded = cv2.imdecode(np.frombuffer(data, np.uint8), flag | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:  # more pixels than it takes
        return None
    if decoded is None:
        return None
    rgb = decoded if reduction == 1 else cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB, dst=decoded)
    return Decoded(rgb, (size[0] / reduction, size[1] / reduction))


def reduction_for(size: Size, wanted: Size, file_bytes: int) -> int:
    """1, 2, 4 or 8: by how much a picture can be reduced in decoding before it is scaled to the wanted size."""
    bits = file_bytes * 8 / (size[0] * size[1])
    at_half, below = next(margins for limit, *margins in MARGINS if bits <= limit)
    for reduction, margin in ((8, below), (4, below), (2, at_half)):
        if all(have >= reduction * margin * want for have, want in zip(size, wanted, strict=True)):
            return reduction
    return 1


def is_whole(data: bytes) -> bool:
    """Whether the data of a JPEG ends as it should. The end of a preview inside the header does not count."""
    start = _scan_start(data)
    return start > 0 and data.rfind(_EOI, start) > 0


def _scan_start(data: bytes) -> int:
    """Where the picture's data begins; 0 if no header leads there."""
    if data[:2] != _SOI:
        return 0
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == _START_OF_SCAN:
            return at
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker in _WITHOUT_LENGTH:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0
