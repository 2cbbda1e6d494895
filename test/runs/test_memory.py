"""Whole runs with every way to save memory: the same result as without it, in training and in samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from sd_scripts.entry import train
from sd_scripts.options.build import build
from sd_scripts.options.recipes import RECIPES
from sd_scripts.training.events import read_events
from sd_scripts.training.run_folder import RunFolder
from test.runs.forked import needs_fork, run
from test.tiny import tiny_model


@pytest.fixture
def small(settings, tiny_sd1) -> dict:
    """Settings with a model of two levels and a VAE in 32 bits: 16 are slow on a CPU."""
    return settings | {"pretrained_model_name_or_path": str(tiny_sd1), "no_half_vae": True}


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory) -> Callable[..., Result]:
    """Runs without what is tested, each made once."""
    done: dict[str, Result] = {}

    def run_once(settings: dict, script: str = "train_network") -> Result:
        key = repr((script, {name: value for name, value in settings.items() if name not in PATHS}))
        if key not in done:
            done[key] = Result(settings, tmp_path_factory.mktemp("plain"), script)
        return done[key]

    return run_once


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """Four levels, so that there are nine blocks as in the real model."""
    return tiny_model("sd1", tmp_path_factory.mktemp("models") / "four.safetensors", levels=4)


@pytest.fixture
def settings(tmp_path, model, pictures) -> dict:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a thing --w 64 --h 64 --s 3 --d 5\n", encoding="utf-8")
    return {
        "pretrained_model_name_or_path": str(model),
        "train_data_dir": str(pictures),
        "output_name": "tiny",
        "resolution": "64",
        "min_bucket_reso": 64,
        "train_batch_size": 2,
        "max_train_steps": 3,
        "learning_rate": 1e-2,
        "seed": 7,
        "log_with": "none",
        "sample_prompts": str(prompts),
        "sample_every_n_steps": 3,
    }


class Result:
    """What came of a run."""

    def __init__(self, settings: dict, output: Path, script: str = "train_network"):
        options = build(RECIPES[script].options, settings | {"output_dir": str(output)})
        assert train(RECIPES[script], options) == 0
        folder = max((output / "runs").iterdir())
        events = read_events(RunFolder(folder).events)[0]
        self.losses = [event["loss"] for event in events if event["type"] == "step"]
        self.weights = load_file(output / "tiny.safetensors")
        (picture,) = (output / "sample").glob("*.png")
        self.picture = np.asarray(Image.open(picture), dtype=np.float32)


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """Relative distance of all weights together."""
    assert a.keys() == b.keys()
    ours, theirs = (torch.cat([w[k].flatten().double() for k in a if not k.endswith("alpha")]) for w in (a, b))
    return float((ours - theirs).norm() / theirs.norm())


PATHS = ("train_data_dir", "sample_prompts")
NETWORK = {"network_dim": 2}
BF16 = {"mixed_precision": "bf16"}
CACHED = {"cache_latents": True}


@pytest.mark.parametrize(
    "changes",
    [
        {"gradient_checkpointing": True},
        {"cpu_offload_checkpointing": True},
        {"unsloth_offload_checkpointing": True},
        {"blocks_to_swap": 1},
        {"blocks_to_swap": 7},
        {"blocks_to_swap": 4, "gradient_checkpointing": True},
        CACHED | {"highvram": True},
        CACHED | {"lowram": True, "blocks_to_swap": 3},
        {"sdpa": True, "mem_eff_attn": True},
        {"cuda_allow_tf32": True, "cuda_cudnn_benchmark": True},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_what_only_moves_things_changes_no_bit(settings, plain_run, tmp_path, changes):
    base = settings | NETWORK | {name: value for name, value in changes.items() if name in CACHED}
    plain = plain_run(base)
    saving = Result(base | changes, tmp_path / "saving")
    assert saving.losses == plain.losses
    assert distance(saving.weights, plain.weights) == 0
    assert np.array_equal(saving.picture, plain.picture)


EIGHT_BITS = BF16 | {"fp8_base": True}


@pytest.mark.parametrize(
    "changes",
    [
        {"gradient_checkpointing": True, **CACHED},
        {"blocks_to_swap": 3},
        {"blocks_to_swap": 2, "gradient_checkpointing": True, **CACHED},
        {"unsloth_offload_checkpointing": True, "lowram": True},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_eight_bits_go_with_everything(small, plain_run, tmp_path, changes):
    base = small | NETWORK | EIGHT_BITS | {name: value for name, value in changes.items() if name in CACHED}
    plain = plain_run(base)
    saving = Result(base | changes, tmp_path / "saving")
    assert saving.losses == plain.losses
    assert distance(saving.weights, plain.weights) == 0
    assert np.array_equal(saving.picture, plain.picture)


@pytest.mark.parametrize("name", ["fp8_base", "fp8_base_unet"])
def test_eight_bits_stay_near_sixteen(small, plain_run, tmp_path, name):
    """Losses within 1 %, pictures as near as those of 16 bits to those of 32 (5 levels on average)."""
    sixteen = plain_run(small | NETWORK | BF16)
    eight = Result(small | NETWORK | BF16 | {name: True}, tmp_path / "eight")
    assert eight.losses == pytest.approx(sixteen.losses, rel=1e-2)
    assert eight.losses != sixteen.losses
    assert np.abs(eight.picture - sixteen.picture).mean() < 8


def test_sixteen_bits_stay_near_thirty_two(small, plain_run, tmp_path):
    full = plain_run(small | NETWORK)
    mixed = plain_run(small | NETWORK | BF16)
    half = Result(small | NETWORK | BF16 | {"full_bf16": True}, tmp_path / "half")
    for result in (mixed, half):
        assert result.losses == pytest.approx(full.losses, rel=1e-2)
        assert np.abs(result.picture - full.picture).mean() < 8
    assert {t.dtype for t in half.weights.values()} == {torch.bfloat16}


@pytest.mark.parametrize(
    "changes",
    [
        BF16 | {"full_bf16": True, "ema_decay": 0.9, "gradient_checkpointing": True, "blocks_to_swap": 5},
        BF16 | {"cpu_offload_checkpointing": True, "fused_backward_pass": True, "optimizer_type": "Adafactor"},
        {"blocks_to_swap": 7, "fused_optimizer_groups": 4},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_a_whole_model_learns_the_same_with_less_memory(settings, plain_run, tmp_path, changes):
    moving = ("gradient_checkpointing", "blocks_to_swap", "cpu_offload_checkpointing")
    base = settings | CACHED | {"learning_rate": 1e-4, "save_model_as": "safetensors"}
    base |= {name: value for name, value in changes.items() if name not in moving}
    plain = plain_run(base, "fine_tune")
    saving = Result(base | changes, tmp_path / "saving", "fine_tune")
    assert saving.losses == plain.losses
    assert distance(saving.weights, plain.weights) == 0
    assert np.array_equal(saving.picture, plain.picture)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"compile": True, "compile_backend": "aot_eager", "compile_dynamic": "false"},
        {"compile": True, "compile_backend": "eager", "blocks_to_swap": 1},
        EIGHT_BITS | {"compile": True, "compile_backend": "eager", "gradient_checkpointing": True},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_compiled_blocks_give_the_same(small, plain_run, tmp_path, changes):
    base = small | NETWORK
    base |= {name: value for name, value in changes.items() if name in EIGHT_BITS}
    plain = plain_run(base)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = Result(base | changes, tmp_path / "compiled")
    assert torch._dynamo.utils.counters["frames"]["ok"] > 0
    assert compiled.losses == pytest.approx(plain.losses, rel=1e-5)
    assert distance(compiled.weights, plain.weights) < 1e-3
    assert np.abs(compiled.picture - plain.picture).max() <= 1


def test_samples_are_not_needed_to_train_the_same_without_a_vae(settings, tmp_path, monkeypatch):
    """With cached latents and no prompts the VAE's memory is given back; with prompts it stays for them."""
    from sd_scripts.training import setup

    seen = []
    settle = setup.settle

    def look(options, architecture, method, **more):
        seen.append({p.device.type for p in architecture.vae.parameters()})
        return settle(options, architecture, method, **more)

    monkeypatch.setattr(setup, "settle", look)
    Result(settings | NETWORK | CACHED, tmp_path / "with")
    without = (
        settings
        | NETWORK
        | CACHED
        | {
            "output_dir": str(tmp_path / "without"),
        }
    )
    without |= {"sample_prompts": None, "sample_every_n_steps": None}
    assert train(RECIPES["train_network"], build(RECIPES["train_network"].options, without)) == 0
    assert seen == [{"cpu"}, {"meta"}]
    ours, theirs = (load_file(tmp_path / name / "tiny.safetensors") for name in ("with", "without"))
    assert distance(ours, theirs) == 0


@needs_fork
def test_two_processes_share_a_model_in_8_bits_with_swapped_blocks(small, tmp_path):
    """They exchange what is trained and leave alone what lies in main memory or in 8 bits."""
    settings = (
        small | NETWORK | EIGHT_BITS | {"blocks_to_swap": 2, "sample_prompts": None, "sample_every_n_steps": None}
    )
    losses = []
    for count in (1, 2):
        folder = RunFolder(tmp_path / f"run{count}").make()
        more = {
            "train_batch_size": 2 // count,
            "output_dir": str(tmp_path / f"out{count}"),
            "run_dir": str(folder.path),
        }
        run("train_network", settings | more, count)
        losses.append([event["loss"] for event in read_events(folder.events)[0] if event["type"] == "step"])
    assert len(losses[0]) == 3 and losses[1] == pytest.approx(losses[0], rel=1e-2)
