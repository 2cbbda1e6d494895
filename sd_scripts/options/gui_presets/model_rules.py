"""Rules of preset files about the model, its data and its files."""

from __future__ import annotations

from sd_scripts.options.families import FAMILIES
from sd_scripts.options.gui_presets import readers
from sd_scripts.options.gui_presets.conversion import Conversion, says_nothing
from sd_scripts.options.gui_presets.families import BOXES


def boxes(it: Conversion) -> None:
    """The family boxes were read before; only `v2` is an option too."""
    it.seen.update(BOXES)
    if it.architecture == "sd2":
        it.set("v2", True, "v2")


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
