"""Cases of `rules.network`; see `test_rules_cases`."""

from sd_scripts.options.rules import network

UNET_ONLY = {"network_train_unet_only": True}
SD = ("sd1", "sd2")

CASES = [
    *[
        (network.kind_of_adapter_fits, "adapter", family, {"network_module": module}, ("network_module", "error"))
        for module, family in (
            ("networks.lora_flux", "sd1"), ("networks.oft_flux", "sdxl"), ("networks.lora_sd3", "flux"),
            ("networks.lora_lumina", "anima"), ("networks.lora_anima", "lumina"), ("lora_hunyuan_image", "sd3"),
            ("networks.dylora", "flux"), ("networks.loha", "flux"),
        )
    ],
    *[
        (network.kind_of_adapter_fits, "adapter", family, {"network_module": module}, None)
        for module, family in (
            ("networks.lora", "flux"), ("networks.lora_flux", "chroma"), ("lycoris.kohya", "sd3"),
            ("networks.loha", "anima"), ("networks.lokr", "sdxl"), ("networks.lora_fa", "sd1"),
        )
    ],
    (
        network.network_parts_remain, "adapter", SD, UNET_ONLY | {"network_train_text_encoder_only": True},
        ("network_train_unet_only", "error"),
    ),
    (
        network.network_parts_remain, "adapter", SD, {"network_train_text_encoder_only": True, "unet_lr": 1e-4},
        ("unet_lr", "warning"),
    ),
    (
        network.network_parts_remain, "adapter", SD, UNET_ONLY | {"text_encoder_lr": [1e-4]},
        ("text_encoder_lr", "warning"),
    ),
    (network.network_parts_remain, "adapter", SD, UNET_ONLY | {"unet_lr": 1e-4, "text_encoder_lr": [0.0]}, None),
    (
        network.a_trainable_encoder_exists, "adapter", "hunyuan_image", {"network_train_text_encoder_only": True},
        ("network_train_text_encoder_only", "error"),
    ),
    (
        network.a_trainable_encoder_exists, "adapter", "hunyuan_image", {"text_encoder_lr": [1e-4]},
        ("text_encoder_lr", "warning"),
    ),
    (network.a_trainable_encoder_exists, "adapter", "hunyuan_image", UNET_ONLY, None),
    (network.a_trainable_encoder_exists, "adapter", "sd1", {"network_train_text_encoder_only": True}, None),
    *[
        (
            network.encoders_have_their_rates, "adapter", family, {"text_encoder_lr": [1e-4] * (count + 1)},
            ("text_encoder_lr", "error"),
        )
        for family, count in (("sd1", 1), ("sdxl", 2), ("sd3", 3), ("flux", 2), ("lumina", 1), ("anima", 1))
    ],
    *[
        (network.encoders_have_their_rates, "adapter", family, {"text_encoder_lr": [1e-4] * count}, None)
        for family, count in (("sd1", 1), ("sdxl", 2), ("sd3", 3), ("flux", 2), ("lumina", 1), ("anima", 1))
    ],
    (network.encoders_have_their_rates, "adapter", SD, {"text_encoder_lr": [-1]}, ("text_encoder_lr", "error")),
    (network.encoders_have_their_rates, "adapter", SD, {}, None),
    *[
        (network.t5_learns_with_clip, "adapter", family, {"text_encoder_lr": rates}, ("text_encoder_lr", "error"))
        for family, rates in (("flux", [0, 1e-4]), ("sd3", [0, 0, 1e-4]))
    ],
    (network.t5_learns_with_clip, "adapter", "flux", {"text_encoder_lr": [1e-4, 0]}, None),
    (network.t5_learns_with_clip, "adapter", "sdxl", {"text_encoder_lr": [0, 1e-4]}, None),
    (network.network_files_fit, "adapter", SD, {"dim_from_weights": True}, ("dim_from_weights", "error")),
    (network.network_files_fit, "adapter", SD, {"network_weights": "gone"}, ("network_weights", "error")),
    (network.network_files_fit, "adapter", SD, {"base_weights": ["gone"]}, ("base_weights", "error")),
    (
        network.network_files_fit, "adapter", SD, {"base_weights": ["{file}"], "base_weights_multiplier": [1, 2]},
        ("base_weights_multiplier", "error"),
    ),
    (
        network.network_files_fit, "adapter", SD,
        {"network_weights": "{file}", "dim_from_weights": True, "base_weights": ["{file}"]}, None,
    ),
    (network.alpha_fits_the_kind, "adapter", SD, {"network_module": "networks.oft"}, ("network_alpha", "warning")),
    (network.alpha_fits_the_kind, "adapter", SD, {"network_module": "networks.oft", "network_alpha": 1e-3}, None),
    (network.alpha_fits_the_kind, "adapter", SD, {"network_alpha": 8}, None),
    *[
        (
            network.dylora_ranks_fit, "adapter", SD,
            {"network_module": "networks.dylora", "network_dim": 8, "network_args": [item]}, ("network_args", "error"),
        )
        for item in ("unit=3", "conv_dim=4")
    ],
    (
        network.dylora_ranks_fit, "adapter", SD,
        {"network_module": "networks.dylora", "network_dim": 8, "network_args": ["unit=4", "conv_dim=8"]}, None,
    ),
    (network.dylora_ranks_fit, "adapter", SD, {"network_dim": 8, "network_args": ["conv_dim=4"]}, None),
    (
        network.run_starts_before_its_end, "adapter", SD, {"initial_step": 10, "max_train_steps": 10},
        ("initial_step", "error"),
    ),
    (
        network.run_starts_before_its_end, "adapter", SD, {"initial_step": 1, "initial_epoch": 2},
        ("initial_epoch", "warning"),
    ),
    (network.run_starts_before_its_end, "adapter", SD, {"initial_step": 9, "max_train_steps": 10}, None),
    (network.run_starts_before_its_end, "adapter", SD, {"initial_step": 9000, "max_train_epochs": 10}, None),
    (network.a_rate_is_left, "full", "sdxl", {"learning_rate": 0}, ("learning_rate", "error")),
    (
        network.a_rate_is_left, "full", "sdxl",
        {"learning_rate": 0, "train_text_encoder": True, "learning_rate_te1": 1e-6}, None,
    ),
    (network.a_rate_is_left, "full", "anima", {"learning_rate": 0, "self_attn_lr": 1e-6}, None),
    (network.a_rate_is_left, "full", "sdxl", {}, None),
    *[
        (network.blocks_have_their_rates, "full", "sdxl", {"block_lr": text}, ("block_lr", "error"))
        for text in (",".join(["1e-5"] * 22), ",".join(["1e-5"] * 24), "x" + ",1" * 22, "-1" + ",1" * 22)
    ],
    (network.blocks_have_their_rates, "full", "sdxl", {"block_lr": ",".join(["0"] + ["1e-5"] * 22)}, None),
    (network.blocks_have_their_rates, "full", "sd1", {"block_lr": "1"}, None),
    (network.a_new_word_is_given, "textual_inversion", SD, {"init_word": "cat"}, ("token_string", "error")),
    (network.a_new_word_is_given, "textual_inversion", SD, {"token_string": "zq"}, ("init_word", "note")),
    (
        network.a_new_word_is_given, "textual_inversion", SD, {"token_string": "zq", "weights": "gone"},
        ("weights", "error"),
    ),
    (
        network.a_new_word_is_given, "textual_inversion", SD,
        {"token_string": "zq", "init_word": "cat", "use_object_template": True, "use_style_template": True},
        ("use_style_template", "warning"),
    ),
    (network.a_new_word_is_given, "textual_inversion", SD, {"token_string": "zq", "init_word": "cat"}, None),
    (network.control_picture_width_fits, "lllite", "sdxl", {"cond_emb_dim": 33}, ("cond_emb_dim", "error")),
    (network.control_picture_width_fits, "lllite", "anima", {"network_weights": "gone"}, ("network_weights", "error")),
    (network.control_picture_width_fits, "lllite", "sdxl", {"cond_emb_dim": 32}, None),
    (network.prompt_pairs_are_given, "leco", SD, {}, ("prompts_file", "error")),
    (network.prompt_pairs_are_given, "leco", SD, {"prompts_file": "gone"}, ("prompts_file", "error")),
    (network.prompt_pairs_are_given, "leco", SD, {"prompts_file": "{file}"}, None),
]  # fmt: skip
