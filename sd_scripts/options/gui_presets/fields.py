"""Keys of the known GUI's preset files, and the option that each sets: the plain ones, of which each stands for itself.

Keys that only mean something together are in `rules.py`, those of the network in `networks.py`.

**Zero.** The known GUI leaves out every 0 on most tabs, so its users could not switch off what a trainer has on. Here a 0 is a
value, except where the form's 0 says "off" or "none" and the trainer's own word for that is to leave the option out: such
fields are declared with `unset=OFF`. So max_grad_norm 0 (no clipping), prior_loss_weight 0, huber_c 0, guidance_scale 0,
sigmoid_scale 0, discrete_flow_shift 0, lr_scheduler_power 0, keep_tokens 0 and every learning rate of 0 (that part is not
trained) arrive as 0, while save_every_n_steps 0 (never), seed 0 (drawn anew), vae_batch_size 0, network_dropout 0 and the
like arrive as unset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sd_scripts.options.gui_presets import readers
from sd_scripts.options.gui_presets.readers import Reader

OFF = (0,)
SD = ("sd1", "sd2")
SDXL = ("sdxl",)
SD3 = ("sd3",)
FLUX = ("flux", "chroma")
HUNYUAN = ("hunyuan_image",)
ANIMA = ("anima",)
LUMINA = ("lumina",)


@dataclass(frozen=True)
class Field:
    """A key that sets one option.

    `unset`: values that say that nothing is set. `families`: those for which the field is there; () is all.
    `idle`: the value of the form's untouched field, not worth a word when the field is not there for the family.
    """

    option: str
    read: Reader
    unset: tuple[Any, ...] = ()
    families: tuple[str, ...] = ()
    idle: Any = None


Table = Mapping[str, Field]


def _same(read: Reader, keys: str, **details: Any) -> dict[str, Field]:
    """Fields whose key is the option's name."""
    return {key: Field(key, read, **details) for key in keys.split()}


def _prefixed(prefix: str, families: tuple[str, ...], read: Reader, names: Mapping[str, Any], **details: Any) -> Table:
    """Fields of one family whose key is a prefix and the option's name, with their idle values."""
    return {
        f"{prefix}_{name}": Field(name, read, families=families, idle=idle, **details) for name, idle in names.items()
    }


