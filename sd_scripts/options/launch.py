"""Options of the launch: how `accelerate launch` starts a trainer. Forms and presets hold them; trainers do not."""

from typing import Annotated, ClassVar, Literal

from annotated_types import Ge

from sd_scripts.options.schema import Options, option


class Launch(Options):
    title: ClassVar[str] = "Accelerate launch"
    order: ClassVar[int] = 170

    multi_gpu: bool = option(
        False,
        label="Several GPUs",
        help="Train on all GPUs, or on those named below: each computes its own batch, so the effective batch is that "
        "many times larger.",
    )
    num_processes: Annotated[int, Ge(1)] | Literal["auto"] = option(
        "auto",
        label="Processes",
        level="expert",
        help="Training processes over all machines, one for each GPU. auto: one, or with several GPUs one for each of "
        "them.",
    )
    gpu_ids: str | None = option(
        None,
        label="GPU ids",
        help="Numbers of the GPUs to use, separated by commas, such as 0,1. All of them, or the first one, when unset.",
    )
    num_machines: int = option(1, ge=1, label="Machines", level="expert", help="Computers that train together.")
    machine_rank: int = option(
        0,
        ge=0,
        label="This machine's number",
        level="expert",
        help="0 on the main machine, 1, 2 … on the others. Start the run on each of them.",
    )
    main_process_ip: str | None = option(
        None,
        label="Main machine's address",
        level="expert",
        help="Network address of the machine with number 0.",
    )
    main_process_port: int | None = option(
        None,
        ge=1,
        le=65535,
        label="Main process port",
        level="expert",
        help="Port on which the processes find each other; change it when two runs with several GPUs go at once.",
    )
    num_cpu_threads_per_process: Annotated[int, Ge(1)] | Literal["auto"] = option(
        "auto",
        label="CPU threads",
        level="expert",
        help="Threads of each training process for work on the CPU. auto: the cores, shared by the processes.",
    )
    dynamo_mode: Literal["default", "reduce-overhead", "max-autotune"] = option(
        "default", level="expert", only_with={"torch_compile": True}, help="How much torch.compile tries out."
    )
    dynamo_use_fullgraph: bool = option(
        False,
        label="Whole graph",
        level="expert",
        only_with={"torch_compile": True},
        help="Stop where torch.compile cannot take the whole model as one graph.",
    )
    dynamo_use_dynamic: bool = option(
        False,
        label="Dynamic shapes",
        level="expert",
        only_with={"torch_compile": True},
        help="Compile once for all picture sizes instead of once for each.",
    )
    extra_accelerate_launch_args: list[str] | None = option(
        None,
        label="Further arguments",
        level="expert",
        help="More arguments for accelerate launch, as typed on its command line. Those set above cannot be repeated.",
    )
