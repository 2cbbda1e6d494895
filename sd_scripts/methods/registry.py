"""Methods by the name that recipes use."""

from __future__ import annotations

from sd_scripts.methods.adapter import AdapterMethod
from sd_scripts.methods.base import Method
from sd_scripts.methods.full import FullMethod

METHODS: dict[str, type[Method]] = {
    "adapter": AdapterMethod,
    "full": FullMethod,
    "dreambooth": FullMethod,  # the same training: what makes it DreamBooth is the pictures and their folders
}
