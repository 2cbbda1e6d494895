"""Keys of preset files that only mean something together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sd_scripts.options.families import FAMILIES
from sd_scripts.options.gui_presets import readers
from sd_scripts.options.gui_presets.conversion import Conversion, says_nothing
from sd_scripts.options.gui_presets.families import BOXES


@dataclass(frozen=True)
class Rule:
    """What to do with some keys. `methods`: the tabs that have them; () is all."""

    apply: Callable[[Conversion], None]
    keys: tuple[str, ...]
    methods: tuple[str, ...] = ()


def boxes(it: Conversion) -> None:
    """The family boxes were read before; only `v2` is an option too."""
    it.seen.update(BOXES)
    if it.architecture == "sd2":
        it.set("v2", True, "v2")


def length(it: Conversion) -> None:
    """Epochs by `max_train_epochs` win over `max_train_steps`, and these over `epoch`, which the older forms had."""
    epochs = it.take("max_train_epochs", readers.whole)
    steps = it.take("max_train_steps", readers.whole)
    passes = it.take("epoch", readers.whole)
    if epochs:
        it.set("max_train_epochs", epochs, "max_train_epochs")
        it.leave_out("max_train_steps", f"max_train_epochs = {epochs} decides the length")
    elif steps:
        it.set("max_train_steps", steps, "max_train_steps")
    elif passes:
        it.set("max_train_epochs", passes, "epoch")
        it.say("converted", "epoch", f"{passes} is set as max_train_epochs")
    if passes and (epochs or steps):
        decides = f"max_train_epochs = {epochs}" if epochs else f"max_train_steps = {steps}"
        it.leave_out("epoch", f"{decides} decides the length", 1, epochs)


def warm_up(it: Conversion) -> None:
    """A percentage, or steps, which win. The schedule `constant` takes neither: the form empties both for it."""
    percent = it.take("lr_warmup", readers.number)
    steps = it.take("lr_warmup_steps", readers.number)
    if percent and not 0 <= percent <= 100:
        it.say("invalid", "lr_warmup", f"{percent} is no percentage from 0 to 100; left out")
        percent = None
    if it.content.get("lr_scheduler") == "constant" and not it.content.get("lr_scheduler_type"):
        for key in ("lr_warmup", "lr_warmup_steps"):
            it.leave_out(key, "the schedule constant has no warm-up; choose constant_with_warmup to have one")
    elif steps:
        it.set("lr_warmup_steps", int(steps) if float(steps).is_integer() else steps, "lr_warmup_steps")
        it.leave_out("lr_warmup", f"lr_warmup_steps = {steps} wins over a percentage")
    elif percent:
        it.set("lr_warmup_steps", f"{percent:g}%", "lr_warmup")
        it.say("converted", "lr_warmup", f"{percent:g} is set as lr_warmup_steps = {percent:g}%")


def cycles(it: Conversion) -> None:
    """Empty is one cycle; forms of some ages then took the number of epochs, which the user should know."""
    count = it.take("lr_scheduler_num_cycles", readers.whole)
    if count:
        it.set("lr_scheduler_num_cycles", count, "lr_scheduler_num_cycles")
    elif it.content.get("lr_scheduler") == "cosine_with_restarts" and "lr_scheduler_num_cycles" in it.content:
        it.say("converted", "lr_scheduler_num_cycles", "empty is one cycle; older forms took the number of epochs then")


def noise(it: Conversion) -> None:
    """The type chooses the group that acts; very old files have no type, and both act."""
    kind = it.take("noise_offset_type", readers.word)
    offset = it.take("noise_offset", readers.number)
    layers = it.take("multires_noise_iterations", readers.whole)
    if kind not in (None, "Original", "Multires"):
        it.say(
            "invalid", "noise_offset_type", f"{kind!r} is neither Original nor Multires; both kinds of noise are read"
        )
    of_offset = ("noise_offset", "adaptive_noise_scale", "noise_offset_random_strength")
    of_layers = ("multires_noise_iterations", "multires_noise_discount")
    if kind == "Multires":
        for key in of_offset:
            it.leave_out(key, "noise_offset_type is Multires")
    elif offset:
        it.set("noise_offset", offset, "noise_offset")
        if scale := it.take("adaptive_noise_scale", readers.number):
            it.set("adaptive_noise_scale", scale, "adaptive_noise_scale")
        if it.take("noise_offset_random_strength", readers.flag):
            it.set("noise_offset_random_strength", True, "noise_offset_random_strength")
    else:
        for key in of_offset[1:]:
            it.leave_out(key, "there is no noise_offset")
    if kind == "Original":
        for key in of_layers:
            it.leave_out(key, "noise_offset_type is Original", 0.3)
    elif layers:
        it.set("multires_noise_iterations", layers, "multires_noise_iterations")
        if (discount := it.take("multires_noise_discount", readers.number)) is not None:
            it.set("multires_noise_discount", discount, "multires_noise_discount")
    else:
        it.leave_out("multires_noise_discount", "there are no multires_noise_iterations", 0.3)


def attention(it: Conversion) -> None:
    """Once a box for xFormers, later a choice of xformers, sdpa or none; only models with a U-Net go by it."""
    if not FAMILIES[it.family].has(("unet",)):
        reason = f"{FAMILIES[it.family].label} does not go by it; see attn_mode, use_flash_attn and use_sage_attn"
        it.leave_out("xformers", reason, "xformers", True, "sdpa", "none")
        return
    given = it.content.get("xformers")
    if not isinstance(given, str) or given.strip().lower() in ("true", "false", "1", "0", ""):
        chosen = "xformers" if it.take("xformers", readers.flag) else "none"
    else:
        chosen = str(it.take("xformers", readers.word)).lower()
    if chosen in ("xformers", "sdpa"):
        it.set(chosen, True, "xformers")
    elif chosen != "none":
        it.say("invalid", "xformers", f"{chosen!r} is none of xformers, sdpa, none; left out")


def optimizer(it: Conversion) -> None:
    """The older box for 8-bit Adam only counts where no optimizer is chosen."""
    name = it.take("optimizer", readers.word)
    is_8bit = it.take("use_8bit_adam", readers.flag)
    if name:
        it.set("optimizer_type", name, "optimizer")
        if is_8bit:
            it.leave_out("use_8bit_adam", f"optimizer = {name} decides", *([True] if name == "AdamW8bit" else []))
    elif is_8bit is not None:
        name = "AdamW8bit" if is_8bit else "AdamW"
        it.set("optimizer_type", name, "use_8bit_adam")
        it.say("converted", "use_8bit_adam", f"set as optimizer_type = {name}")


def rates(it: Conversion) -> None:
    """Rates of the parts of an adapter. A 0 leaves the part untrained; where both are 0, both follow the learning rate."""
    unet = it.take("unet_lr", readers.number)
    text = it.take("text_encoder_lr", readers.rates)
    base = it.take("learning_rate", readers.number)
    if unet == 0 and text is not None and not any(text) and base:
        it.say("converted", "unet_lr", f"0 for all parts means the learning rate, {base}, for all of them")
        unet = text = None
    if unet is not None:
        it.set("unet_lr", unet, "unet_lr")
    clip = text[0] if text else base
    t5 = it.take("t5xxl_lr", readers.number)
    if it.family not in ("flux", "chroma", "sd3"):
        it.leave_out("t5xxl_lr", "only FLUX.1, Chroma and Stable Diffusion 3 have a T5 text encoder")
    elif t5 and clip is None:
        it.leave_out("t5xxl_lr", "there is neither a text_encoder_lr nor a learning_rate beside it")
    elif t5:
        text = [clip, clip, t5] if it.family == "sd3" else [clip, t5]
    if text is None:
        return
    it.set("text_encoder_lr", text, "text_encoder_lr")
    if not any(text) and unet != 0:
        it.set("network_train_unet_only", True, "text_encoder_lr")
    elif any(text) and unet == 0:
        it.set("network_train_text_encoder_only", True, "unet_lr")


def tracking(it: Conversion) -> None:
    """`use_wandb` was a box of its own once."""
    tracker = it.take("log_with", readers.word)
    uses_wandb = it.take("use_wandb", readers.flag)
    if tracker:
        it.set("log_with", tracker, "log_with")
        if uses_wandb and tracker not in ("wandb", "all"):
            it.leave_out("use_wandb", f"log_with = {tracker} decides")
    elif uses_wandb:
        it.set("log_with", "wandb", "use_wandb")
        it.say("converted", "use_wandb", "set as log_with = wandb")


def compilation(it: Conversion) -> None:
    """A dynamo backend other than "no" switches torch.compile on, as accelerate does by it."""
    backend = it.take("dynamo_backend", readers.word)
    wanted = backend is not None and backend.lower() != "no"
    if wanted:
        it.set("dynamo_backend", str(backend).lower(), "dynamo_backend")
    if it.family != "anima":
        it.leave_out("anima_torch_compile", "the file is not for Anima")
    elif it.take("anima_torch_compile", readers.flag):
        wanted = True
    if wanted:
        it.set("torch_compile", True, "dynamo_backend" if backend else "anima_torch_compile")


def metadata_file(it: Conversion) -> None:
    """The form keeps the folder of the metadata file and the names of two: with and without latents."""
    use_latents = it.take("use_latent_files", readers.flag)
    folder = it.take("train_dir", readers.text)
    names = {
        True: it.take("latent_metadata_filename", readers.text) or "meta_lat.json",
        False: it.take("caption_metadata_filename", readers.text) or "meta_cap.json",
    }
    if folder is None:
        for key in ("latent_metadata_filename", "caption_metadata_filename"):
            it.leave_out(key, "no train_dir says where the file lies", "meta_lat.json", "meta_cap.json")
    elif not says_nothing(it.content.get("dataset_config")):
        it.leave_out("train_dir", "dataset_config says what to train on")
    else:
        name = names[use_latents is not False]
        it.set("in_json", f"{folder.rstrip('/').rstrip(chr(92))}/{name}", "train_dir")
        it.say("converted", "train_dir", f"set as in_json = {it.values['in_json']}")
    # the form of the fine-tuning tab always groups by shape, and has no field for it
    it.values.setdefault("enable_bucket", True)


def template(it: Conversion) -> None:
    """Captions, or one of two built-in lists of sentences."""
    match it.take("template", readers.word):
        case None | "caption":
            pass
        case "object template":
            it.set("use_object_template", True, "template")
        case "style template":
            it.set("use_style_template", True, "template")
        case other:
            it.say("invalid", "template", f"{other!r} is none of caption, object template, style template; left out")


def stop_text_encoder(it: Conversion) -> None:
    """A percentage of the run in the form; a step for the trainer."""
    percent = it.take("stop_text_encoder_training", readers.number)
    if not percent:
        return
    steps = it.values.get("max_train_steps")
    if percent == -1:  # never trained, for form and trainer alike
        it.set("stop_text_encoder_training", -1, "stop_text_encoder_training")
    elif not 0 < percent <= 100:
        it.say("invalid", "stop_text_encoder_training", f"{percent} is no percentage from 0 to 100; left out")
    elif steps:
        stop = math.ceil(steps * percent / 100)
        it.set("stop_text_encoder_training", stop, "stop_text_encoder_training")
        it.say("converted", "stop_text_encoder_training", f"{percent:g} % of {steps} steps is step {stop}")
    else:
        reason = "a percentage of epochs is no number of steps; set the step in stop_text_encoder_training"
        it.leave_out("stop_text_encoder_training", reason)


def file_format(it: Conversion) -> None:
    """ "same as source model" is what unset means; adapters and embeddings know no folders of Diffusers."""
    name = it.take("save_model_as", readers.word)
    if name is None or name == "same as source model":
        return
    if it.method not in ("dreambooth", "full") and name not in ("safetensors", "ckpt", "pt"):
        it.say("converted", "save_model_as", f"{name} is no format for this kind of file; safetensors is set")
        name = "safetensors"
    it.set("save_model_as", name, "save_model_as")


def block_swap(it: Conversion) -> None:
    """FLUX once had one number a kind of block; trainers of adapters only know the one for all."""
    swapped = it.take("blocks_to_swap", readers.whole)
    if swapped:
        it.set("blocks_to_swap", swapped, "blocks_to_swap")
    older = ("double_blocks_to_swap", "single_blocks_to_swap")
    if it.family not in ("flux", "chroma"):
        for key in older:
            it.leave_out(key, "the file is not for FLUX.1")
        return
    double, single = (it.take(key, readers.whole) or 0 for key in older)
    if swapped:
        for key in older:
            it.leave_out(key, f"blocks_to_swap = {swapped} wins")
    elif total := double + single // 2:
        it.set("blocks_to_swap", total, older[0] if double else older[1])
        it.say("converted", older[0], f"{double} double and {single} single blocks are set as blocks_to_swap = {total}")


def clip_layer(it: Conversion) -> None:
    """The last layer is what unset means; the form always holds it, also for families without the choice."""
    layer = it.take("clip_skip", readers.whole)
    if layer and (layer > 1 or it.family in ("sd1", "sd2")):
        it.set("clip_skip", layer, "clip_skip")


def latents(it: Conversion) -> None:
    """Inpainting masks the pictures anew each time, so its form switches the cache of latents off."""
    cached = it.take("cache_latents", readers.flag)
    if it.family not in ("sd1", "sd2", "sdxl"):
        it.leave_out("train_inpainting", "it is for SD 1.x, 2.x and SDXL")
    elif (inpainting := it.take("train_inpainting", readers.flag)) is not None:
        it.set("train_inpainting", inpainting, "train_inpainting")
        if inpainting and cached:
            it.say("converted", "cache_latents", "switched off, as train_inpainting needs the pictures in each step")
            cached = False
    if cached is not None:
        it.set("cache_latents", cached, "cache_latents")


def flux_model(it: Conversion) -> None:
    """Chroma is a FLUX.1 without CLIP-L that needs the mask over T5."""
    if it.family not in ("flux", "chroma"):
        it.leave_out("model_type", "the file is not for FLUX.1", "flux")
        it.leave_out("split_mode", "the file is not for FLUX.1")
        return
    if kind := it.take("model_type", readers.word):
        it.set("model_type", kind, "model_type")
    if it.family == "chroma":
        it.set("apply_t5_attn_mask", True, "model_type")
    if it.method != "adapter":
        it.leave_out("split_mode", "only trainers of adapters have it")
    elif it.take("split_mode", readers.flag):
        it.set("split_mode", True, "split_mode")


RULES: tuple[Rule, ...] = (
    Rule(boxes, tuple(BOXES)),
    Rule(length, ("epoch", "max_train_epochs", "max_train_steps")),
    Rule(warm_up, ("lr_warmup", "lr_warmup_steps")),
    Rule(cycles, ("lr_scheduler_num_cycles",)),
    Rule(
        noise,
        (
            "noise_offset_type", "noise_offset", "noise_offset_random_strength", "adaptive_noise_scale",
            "multires_noise_iterations", "multires_noise_discount",
        ),
    ),
    Rule(attention, ("xformers",)),
    Rule(optimizer, ("optimizer", "use_8bit_adam")),
    Rule(rates, ("unet_lr", "text_encoder_lr", "t5xxl_lr"), ("adapter",)),
    Rule(tracking, ("log_with", "use_wandb")),
    Rule(compilation, ("dynamo_backend", "anima_torch_compile")),
    Rule(
        metadata_file,
        ("use_latent_files", "train_dir", "latent_metadata_filename", "caption_metadata_filename"),
        ("full",),
    ),
    Rule(template, ("template",), ("textual_inversion",)),
    Rule(stop_text_encoder, ("stop_text_encoder_training",), ("dreambooth",)),
    Rule(file_format, ("save_model_as",)),
    Rule(block_swap, ("blocks_to_swap", "double_blocks_to_swap", "single_blocks_to_swap")),
    Rule(clip_layer, ("clip_skip",)),
    Rule(latents, ("cache_latents", "train_inpainting")),
    Rule(flux_model, ("model_type", "split_mode"), ("adapter", "dreambooth", "full")),
)  # fmt: skip
