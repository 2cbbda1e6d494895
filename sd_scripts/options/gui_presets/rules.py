"""Keys of preset files that only mean something together: which rule is for which, in the order in which they are applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sd_scripts.options.gui_presets import adapters, extra
from sd_scripts.options.gui_presets import model_rules as model
from sd_scripts.options.gui_presets import training_rules as training
from sd_scripts.options.gui_presets.conversion import Conversion
from sd_scripts.options.gui_presets.families import BOXES


@dataclass(frozen=True)
class Rule:
    """What to do with some keys. `methods`: the tabs that have them; () is all."""

    apply: Callable[[Conversion], None]
    keys: tuple[str, ...]
    methods: tuple[str, ...] = ()


RULES: tuple[Rule, ...] = (
    Rule(model.boxes, tuple(BOXES)),
    Rule(training.length, ("epoch", "max_train_epochs", "max_train_steps")),
    Rule(training.warm_up, ("lr_warmup", "lr_warmup_steps")),
    Rule(training.cycles, ("lr_scheduler_num_cycles",)),
    Rule(
        training.noise,
        (
            "noise_offset_type", "noise_offset", "noise_offset_random_strength", "adaptive_noise_scale",
            "multires_noise_iterations", "multires_noise_discount",
        ),
    ),
    Rule(model.attention, ("xformers",)),
    Rule(training.optimizer, ("optimizer", "use_8bit_adam")),
    Rule(training.rates, ("unet_lr", "text_encoder_lr", "t5xxl_lr"), ("adapter",)),
    Rule(training.tracking, ("log_with", "use_wandb")),
    Rule(model.compilation, ("dynamo_backend", "anima_torch_compile")),
    Rule(
        model.metadata_file,
        ("use_latent_files", "train_dir", "latent_metadata_filename", "caption_metadata_filename"),
        ("full",),
    ),
    Rule(model.template, ("template",), ("textual_inversion",)),
    Rule(training.stop_text_encoder, ("stop_text_encoder_training",), ("dreambooth",)),
    Rule(model.file_format, ("save_model_as",)),
    Rule(model.block_swap, ("blocks_to_swap", "double_blocks_to_swap", "single_blocks_to_swap")),
    Rule(model.clip_layer, ("clip_skip",)),
    Rule(model.latents, ("cache_latents", "train_inpainting")),
    Rule(model.flux_model, ("model_type", "split_mode"), ("adapter", "dreambooth", "full")),
    Rule(adapters.network, adapters.KEYS, ("adapter",)),
    Rule(extra.additional_parameters, (extra.KEY,)),  # last: it is told what the fields said
)  # fmt: skip
