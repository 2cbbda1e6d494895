"""Rules of preset files about the training: its length, rates, schedule, noise and logs."""

from __future__ import annotations

import math

from sd_scripts.options.gui_presets import readers
from sd_scripts.options.gui_presets.conversion import Conversion


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


def noise(it: Conversion) -> None:
    """The type chooses the group that acts on the LoRA tab; the other tabs and very old files train with both."""
    kind = it.take("noise_offset_type", readers.word)
    offset = it.take("noise_offset", readers.number)
    layers = it.take("multires_noise_iterations", readers.whole)
    if kind not in (None, "Original", "Multires"):
        it.say(
            "invalid", "noise_offset_type", f"{kind!r} is neither Original nor Multires; both kinds of noise are read"
        )
    elif it.method != "adapter" and ((kind == "Multires" and offset) or (kind == "Original" and layers)):
        it.say("converted", "noise_offset_type", f"{kind} hid the other kind of noise, but the older form used both")
    if it.method != "adapter":
        kind = None
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
