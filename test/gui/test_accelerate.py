"""Launch options as arguments of `accelerate launch`, and the rules between them."""

import pytest

from kohya_gui.accelerate import MOST_CPU_THREADS, launch_arguments, launch_problems
from sd_scripts.options.build import build
from sd_scripts.options.launch import Launch
from test.gui.conftest import options

FIXED = ["--quiet", "--dynamo_backend=no"]


def arguments(training=None, **given):
    return launch_arguments(build(Launch, given), options(**(training or {})))


def without_threads(found):
    return [word for word in found if not word.startswith("--num_cpu_threads") and word not in FIXED]


def problems(**given):
    return [(problem.level, problem.option) for problem in launch_problems(build(Launch, given))]


def test_by_default_one_process_trains_on_one_machine():
    assert without_threads(arguments()) == ["--mixed_precision=no", "--num_processes=1", "--num_machines=1"]
    threads = next(word for word in arguments() if word.startswith("--num_cpu_threads_per_process="))
    assert 1 <= int(threads.partition("=")[2]) <= MOST_CPU_THREADS


def test_precision_comes_from_the_training_options():
    assert "--mixed_precision=bf16" in arguments({"mixed_precision": "bf16"})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"multi_gpu": True}, ["--num_machines=1", "--multi_gpu"]),
        ({"num_processes": 2}, ["--num_processes=2", "--num_machines=1", "--multi_gpu"]),
        (
            {"multi_gpu": True, "gpu_ids": "0, 2"},
            ["--num_processes=2", "--num_machines=1", "--multi_gpu", "--gpu_ids=0,2"],
        ),
        ({"gpu_ids": "1"}, ["--num_processes=1", "--num_machines=1", "--gpu_ids=1"]),
        (
            {
                "num_processes": 4,
                "num_machines": 2,
                "machine_rank": 1,
                "main_process_ip": "10.0.0.1",
                "main_process_port": 29501,
            },
            [
                *("--num_processes=4", "--num_machines=2", "--machine_rank=1", "--main_process_ip=10.0.0.1"),
                *("--main_process_port=29501", "--multi_gpu"),
            ],
        ),
        (
            {"extra_accelerate_launch_args": "--debug '--rdzv_conf=a b'"},
            ["--num_processes=1", "--num_machines=1", "--debug", "--rdzv_conf=a b"],
        ),
    ],
)
def test_each_option_becomes_its_argument(given, wanted):
    assert without_threads(arguments(**given)) == ["--mixed_precision=no", *wanted]


def test_the_first_machine_says_its_number_too():
    assert "--machine_rank=0" in arguments(num_machines=2, num_processes=2)


def test_threads_as_asked():
    assert "--num_cpu_threads_per_process=3" in arguments(num_cpu_threads_per_process=3)


def test_how_to_compile_is_said_only_when_something_is_compiled():
    ways = {"dynamo_mode": "max-autotune", "dynamo_use_fullgraph": True, "dynamo_use_dynamic": True}
    wanted = ["--dynamo_mode=max-autotune", "--dynamo_use_fullgraph", "--dynamo_use_dynamic"]
    assert [w for w in arguments({"torch_compile": True}, **ways) if "dynamo_" in w][1:] == wanted
    assert [w for w in arguments(**ways) if "dynamo_" in w] == ["--dynamo_backend=no"]


@pytest.mark.parametrize("ids", ["0", "0,1", " 0 , 1 ", "3,1,2", "10"])
def test_lists_of_gpus_are_taken(ids):
    assert problems(gpu_ids=ids, multi_gpu="," in ids) == []


@pytest.mark.parametrize("ids", ["-1", "a", "0;1", "0,", ",", "1.5", "0 1", "all", "²", "0,0", "1,01"])
def test_what_is_no_list_of_gpus_is_an_error(ids):
    assert problems(gpu_ids=ids) == [("error", "gpu_ids")]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, []),
        ({"multi_gpu": True}, [("note", "multi_gpu")]),
        ({"multi_gpu": True, "num_processes": 1}, [("error", "multi_gpu")]),
        ({"num_processes": 3, "gpu_ids": "0,1"}, [("error", "gpu_ids")]),
        ({"gpu_ids": "0,1"}, [("note", "gpu_ids")]),
        ({"machine_rank": 1}, [("error", "machine_rank")]),
        ({"num_machines": 2, "num_processes": 2}, [("error", "main_process_ip"), ("error", "main_process_port")]),
        (
            {
                "num_machines": 2,
                "num_processes": 3,
                "main_process_ip": "a",
                "main_process_port": 1,
                "machine_rank": 2,
            },
            [("error", "num_processes"), ("error", "machine_rank")],
        ),
    ],
)
def test_options_that_do_not_fit_together_are_named(given, wanted):
    assert problems(**given) == wanted


@pytest.mark.parametrize(
    "extra",
    [
        ["--num_processes=2"],
        ["--num-machines", "2"],
        ["--debug", "--mixed_precision", "fp16"],
        ["--dynamo_backend=inductor"],
        ["--gpu-ids=1"],
        ["-m"],
        ["--module"],
        ["--no_python"],
        ["--"],
        ["evil.py"],
    ],
)
def test_extra_arguments_cannot_repeat_or_break_ours(extra):
    assert problems(extra_accelerate_launch_args=extra) == [("error", "extra_accelerate_launch_args")]


def test_every_option_of_the_launch_is_used():
    """Each one changes the argument list."""
    machines = {"num_machines": 2, "num_processes": 4}
    changes = {
        "multi_gpu": {"multi_gpu": True},
        "num_processes": {"num_processes": 2},
        "gpu_ids": {"gpu_ids": "1"},
        "num_machines": machines,
        "machine_rank": machines | {"machine_rank": 1},
        "main_process_ip": {"main_process_ip": "a"},
        "main_process_port": {"main_process_port": 2},
        "num_cpu_threads_per_process": {"num_cpu_threads_per_process": 99},
        "dynamo_mode": {"dynamo_mode": "max-autotune"},
        "dynamo_use_fullgraph": {"dynamo_use_fullgraph": True},
        "dynamo_use_dynamic": {"dynamo_use_dynamic": True},
        "extra_accelerate_launch_args": {"extra_accelerate_launch_args": ["--debug"]},
    }
    assert set(changes) == set(Launch.model_fields)
    lists = [tuple(arguments({"torch_compile": True}, **given)) for given in ({}, *changes.values())]
    assert len(set(lists)) == len(lists)