COMMON: Table = {
    # launch; 0 processes, machines or threads cannot be, port 0 is the form's "choose one"
    **_same(readers.whole, "num_processes num_machines num_cpu_threads_per_process main_process_port", unset=OFF),
    **_same(readers.flag, "multi_gpu dynamo_use_fullgraph dynamo_use_dynamic"),
    "dynamo_mode": Field("dynamo_mode", readers.word, unset=("default",)),
    "gpu_ids": Field("gpu_ids", readers.word),
    "extra_accelerate_launch_args": Field("extra_accelerate_launch_args", readers.arguments),
    "mixed_precision": Field("mixed_precision", readers.word),
    # model and folders
    **_same(
        readers.text,
        "pretrained_model_name_or_path output_dir output_name train_data_dir reg_data_dir logging_dir dataset_config "
        "resume training_comment metadata_title metadata_author metadata_description metadata_license metadata_tags",
    ),
    "vae": Field("vae", readers.text, families=(*SD, *SDXL, *SD3, *FLUX, *LUMINA)),
    "v_parameterization": Field("v_parameterization", readers.flag),
    "save_precision": Field("save_precision", readers.word),
    "no_metadata": Field("no_metadata", readers.flag),
    # data
    "max_resolution": Field("resolution", readers.size),
    **_same(readers.whole, "min_bucket_reso max_bucket_reso bucket_reso_steps", unset=OFF),
    **_same(readers.whole, "train_batch_size dataset_repeats gradient_accumulation_steps vae_batch_size", unset=OFF),
    **_same(readers.whole, "keep_tokens max_data_loader_n_workers"),  # 0 workers: loaded in the main process
    **_same(
        readers.flag,
        "enable_bucket bucket_no_upscale cache_latents_to_disk shuffle_caption weighted_captions color_aug "
        "flip_aug random_crop masked_loss persistent_data_loader_workers skip_cache_check",
    ),
    **_same(readers.whole, "caption_dropout_every_n_epochs", unset=OFF),
    **_same(readers.number, "caption_dropout_rate", unset=OFF),
    "caption_extension": Field("caption_extension", readers.word),  # any text: some use a suffix that no file has
    "max_token_length": Field("max_token_length", readers.whole, unset=(0, 75)),  # 75 is what unset means
    "prior_loss_weight": Field("prior_loss_weight", readers.number),
    # length, optimizer, schedule
    "seed": Field("seed", readers.whole, unset=OFF),  # the form's 0: a seed is drawn
    **_same(readers.number, "learning_rate max_grad_norm lr_scheduler_power"),
    **_same(readers.word, "lr_scheduler lr_scheduler_type"),
    **_same(readers.arguments, "lr_scheduler_args optimizer_args"),
    # precision and memory
    **_same(
        readers.flag,
        "full_fp16 full_bf16 fp8_base fp8_base_unet highvram gradient_checkpointing mem_eff_attn "
        "disable_mmap_load_safetensors",
    ),
    # loss and timesteps; 0 is off or the trainer's own limit
    **_same(readers.word, "loss_type huber_schedule"),
    **_same(readers.number, "huber_c huber_scale"),
    **_same(readers.number, "min_snr_gamma v_pred_like_loss ip_noise_gamma", unset=OFF),
    **_same(
        readers.flag,
        "scale_v_pred_loss_like_noise_pred debiased_estimation_loss ip_noise_gamma_random_strength zero_terminal_snr",
    ),
    "min_timestep": Field("min_timestep", readers.whole, unset=OFF),
    "max_timestep": Field("max_timestep", readers.whole, unset=(0, 1000)),  # 1000 is all of them, as is unset
    "show_timesteps": Field("show_timesteps", readers.word, families=(*SD3, *FLUX, *ANIMA, *LUMINA)),
    "show_timesteps_resolution": Field(
        "show_timesteps_resolution", readers.size, ("1024",), (*SD3, *FLUX, *ANIMA, *LUMINA), "1024"
    ),
    # saving, samples, logs, hub; 0 is never, or all
    **_same(
        readers.whole,
        "save_every_n_epochs save_every_n_steps save_last_n_epochs save_last_n_epochs_state save_last_n_steps "
        "save_last_n_steps_state sample_every_n_epochs sample_every_n_steps",
        unset=OFF,
    ),
    **_same(readers.flag, "save_state save_state_on_train_end log_config save_state_to_huggingface async_upload"),
    "sample_prompts": Field("sample_prompts", readers.multiline),  # the prompts themselves, not the path of a file
    "sample_sampler": Field("sample_sampler", readers.word, families=(*SD, *SDXL), idle="euler_a"),
    **_same(readers.text, "log_tracker_name log_tracker_config wandb_run_name"),
    **_same(
        readers.word,
        "wandb_api_key huggingface_repo_id huggingface_repo_type huggingface_repo_visibility huggingface_path_in_repo "
        "huggingface_token resume_from_huggingface",
    ),
    "sdxl_no_half_vae": Field("no_half_vae", readers.flag, families=SDXL),
    "sdxl_cache_text_encoder_outputs": Field("cache_text_encoder_outputs", readers.flag, families=SDXL),
}

