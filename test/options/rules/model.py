"""Cases of `rules.model`; see `test_rules_cases`."""

from sd_scripts.options.rules import model

SD = ("sd1", "sd2")

CASES = [
    (model.model_is_given, "adapter", SD, {}, ("pretrained_model_name_or_path", "error")),
    (model.model_is_given, "adapter", SD, {"pretrained_model_name_or_path": "m"}, None),
    (model.v2_fits, "adapter", "sdxl", {"v2": True}, ("v2", "error")),
    (model.v2_fits, "adapter", "sdxl", {}, None),
    (model.v2_fits, "adapter", SD, {"v2": True}, None),
    (model.model_type_fits, "controlnet", "flux", {"model_type": "chroma"}, ("model_type", "error")),
    (model.model_type_fits, "adapter", "chroma", {"model_type": "flux"}, ("model_type", "error")),
    (model.model_type_fits, "adapter", ("flux", "chroma"), {"model_type": "chroma"}, None),
    (model.model_type_fits, "adapter", "sd1", {"model_type": "flux"}, None),
    *[
        (model.needed_files_are_given, "adapter", family, {n: "x" for n in names if n != name}, (name, "error"))
        for family, names in model.NEEDED_FILES.items()
        for name in names
    ],
    *[
        (model.needed_files_are_given, "adapter", family, dict.fromkeys(names, "x"), None)
        for family, names in model.NEEDED_FILES.items()
    ],
    (model.needed_files_are_given, "adapter", ("flux", "chroma"), {"t5xxl": "x", "ae": "x"}, None),
    (model.needed_files_are_given, "full", "sd3", {}, None),
    (model.needed_files_are_given, "adapter", "lumina", {}, None),
    (model.model_files_exist, "adapter", "flux", {"clip_l": "gone"}, ("clip_l", "error")),
    (model.model_files_exist, "adapter", "flux", {"clip_l": "{folder}"}, ("clip_l", "error")),
    (model.model_files_exist, "adapter", "anima", {"qwen3": "gone"}, ("qwen3", "error")),
    (model.model_files_exist, "adapter", "anima", {"t5_tokenizer_path": "gone"}, ("t5_tokenizer_path", "error")),
    (model.model_files_exist, "adapter", "anima", {"qwen3": "{folder}"}, None),
    (model.model_files_exist, "adapter", "flux", {"clip_l": "{file}", "ae": "{file}"}, None),
    (model.model_files_exist, "adapter", "sd1", {"clip_l": "gone"}, None),
    (model.clip_skip_fits, "adapter", SD, {"v2": True, "clip_skip": 2}, ("clip_skip", "warning")),
    (model.clip_skip_fits, "adapter", "sd2", {"clip_skip": 2}, ("clip_skip", "warning")),
    (model.clip_skip_fits, "adapter", SD, {"clip_skip": 2}, None),
    (model.clip_skip_fits, "adapter", "sd2", {"v2": True}, None),
    (model.chroma_masks_its_padding, "adapter", "chroma", {}, ("apply_t5_attn_mask", "error")),
    (
        model.chroma_masks_its_padding, "full", ("flux", "chroma"), {"model_type": "chroma"},
        ("apply_t5_attn_mask", "error"),
    ),
    (model.chroma_masks_its_padding, "adapter", "chroma", {"apply_t5_attn_mask": True}, None),
    (model.chroma_masks_its_padding, "adapter", ("flux", "chroma"), {}, None),
    (model.tokenizers_are_included, "adapter", SD, {"tokenizer_cache_dir": "x"}, ("tokenizer_cache_dir", "note")),
    (model.tokenizers_are_included, "adapter", "lumina", {"tokenizer_cache_dir": "x"}, None),
    *[(model.switches_that_are_always_on, "adapter", SD, {name: True}, (name, "note")) for name in model.ALWAYS_SO],
    (model.switches_that_are_always_on, "adapter", SD, {"lowram": False, "sdpa": True}, None),
]  # fmt: skip
