"""The options of a launch as arguments of `accelerate launch`, and what is wrong between them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil

from sd_scripts.options.launch import Launch
from sd_scripts.options.problems import Problem, error, note
from sd_scripts.options.schema import Options

MOST_CPU_THREADS = 16
BREAKING = frozenset({"module", "no_python", "m"})  # they would make something else of the trainer's script


def launch_arguments(launch: Launch, options: Options) -> list[str]:
    """Everything between `accelerate launch` and the script."""
    several = is_parallel(launch)
    compiles = bool(getattr(options, "torch_compile", False))
    given = [
        ("mixed_precision", getattr(options, "mixed_precision", "no")),
        ("num_processes", process_count(launch)),
        ("num_machines", launch.num_machines),
        ("machine_rank", launch.machine_rank if launch.num_machines > 1 else None),
        ("main_process_ip", launch.main_process_ip),
        ("main_process_port", launch.main_process_port),
        ("multi_gpu", several),
        ("gpu_ids", ",".join(str(number) for number in gpu_numbers(launch))),
        ("num_cpu_threads_per_process", cpu_threads(launch)),
        ("dynamo_backend", "no"),  # the trainer compiles by itself, in the way that these flags hand on to it
        ("dynamo_mode", launch.dynamo_mode if compiles else None),
        ("dynamo_use_fullgraph", compiles and launch.dynamo_use_fullgraph),
        ("dynamo_use_dynamic", compiles and launch.dynamo_use_dynamic),
    ]
    arguments = [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in given
        if value is not None and value is not False and value != ""
    ]
    return ["--quiet", *arguments, *(launch.extra_accelerate_launch_args or [])]


def is_parallel(launch: Launch) -> bool:
    """Whether more than one process trains."""
    return launch.multi_gpu or (launch.num_processes != "auto" and launch.num_processes > 1)


def process_count(launch: Launch) -> int | None:
    """Training processes over all machines; None where only the machine that starts them knows its GPUs."""
    if launch.num_processes != "auto":
        return launch.num_processes
    if not launch.multi_gpu:
        return 1
    return len(gpu_numbers(launch)) * launch.num_machines or None


def gpu_numbers(launch: Launch) -> list[int]:
    """The numbers in `gpu_ids`; none where it is unset or wrong."""
    words = [word.strip() for word in (launch.gpu_ids or "").split(",")]
    return [int(word) for word in words] if all(_is_number(word) for word in words) else []


def cpu_threads(launch: Launch) -> int:
    """Threads of a process: as asked, else the cores shared by this machine's processes."""
    if launch.num_cpu_threads_per_process != "auto":
        return launch.num_cpu_threads_per_process
    here = (process_count(launch) or 1) // launch.num_machines or 1
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    return max(1, min(cores // here, MOST_CPU_THREADS))


def launch_problems(launch: Launch) -> list[Problem]:
    """What keeps these options from working together."""
    return [problem for rule in (gpus, processes, machines, extra_arguments) for problem in rule(launch)]


def gpus(launch: Launch) -> Iterator[Problem]:
    if launch.gpu_ids is None:
        return
    words = [word.strip() for word in launch.gpu_ids.split(",")]
    wrong = [word for word in words if not _is_number(word)]
    if wrong:
        yield error("gpu_ids", f"{launch.gpu_ids!r} is not a list of GPU numbers", "write numbers such as 0 or 0,1")
    elif len({int(word) for word in words}) < len(words):
        yield error("gpu_ids", f"{launch.gpu_ids} names a GPU twice", "name each GPU once")
    elif launch.num_processes != "auto" and launch.num_processes > len(words) * launch.num_machines:
        wanted = f"{launch.num_processes} processes need as many GPUs, {len(words)} named"
        yield error("gpu_ids", wanted, "name more GPUs, or set fewer processes")
    elif len(words) > 1 and not is_parallel(launch):
        yield note("gpu_ids", "only the first of them is used", "tick multi_gpu to train on all of them")


def processes(launch: Launch) -> Iterator[Problem]:
    count = process_count(launch)
    if launch.multi_gpu and count == 1:
        yield error("multi_gpu", "one process cannot use several GPUs", "set more processes, or leave multi_gpu out")
    if count is None:
        yield note("multi_gpu", "the plan counts one GPU, as it cannot know how many there are", "set num_processes")
    elif count % launch.num_machines:
        remedy = f"set a multiple of {launch.num_machines}"
        yield error("num_processes", f"{count} cannot be shared equally by {launch.num_machines} machines", remedy)


def machines(launch: Launch) -> Iterator[Problem]:
    if launch.num_machines == 1:
        if launch.machine_rank:
            yield error("machine_rank", "there is only one machine", "set num_machines, or leave it out")
        return
    if launch.machine_rank >= launch.num_machines:
        remedy = f"use 0 to {launch.num_machines - 1}"
        yield error("machine_rank", f"{launch.machine_rank} is none of {launch.num_machines} machines", remedy)
    for name in ("main_process_ip", "main_process_port"):
        if getattr(launch, name) is None:
            yield error(name, "several machines have to find each other", "set it to the same on all of them")


def extra_arguments(launch: Launch) -> Iterator[Problem]:
    name = "extra_accelerate_launch_args"
    given = launch.extra_accelerate_launch_args or []
    if given and not given[0].startswith("-"):
        yield error(name, f"{given[0]!r} is no argument of accelerate launch", "begin with one, such as --debug")
    for word in given:
        bare = word.lstrip("-").partition("=")[0].replace("-", "_")
        if not word.startswith("-"):
            continue
        if bare in _own_flags():
            yield error(name, f"{word} is set by the form", f"use the field {bare}")
        elif bare in BREAKING or not bare:
            yield error(name, f"{word} would keep the trainer from being started", "leave it out")


def _own_flags() -> frozenset[str]:
    own = frozenset(Launch.model_fields) - {"extra_accelerate_launch_args"}
    return own | {"mixed_precision", "dynamo_backend"}


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()