_FLUX: Table = {
    **_same(readers.text, "ae", families=FLUX),
    "discrete_flow_shift": Field("discrete_flow_shift", readers.number, families=FLUX, idle=3.0),
    "model_prediction_type": Field("model_prediction_type", readers.word, families=FLUX, idle="sigma_scaled"),
    "timestep_sampling": Field("timestep_sampling", readers.word, families=FLUX, idle="sigma"),
    "guidance_scale": Field("guidance_scale", readers.number, families=FLUX, idle=3.5),
    "t5xxl_max_token_length": Field("t5xxl_max_token_length", readers.whole, OFF, FLUX, 512),
    **_same(readers.flag, "apply_t5_attn_mask mem_eff_save cpu_offload_checkpointing", families=FLUX),
    **_prefixed(
        "flux1", FLUX, readers.flag, dict.fromkeys(("cache_text_encoder_outputs", "cache_text_encoder_outputs_to_disk"))
    ),
}
_SD3: Table = {
    "weighting_scheme": Field("weighting_scheme", readers.word, families=SD3, idle="logit_normal"),
    "logit_mean": Field("logit_mean", readers.number, families=SD3),
    "logit_std": Field("logit_std", readers.number, families=SD3, idle=1.0),
    "mode_scale": Field("mode_scale", readers.number, families=SD3, idle=1.29),
    **_same(readers.text, "clip_g t5xxl_device", families=SD3),
    "t5xxl_dtype": Field("t5xxl_dtype", readers.word, ("bf16",), SD3, "bf16"),  # the form always holds one
    **_same(readers.flag, "save_clip save_t5xxl", families=SD3),
    "sd3_text_encoder_batch_size": Field("text_encoder_batch_size", readers.whole, OFF, SD3, 1),
    **_prefixed(
        "sd3",
        SD3,
        readers.flag,
        dict.fromkeys(
            (
                "cache_text_encoder_outputs", "cache_text_encoder_outputs_to_disk", "fused_backward_pass",
                "disable_mmap_load_safetensors", "enable_scaled_pos_embed",
            )
        ),
    ),
    "sd3_clip_l_dropout_rate": Field("clip_l_dropout_rate", readers.number, OFF, SD3),
    "clip_g_dropout_rate": Field("clip_g_dropout_rate", readers.number, OFF, SD3),
    "sd3_t5_dropout_rate": Field("t5_dropout_rate", readers.number, OFF, SD3),
    "pos_emb_random_crop_rate": Field("pos_emb_random_crop_rate", readers.number, OFF, SD3),
}  # fmt: skip
_HUNYUAN: Table = {
    **_prefixed("hunyuan", HUNYUAN, readers.text, dict.fromkeys(("text_encoder", "byt5", "vae"))),
    **_prefixed("hunyuan", HUNYUAN, readers.number, {"discrete_flow_shift": 5.0, "sigmoid_scale": 1.0}),
    **_prefixed(
        "hunyuan",
        HUNYUAN,
        readers.word,
        {"model_prediction_type": "raw", "timestep_sampling": "sigma", "attn_mode": "torch"},
    ),
    **_prefixed(
        "hunyuan", HUNYUAN, readers.flag, dict.fromkeys(("split_attn", "fp8_scaled", "fp8_vl", "text_encoder_cpu"))
    ),
    **_prefixed("hunyuan", HUNYUAN, readers.whole, {"vae_chunk_size": 0}, unset=OFF),
    **_prefixed(
        "hunyuan_image",
        HUNYUAN,
        readers.flag,
        dict.fromkeys(("cache_text_encoder_outputs", "cache_text_encoder_outputs_to_disk")),
    ),
}
_ANIMA: Table = {
    **_prefixed("anima", ANIMA, readers.text, dict.fromkeys(("qwen3", "vae", "llm_adapter_path", "t5_tokenizer_path"))),
    **_prefixed("anima", ANIMA, readers.number, {"discrete_flow_shift": 1.0, "sigmoid_scale": 1.0}),
    **_prefixed("anima", ANIMA, readers.word, {"timestep_sampling": "sigmoid", "attn_mode": "torch"}),
    **_prefixed("anima", ANIMA, readers.whole, {"qwen3_max_token_length": 512, "t5_max_token_length": 512}, unset=OFF),
    **_prefixed("anima", ANIMA, readers.whole, {"vae_chunk_size": 0, "compile_cache_size_limit": 0}, unset=OFF),
    **_prefixed(
        "anima",
        ANIMA,
        readers.flag,
        dict.fromkeys(
            (
                "split_attn", "vae_disable_cache", "qwen_image_vae_2d", "cache_text_encoder_outputs",
                "cache_text_encoder_outputs_to_disk", "unsloth_offload_checkpointing", "compile", "compile_fullgraph",
            )
        ),
    ),
    # what follows says how to compile; the form always holds the trainer's defaults
    "anima_compile_backend": Field("compile_backend", readers.word, ("inductor",), ANIMA, "inductor"),
    "anima_compile_mode": Field("compile_mode", readers.word, ("default",), ANIMA, "default"),
    "anima_compile_dynamic": Field("compile_dynamic", readers.word, ("auto",), ANIMA, "auto"),
}  # fmt: skip
_LUMINA: Table = {
    **_prefixed("lumina", LUMINA, readers.text, dict.fromkeys(("gemma2", "ae", "system_prompt"))),
    **_prefixed("lumina", LUMINA, readers.number, {"discrete_flow_shift": 6.0, "sigmoid_scale": 1.0}),
    **_prefixed("lumina", LUMINA, readers.word, {"model_prediction_type": "raw", "timestep_sampling": "shift"}),
    **_prefixed("lumina", LUMINA, readers.whole, {"gemma2_max_token_length": 256}, unset=OFF),
    **_prefixed(
        "lumina",
        LUMINA,
        readers.flag,
        dict.fromkeys(
            (
                "use_flash_attn", "use_sage_attn", "cache_text_encoder_outputs", "cache_text_encoder_outputs_to_disk",
            )
        ),
    ),
}  # fmt: skip

