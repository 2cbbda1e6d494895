"""Cases of `rules.precision`; see `test_rules_cases`."""

from sd_scripts.options.rules import precision

SD = ("sd1", "sd2")

CASES = [
    (precision.full_precision_fits_mixed, "full", SD, {"full_fp16": True}, ("full_fp16", "error")),
    (
        precision.full_precision_fits_mixed, "full", SD, {"full_bf16": True, "mixed_precision": "fp16"},
        ("full_bf16", "error"),
    ),
    (precision.full_precision_fits_mixed, "full", SD, {"full_bf16": True, "mixed_precision": "bf16"}, None),
    *[
        (precision.eight_bits_compute_in_sixteen, "adapter", "flux", {name: True}, (name, "error"))
        for name in precision.EIGHT_BITS
    ],
    (
        precision.eight_bits_compute_in_sixteen, "adapter", "flux", {"fp8_base": True, "mixed_precision": "bf16"}, None,
    ),
    (precision.eight_bits_fit_the_family, "adapter", "anima", {"fp8_base": True}, ("fp8_base", "warning")),
    (precision.eight_bits_fit_the_family, "adapter", "hunyuan_image", {"fp8_base": True}, ("fp8_base", "error")),
    (
        precision.eight_bits_fit_the_family, "adapter", "hunyuan_image", {"fp8_base_unet": True, "fp8_scaled": True},
        ("fp8_base_unet", "note"),
    ),
    (precision.eight_bits_fit_the_family, "adapter", "hunyuan_image", {"fp8_scaled": True}, None),
    (precision.eight_bits_fit_the_family, "adapter", "flux", {"fp8_base": True}, None),
    (precision.eight_bits_are_for_adapters, "full", "sdxl", {"fp8_base": True}, ("fp8_base", "warning")),
    (precision.eight_bits_are_for_adapters, "adapter", "sdxl", {"fp8_base": True}, None),
    (precision.eight_bits_are_for_adapters, "full", "sdxl", {}, None),
    (precision.fp16_is_enough, "adapter", "hunyuan_image", {"mixed_precision": "fp16"}, ("mixed_precision", "warning")),
    (precision.fp16_is_enough, "adapter", "hunyuan_image", {"mixed_precision": "bf16"}, None),
    (precision.fp16_is_enough, "adapter", "sd1", {"mixed_precision": "fp16"}, None),
    *[
        (precision.activations_are_kept_once, "adapter", "anima", {name: True, "blocks_to_swap": 5}, (name, "error"))
        for name in ("cpu_offload_checkpointing", "unsloth_offload_checkpointing")
    ],
    (
        precision.activations_are_kept_once, "full", "flux", {"cpu_offload_checkpointing": True, "split_mode": True},
        ("cpu_offload_checkpointing", "error"),
    ),
    (
        precision.activations_are_kept_once, "adapter", "anima",
        {"cpu_offload_checkpointing": True, "unsloth_offload_checkpointing": True},
        ("unsloth_offload_checkpointing", "error"),
    ),
    (
        precision.activations_are_kept_once, "adapter", "flux", {"cpu_offload_checkpointing": True, "blocks_to_swap": 0},
        None,
    ),
    (precision.activations_are_kept_once, "adapter", "flux", {"blocks_to_swap": 5}, None),
    (
        precision.the_whole_model_is_not_compiled_with_swapped_blocks, "adapter", "flux",
        {"torch_compile": True, "blocks_to_swap": 5}, ("torch_compile", "error"),
    ),
    *(
        (precision.the_whole_model_is_not_compiled_with_swapped_blocks, "adapter", "flux", values, None)
        for values in (
            {"torch_compile": True}, {"blocks_to_swap": 5},
            {"torch_compile": True, "dynamo_backend": "no", "blocks_to_swap": 5},
        )
    ),
    (
        precision.offloading_means_checkpointing, "full", "flux",
        {"gradient_checkpointing": False, "cpu_offload_checkpointing": True}, ("gradient_checkpointing", "note"),
    ),
    (precision.offloading_means_checkpointing, "full", "flux", {"cpu_offload_checkpointing": True}, None),
    *[
        (precision.enough_blocks_stay, "adapter", family, {"blocks_to_swap": most + 1}, ("blocks_to_swap", "error"))
        for family, most in (("flux", 35), ("chroma", 35), ("lumina", 24), ("anima", 26), ("hunyuan_image", 37), ("sd1", 7))
    ],
    *[
        (precision.enough_blocks_stay, "adapter", family, {"blocks_to_swap": most}, None)
        for family, most in (("flux", 35), ("lumina", 24), ("anima", 26), ("hunyuan_image", 37), ("sd3", 36), ("sdxl", 5))
    ],
    *[
        (precision.blocks_are_counted_once, "full", "flux", {name: 2, "blocks_to_swap": 5}, (name, "warning"))
        for name in ("double_blocks_to_swap", "single_blocks_to_swap", "split_mode")
        if name != "split_mode"
    ],
    (
        precision.blocks_are_counted_once, "adapter", "flux", {"split_mode": True, "blocks_to_swap": 0},
        ("split_mode", "warning"),
    ),
    (precision.blocks_are_counted_once, "adapter", "flux", {"split_mode": True}, ("split_mode", "note")),
    (
        precision.blocks_are_counted_once, "full", "flux", {"double_blocks_to_swap": 4},
        ("double_blocks_to_swap", "note"),
    ),
    (precision.blocks_are_counted_once, "adapter", "flux", {"blocks_to_swap": 5}, None),
    *[
        (
            precision.fused_passes_fit, "full", family, {name: value, "gradient_accumulation_steps": 2},
            (name, "error"),
        )
        for family, name, value in (
            ("sdxl", "fused_backward_pass", True), ("sdxl", "fused_optimizer_groups", 4),
            ("flux", "blockwise_fused_optimizers", True),
        )
    ],
    (
        precision.fused_passes_fit, "full", "sdxl", {"fused_backward_pass": True, "fused_optimizer_groups": 4},
        ("fused_optimizer_groups", "error"),
    ),
    (precision.fused_passes_fit, "adapter", "flux", {"fused_backward_pass": True}, ("fused_backward_pass", "note")),
    (
        precision.fused_passes_fit, "full", "sd1", {"fused_optimizer_groups": 4, "deepspeed": True},
        ("fused_optimizer_groups", "error"),
    ),
    (
        precision.fused_passes_fit, "full", "sd1", {"fused_backward_pass": True, "mixed_precision": "fp16"},
        ("fused_backward_pass", "error"),
    ),
    (precision.fused_passes_fit, "full", "sdxl", {"fused_backward_pass": True, "fused_optimizer_groups": 0}, None),
    (precision.xformers_is_installed, "adapter", "sd1", {"xformers": True}, ("xformers", "warning")),
    (precision.xformers_is_installed, "full", "sd1", {"diffusers_xformers": True}, ("diffusers_xformers", "warning")),
    (precision.xformers_is_installed, "adapter", "flux", {"xformers": True}, None),
    (precision.xformers_is_installed, "adapter", "sd1", {"sdpa": True}, None),
    (
        precision.one_attention_is_chosen, "adapter", "sd1", {"mem_eff_attn": True, "xformers": True},
        ("xformers", "warning"),
    ),
    (precision.one_attention_is_chosen, "adapter", "sd1", {"sdpa": True, "xformers": True}, ("sdpa", "warning")),
    (precision.one_attention_is_chosen, "adapter", "anima", {"attn_mode": "flash", "sdpa": True}, ("sdpa", "warning")),
    (
        precision.one_attention_is_chosen, "adapter", "lumina", {"use_flash_attn": True, "use_sage_attn": True},
        ("use_sage_attn", "error"),
    ),
    (precision.one_attention_is_chosen, "adapter", "anima", {"attn_mode": "sdpa", "sdpa": True}, None),
    (precision.one_attention_is_chosen, "adapter", "sd1", {"xformers": True}, None),
    (precision.attention_can_train, "adapter", "anima", {"attn_mode": "sageattn"}, ("attn_mode", "error")),
    (precision.attention_can_train, "adapter", "anima", {"attn_mode": "flash"}, ("attn_mode", "error")),
    (precision.attention_can_train, "adapter", "hunyuan_image", {"xformers": True}, ("split_attn", "error")),
    (precision.attention_can_train, "adapter", "lumina", {"use_flash_attn": True}, ("use_flash_attn", "error")),
    (precision.attention_can_train, "adapter", "anima", {"xformers": True, "split_attn": True}, None),
    (precision.attention_can_train, "adapter", "anima", {"attn_mode": "torch", "xformers": True}, None),
    (precision.attention_can_train, "adapter", "sd1", {"attn_mode": "sageattn", "use_flash_attn": True}, None),
    (
        precision.one_compiler_is_chosen, "adapter", "sd1", {"torch_compile": True, "dynamo_backend": "no"},
        ("torch_compile", "note"),
    ),
    (precision.one_compiler_is_chosen, "adapter", "anima", {"torch_compile": True, "compile": True}, ("compile", "error")),
    (
        precision.one_compiler_is_chosen, "adapter", "anima",
        {"compile": True, "compile_fullgraph": True, "split_attn": True}, ("compile_fullgraph", "error"),
    ),
    (precision.one_compiler_is_chosen, "adapter", "anima", {"compile": True, "compile_fullgraph": True}, None),
    (precision.one_compiler_is_chosen, "adapter", "sd1", {"torch_compile": True, "compile": True}, ("compile", "error")),
    (precision.one_compiler_is_chosen, "adapter", "sd1", {"compile": True}, None),
    (precision.vae_chunks_are_even, "adapter", "anima", {"vae_chunk_size": 15}, ("vae_chunk_size", "error")),
    (precision.vae_chunks_are_even, "adapter", "hunyuan_image", {"vae_chunk_size": 16}, None),
    (precision.vae_chunks_are_even, "adapter", "sd1", {"vae_chunk_size": 15}, ("vae_chunk_size", "error")),
    (precision.deepspeed_is_ready, "adapter", SD, {"deepspeed": True}, ("deepspeed", "error")),
    (precision.deepspeed_is_ready, "adapter", SD, {"offload_param_device": "nvme"}, None),
    (
        precision.static_graph_fits, "adapter", SD, {"ddp_static_graph": True, "gradient_accumulation_steps": 2},
        ("ddp_static_graph", "error"),
    ),
    (precision.static_graph_fits, "adapter", SD, {"ddp_static_graph": True}, None),
]  # fmt: skip
