"""Options: number formats, memory, speed."""

from typing import ClassVar, Literal

from sd_scripts.options.schema import Options, option


class Precision(Options):
    title: ClassVar[str] = "Precision and memory"
    order: ClassVar[int] = 90

    mixed_precision: Literal["no", "fp16", "bf16"] = option(
        "no",
        help="Number format of the computation. bf16 for GPUs since 2020 (RTX 30 and newer), fp16 for older ones, "
        "no on a CPU.",
    )
    full_fp16: bool = option(
        False,
        level="expert",
        help="Keep the trained weights in fp16 too. Saves memory, costs accuracy; needs mixed precision fp16.",
    )
    full_bf16: bool = option(
        False,
        level="expert",
        help="Keep the trained weights in bf16 too. Saves memory, costs accuracy; needs mixed precision bf16.",
    )
    gradient_checkpointing: bool = option(
        False, help="Compute activations twice instead of keeping them: much less memory, about a quarter slower."
    )
    ema_decay: float | None = option(
        None,
        gt=0,
        lt=1,
        level="expert",
        help="Keep a running average of the trained weights with this decay (e.g. 0.999) and save that.",
    )


class Memory(Options):
    title: ClassVar[str] = "Speed and off-loading"
    order: ClassVar[int] = 95