_FAMILIES: Table = {**COMMON, **_FLUX, **_SD3, **_HUNYUAN, **_ANIMA, **_LUMINA}
_NETWORK: Table = {
    "network_weights": Field("network_weights", readers.text),
    "dim_from_weights": Field("dim_from_weights", readers.flag),
    "network_dim": Field("network_dim", readers.whole),
    "network_alpha": Field("network_alpha", readers.number),
    "network_dropout": Field("network_dropout", readers.number, unset=OFF),
    "scale_weight_norms": Field("scale_weight_norms", readers.number, unset=OFF),
}
_WHOLE_MODEL: Table = {  # the DreamBooth and fine-tuning tabs
    **_FAMILIES,
    "clip_l": Field("clip_l", readers.text, families=SD3),
    "t5xxl": Field("t5xxl", readers.text, families=SD3),
    "flux1_clip_l": Field("clip_l", readers.text, families=FLUX),
    "flux1_t5xxl": Field("t5xxl", readers.text, families=FLUX),
    "flux_fused_backward_pass": Field("fused_backward_pass", readers.flag, families=FLUX),
    "blockwise_fused_optimizers": Field("blockwise_fused_optimizers", readers.flag, families=FLUX),
    "fused_backward_pass": Field("fused_backward_pass", readers.flag, families=(*SD, *SDXL, *ANIMA, *LUMINA)),
    "fused_optimizer_groups": Field("fused_optimizer_groups", readers.whole, OFF, SDXL, 0),
    "learning_rate_te": Field("learning_rate_te", readers.number, families=SD, idle=1e-5),
    "learning_rate_te1": Field("learning_rate_te1", readers.number, families=SDXL, idle=1e-5),
    "learning_rate_te2": Field("learning_rate_te2", readers.number, families=SDXL, idle=1e-5),
    "no_token_padding": Field("no_token_padding", readers.flag),
}

TABLES: Mapping[str, Table] = {
    "adapter": {
        **_FAMILIES,
        **_NETWORK,
        "clip_l": Field("clip_l", readers.text, families=("flux",)),  # Chroma has none
        "t5xxl": Field("t5xxl", readers.text, families=FLUX),
        "sd3_clip_l": Field("clip_l", readers.text, families=SD3),
        "sd3_t5xxl": Field("t5xxl", readers.text, families=SD3),
    },
    "dreambooth": _WHOLE_MODEL,
    "full": {
        **_WHOLE_MODEL,
        "image_folder": Field("train_data_dir", readers.text),
        "train_text_encoder": Field("train_text_encoder", readers.flag, families=(*SD, *SDXL, *SD3), idle=True),
        "block_lr": Field("block_lr", readers.text, families=SDXL),
    },
    "textual_inversion": {
        **COMMON,
        **_same(readers.text, "weights token_string init_word"),
        "num_vectors_per_token": Field("num_vectors_per_token", readers.whole),
        "sdxl_no_half_vae": Field("no_half_vae", readers.flag),  # on this tab it acts for all families
    },
    "leco": {
        **COMMON,
        **_NETWORK,
        **_same(readers.text, "prompts_file network_module"),
        **_same(readers.number, "leco_denoise_guidance_scale unet_lr"),
        "max_denoising_steps": Field("max_denoising_steps", readers.whole),
        "network_args": Field("network_args", readers.arguments),
    },
    "lllite": {
        **COMMON,
        **_ANIMA,
        "resolution": Field("resolution", readers.size),
        **_same(readers.text, "conditioning_data_dir network_weights lllite_target_layers"),
        **_same(
            readers.whole,
            "cond_emb_dim lllite_mlp_dim lllite_cond_dim lllite_cond_resblocks lllite_cond_in_channels",
        ),
        "lllite_dropout": Field("lllite_dropout", readers.number, unset=OFF),
        "lllite_multiplier": Field("lllite_multiplier", readers.number),
        **_same(
            readers.flag,
            "lllite_use_aspp lllite_inpaint_masked_input cache_text_encoder_outputs cache_text_encoder_outputs_to_disk",
        ),
    },
}
METHOD_LABELS = {
    "adapter": "LoRA", "dreambooth": "DreamBooth", "full": "fine-tuning", "textual_inversion": "textual inversion",
    "leco": "LECO", "lllite": "ControlNet-LLLite",
}  # fmt: skip
