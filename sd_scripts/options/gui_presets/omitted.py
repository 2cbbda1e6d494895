"""Keys that set nothing, here or on some tabs, each with the reason, and older names of keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OMITTED: Mapping[str, str] = {
    "model_list": "an entry of the form's model list; the model is pretrained_model_name_or_path",
    "save_as_bool": "the state of a button",
    "lowvram": "a field that was never shown; low-memory loading is the option lowram",
    "batch_size": "the batch size of the older preparation of latents; training uses train_batch_size",
    "create_caption": "captions are read as they are; the metadata file is made by the tools",
    "create_buckets": "latents are cached when training starts; no preparation is needed",
    "full_path": "a setting of the older preparation; metadata files may hold full or relative paths",
    # on tabs that save a field which their trainer never had
    "no_token_padding": "only DreamBooth training has it",
    "stop_text_encoder_training": "only DreamBooth training can stop the text encoder midway",
    "train_blocks": "only adapters of FLUX.1 can be limited to a kind of blocks",
}
IDLE: Mapping[str, tuple[Any, ...]] = {  # what an untouched form holds in those keys
    "model_list": ("custom",),
    "save_as_bool": (True,),
    "batch_size": (1,),
    "full_path": (True,),
}
RENAMED: Mapping[str, str] = {
    "lora_network_weights": "network_weights",
    "stop_text_encoder_training_pct": "stop_text_encoder_training",
    "generate_caption_database": "create_caption",
    "generate_image_buckets": "create_buckets",
    "conv_dims": "conv_block_dims",
    "conv_alphas": "conv_block_alphas",
    "caption_extention": "caption_extension",
}
