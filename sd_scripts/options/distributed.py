"""Options: several devices: DDP and DeepSpeed."""

from typing import Any, ClassVar, Literal

from sd_scripts.options.schema import Options, option

DEEPSPEED: dict[str, Any] = {"deepspeed": True}
STAGE_3: dict[str, Any] = DEEPSPEED | {"zero_stage": 3}


class Distributed(Options):
    title: ClassVar[str] = "Several devices"
    order: ClassVar[int] = 105

    ddp_timeout: int | None = option(
        None,
        ge=1,
        label="Timeout",
        unit="minutes",
        level="expert",
        help="How long a process waits for the others before the run is given up; 10 or 30 minutes when unset, by the "
        "kind of device. Raise it when the first process needs long to cache or to draw samples.",
    )
    ddp_gradient_as_bucket_view: bool = option(
        False,
        label="Gradients in buckets",
        level="expert",
        help="Let gradients live in the memory that is used to exchange them: saves the size of the trained weights once "
        "on each device.",
    )
    ddp_static_graph: bool = option(
        False,
        label="Same parts in every step",
        level="expert",
        help="Promise that every step uses the same weights in the same order, which makes the exchange a little faster.",
    )
    deepspeed: bool = option(
        False,
        label="DeepSpeed",
        level="expert",
        available=False,
        help="Spread optimizer state, gradients and weights over the devices with DeepSpeed. For models that do not fit "
        "one GPU; slower than plain training on several.",
    )
    zero_stage: Literal[0, 1, 2, 3] = option(
        2,
        label="ZeRO stage",
        level="expert",
        only_with=DEEPSPEED,
        available=False,
        help="What is spread: nothing (0), the optimizer's state (1), gradients too (2), weights too (3). Each further one "
        "saves memory and costs exchange.",
    )
    offload_optimizer_device: Literal["cpu", "nvme"] | None = option(
        None,
        label="Optimizer state on",
        level="expert",
        only_with=DEEPSPEED | {"zero_stage": (2, 3)},
        available=False,
        help="Keep the optimizer's state in main memory or on a disk instead of on the GPU. Saves 8 bytes a trained weight "
        "for AdamW; steps get slower.",
    )
    offload_optimizer_nvme_path: str | None = option(
        None,
        label="… folder",
        level="expert",
        path="folder",
        only_with=STAGE_3 | {"offload_optimizer_device": "nvme"},
        available=False,
        help="Folder on a fast disk for the optimizer's state.",
    )
    offload_param_device: Literal["cpu", "nvme"] | None = option(
        None,
        label="Weights on",
        level="expert",
        only_with=STAGE_3,
        available=False,
        help="Keep the weights in main memory or on a disk and fetch them when they are needed. Much slower.",
    )
    offload_param_nvme_path: str | None = option(
        None,
        label="… folder",
        level="expert",
        path="folder",
        only_with=STAGE_3 | {"offload_param_device": "nvme"},
        available=False,
        help="Folder on a fast disk for the weights.",
    )
    zero3_init_flag: bool = option(
        False,
        label="Spread while loading",
        level="expert",
        only_with=STAGE_3,
        available=False,
        help="Spread the weights while the model is loaded, so that no device ever holds all of them.",
    )
    zero3_save_16bit_model: bool = option(
        False,
        label="Gather in 16 bits",
        level="expert",
        only_with=STAGE_3,
        available=False,
        help="Gather the spread weights in 16 bits when they are saved.",
    )
    fp16_master_weights_and_gradients: bool = option(
        False,
        label="Optimizer in fp16",
        level="expert",
        only_with=DEEPSPEED | {"zero_stage": 2, "offload_optimizer_device": "cpu"},
        available=False,
        help="Keep the optimizer's copy of weights and gradients in fp16 too: half of that memory, less exact steps.",
    )
