"""Cases of `rules.captions`; see `test_rules_cases`."""

from sd_scripts.options.rules import captions

CACHED = {"cache_text_encoder_outputs": True}
UNET_ONLY = {"network_train_unet_only": True}
SD = ("sd1", "sd2")

CASES = [
    *[
        (captions.cached_captions_do_not_change, "adapter", family, {cache: True, name: value}, (name, "error"))
        for family, cache in (
            ("sd1", "cache_text_encoder_outputs"), ("sdxl", "cache_text_encoder_outputs"),
            ("flux", "cache_text_encoder_outputs_to_disk"),
        )
        for name, value in (
            ("shuffle_caption", True), ("caption_tag_dropout_rate", 0.1), ("token_warmup_step", 5),
            ("enable_wildcard", True),
        )
    ],
    (
        captions.cached_captions_do_not_change, "full", "sd3", {"use_t5xxl_cache_only": True, "shuffle_caption": True},
        ("shuffle_caption", "error"),
    ),
    (
        captions.cached_captions_do_not_change, "full", "sdxl", CACHED | {"shuffle_caption": True},
        ("shuffle_caption", "error"),
    ),
    (captions.cached_captions_do_not_change, "full", "sdxl", CACHED | {"weighted_captions": True}, None),
    (captions.cached_captions_do_not_change, "adapter", "anima", CACHED | {"caption_dropout_rate": 0.1}, None),
    (captions.cached_captions_do_not_change, "adapter", "sdxl", {"shuffle_caption": True}, None),
    (captions.cached_captions_do_not_change, "adapter", "sd1", CACHED | {"caption_dropout_rate": 0.1}, None),
    *[
        (captions.cached_encoders_are_not_trained, "adapter", family, CACHED, ("cache_text_encoder_outputs", "error"))
        for family in ("sd1", "sd2", "sdxl", "anima", "lumina")
    ],
    (
        captions.cached_encoders_are_not_trained, "textual_inversion", "sdxl", CACHED,
        ("cache_text_encoder_outputs", "error"),
    ),
    *[
        (
            captions.cached_encoders_are_not_trained, "full", family, CACHED | {"train_text_encoder": True},
            ("train_text_encoder", "error"),
        )
        for family in ("sd1", "sdxl", "sd3")
    ],
    (captions.cached_encoders_are_not_trained, "adapter", "sdxl", CACHED | UNET_ONLY, None),
    (captions.cached_encoders_are_not_trained, "adapter", "sdxl", CACHED | {"text_encoder_lr": [0.0]}, None),
    (captions.cached_encoders_are_not_trained, "adapter", "flux", CACHED, None),
    (captions.cached_encoders_are_not_trained, "adapter", "sdxl", {}, None),
    (captions.cached_encoders_are_not_trained, "full", "sdxl", CACHED, None),
    (
        captions.cached_encoders_are_not_trained, "full", "sd3",
        CACHED | {"train_text_encoder": True, "use_t5xxl_cache_only": True}, None,
    ),
    (
        captions.cached_encoders_are_not_trained, "full", "sdxl",
        CACHED | {"train_text_encoder": True, "learning_rate_te1": 0, "learning_rate_te2": 0}, None,
    ),
    *[
        (
            captions.cached_t5_is_not_trained, "adapter", family, CACHED | {"network_args": ["train_t5xxl=True"]},
            ("network_args", "error"),
        )
        for family in ("flux", "sd3")
    ],
    (
        captions.cached_t5_is_not_trained, "full", "sd3",
        {"use_t5xxl_cache_only": True, "train_text_encoder": True, "train_t5xxl": True}, ("train_t5xxl", "error"),
    ),
    (captions.cached_t5_is_not_trained, "adapter", "flux", {"network_args": ["train_t5xxl=True"]}, None),
    (captions.cached_t5_is_not_trained, "adapter", "flux", CACHED | {"network_args": ["train_t5xxl=False"]}, None),
    (captions.t5_is_trained_with_the_others, "full", "sd3", {"train_t5xxl": True}, ("train_t5xxl", "error")),
    (captions.t5_is_trained_with_the_others, "full", "sd3", {"train_t5xxl": True, "train_text_encoder": True}, None),
    (captions.t5_is_trained_with_the_others, "full", "sdxl", {"train_t5xxl": True}, None),
    (
        captions.captions_of_a_new_word, "textual_inversion", SD, {"caption_dropout_rate": 0.1},
        ("caption_dropout_rate", "warning"),
    ),
    (
        captions.captions_of_a_new_word, "textual_inversion", SD, {"weighted_captions": True},
        ("weighted_captions", "warning"),
    ),
    (captions.captions_of_a_new_word, "textual_inversion", SD, {"shuffle_caption": True}, None),
    (captions.captions_of_a_new_word, "adapter", SD, {"caption_dropout_rate": 0.1}, None),
    (
        captions.warmup_has_room, "adapter", SD, {"token_warmup_step": 20, "max_train_steps": 10},
        ("token_warmup_step", "warning"),
    ),
    (captions.warmup_has_room, "adapter", SD, {"token_warmup_step": 10, "max_train_steps": 10}, None),
    (captions.warmup_has_room, "adapter", SD, {"token_warmup_step": 0.5, "max_train_steps": 10}, None),
    (captions.warmup_has_room, "adapter", SD, {"token_warmup_step": 2000, "max_train_epochs": 10}, None),
]  # fmt: skip
