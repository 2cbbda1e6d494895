"""Colours: every mode of a picture file as sRGB, transparency on white, and variation while training."""

from __future__ import annotations

import io
import random
from functools import lru_cache
from typing import TYPE_CHECKING

from sd_scripts.data.resizing import load_cv2

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image as PillowImage

BACKGROUND = (255, 255, 255)  # behind transparent pictures


def to_rgb_or_rgba(image: PillowImage.Image) -> PillowImage.Image:
    """Any mode as RGB, or as RGBA where the picture has transparency. Of CMYK and Lab the colour profile acts too."""
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        return _deep_grey(image)
    if has_transparency(image):
        premultiplied = {"La": "LA", "RGBa": "RGBA"}.get(image.mode)
        return (image.convert(premultiplied) if premultiplied else image).convert("RGBA")
    if image.mode in ("CMYK", "LAB"):
        return _from_print(image)
    return image if image.mode == "RGB" else image.convert("RGB")


def has_transparency(image: PillowImage.Image) -> bool:
    return image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info


def on_background(image: PillowImage.Image) -> PillowImage.Image:
    """An RGBA picture on white."""
    from PIL import Image

    background = Image.new("RGBA", image.size, (*BACKGROUND, 255))
    return Image.alpha_composite(background, image).convert("RGB")


def to_srgb(pixels: np.ndarray, profile: bytes | None) -> np.ndarray:
    """RGB pixels of a picture with this colour profile as sRGB; those without one, or with a broken one, are taken as sRGB."""
    transform = _transform(profile, "RGB") if profile else None
    if transform is None:
        return pixels
    import numpy as np
    from PIL import Image, ImageCms

    image = Image.fromarray(np.ascontiguousarray(pixels))
    ImageCms.applyTransform(image, transform, inPlace=True)
    return np.asarray(image)


def vary_colours(pixels: np.ndarray, draws: random.Random) -> np.ndarray:
    """A little other hue (up to 16 degrees) or brightness (gamma 0.95 to 1.05), in one of three uses."""
    import numpy as np

    if draws.random() >= 1 / 3:
        return pixels
    if draws.random() < 0.5:
        gamma = draws.uniform(0.95, 1.05)
        table = (255 * (np.arange(256) / 255) ** gamma + 0.5).astype(np.uint8)
        return table[pixels]
    cv2 = load_cv2()
    hsv = cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2HSV)  # hue is 0...179, in steps of two degrees
    hsv[..., 0] = (hsv[..., 0].astype(np.int16) + draws.randint(-8, 8)) % 180
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)


def _deep_grey(image: PillowImage.Image) -> PillowImage.Image:
    """Grey of more than 8 bits, scaled to 8; Pillow itself would clip it to white."""
    import numpy as np
    from PIL import Image

    values = np.asarray(image).astype(np.float64)
    full = 65535.0 if image.mode != "F" else (1.0 if values.max(initial=0) <= 1 else 255.0)
    grey = np.clip(values / full * 255 + 0.5, 0, 255).astype(np.uint8)
    return Image.fromarray(grey).convert("RGB")


def _from_print(image: PillowImage.Image) -> PillowImage.Image:
    """CMYK by its profile, without one by the plain formula; Lab by definition."""
    from PIL import ImageCms

    if image.mode == "LAB":
        return ImageCms.profileToProfile(
            image, ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), outputMode="RGB"
        )
    profile = image.info.get("icc_profile")
    transform = _transform(profile, "CMYK") if profile else None
    return image.convert("RGB") if transform is None else ImageCms.applyTransform(image, transform)


@lru_cache(maxsize=16)  # few profiles are in use, and building a transform takes longer than using it
def _transform(profile: bytes, mode: str) -> object | None:
    """From a profile to sRGB; None where it is sRGB, is broken, or belongs to another mode."""
    from PIL import ImageCms

    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        is_same = "srgb" in (source.profile.profile_description or "").lower()
        if is_same or source.profile.xcolor_space.strip() != mode:
            return None
        return ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
    except (OSError, ImportError, ImageCms.PyCMSError):  # viewers ignore such profiles too
        return None
