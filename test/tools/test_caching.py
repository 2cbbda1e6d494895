"""The caching commands: what they fill is what a run then reads; upkeep; several processes; odd input."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sd_scripts.data.cache_store import STORE
from sd_scripts.entry import train
from sd_scripts.options.build import build
from sd_scripts.options.recipes import RECIPES
from sd_scripts.options.toml_files import write_settings
from sd_scripts.tools.caching import COMMANDS, main
from test.conftest import ROOT, trainer_environment

SWITCH = {name: command.switches[1] for name, command in COMMANDS.items()}
SAID = {"cache_latents": "latents", "cache_text_encoder_outputs": "captions"}


@pytest.fixture
def settings(tmp_path, tiny_sd1, pictures) -> dict:
    return {
        "pretrained_model_name_or_path": str(tiny_sd1),
        "train_data_dir": str(pictures),
        "resolution": "64",
        "min_bucket_reso": 64,
        "flip_aug": True,
        "caption_dropout_rate": 0.2,
    }


def arguments(settings: dict, **more) -> list[str]:
    return [f"--{name}={str(value).lower() if value is True else value}" for name, value in (settings | more).items()]


def train_with(settings: dict, caplog, script: str, **changes) -> str:
    """What a run of a step says of its caches."""
    caplog.clear()
    caplog.set_level("INFO")
    recipe = RECIPES[script]
    options = build(recipe.options, settings | {"log_with": "none", "max_train_steps": 1, **changes})
    assert train(recipe, options) == 0
    return caplog.text


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["adapter", "bf16", "full"])
def test_a_run_reads_what_was_cached(settings, tmp_path, caplog, capsys, command, kind):
    given = {"mixed_precision": "bf16"} if kind == "bf16" else {}
    more = {"for_full_training": True} if kind == "full" else {}
    assert main(command, arguments(settings, **given, **more, skip_existing=True, sdxl=True)) == 0
    # Five pictures, each mirrored too; four captions of their own, the folder's, and the empty one.
    assert {"cache_latents": "10 of 10", "cache_text_encoder_outputs": "6 of 6"}[command] in capsys.readouterr().err
    own = {"network_dim": 2, "network_train_unet_only": True} if kind != "full" else {}
    script = "fine_tune" if kind == "full" else "train_network"
    changes = {SWITCH[command]: True, "output_dir": str(tmp_path / "out"), **own, **given}
    if command == "cache_text_encoder_outputs":
        changes["cache_latents"] = False
    said = train_with(settings, caplog, script, **changes)
    assert f"{SAID[command]}: 0 " in said
    assert {"cache_latents": "5 taken", "cache_text_encoder_outputs": "6 taken"}[command] in said


def test_a_settings_file_of_a_trainer_is_taken_whole(settings, tmp_path, capsys):
    recipe = RECIPES["train_network"]
    path = tmp_path / "settings.toml"
    write_settings(
        path, build(recipe.options, settings | {"network_dim": 4, "output_dir": str(tmp_path / "o"), "unet_lr": 1e-4})
    )
    assert main("cache_latents", ["--config_file", str(path)]) == 0
    assert not (tmp_path / "o").exists()
    assert "error" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"train_data_dir": "missing"}, "train_data_dir: missing does not exist"),
        ({"pretrained_model_name_or_path": "missing.safetensors"}, "missing.safetensors"),
        ({"random_crop": True}, "random_crop"),
        ({"resolutoin": 512}, "did you mean resolution"),
        ({"vae_batch_size": 0}, "vae_batch_size"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_be_cached_is_one_line(settings, capsys, given, words):
    assert main("cache_latents", arguments(settings, **given)) == 1
    assert words in capsys.readouterr().err.splitlines()[-1]


def test_verifying_and_purging_need_no_model(settings, pictures, capsys):
    for command in COMMANDS:
        assert main(command, arguments(settings)) == 0
    alone = {"train_data_dir": settings["train_data_dir"], "caption_dropout_rate": 0.2}
    assert main("cache_latents", ["--verify", *arguments(alone)]) == 0
    assert (
        "whole entries: 16; damaged files: 0" in capsys.readouterr().out
    )  # 5 x 2 latents, 5 captions and the empty one
    (pictures / "3_thing" / "p1.png").unlink()
    assert main("cache_latents", ["--purge", *arguments(alone)]) == 0
    assert "entries dropped: 3; kept: 13" in capsys.readouterr().out
    (data,) = (pictures / "3_thing" / STORE).glob("*.data")
    content = bytearray(data.read_bytes())
    content[40] ^= 0xFF
    data.write_bytes(content)
    assert main("cache_text_encoder_outputs", ["--verify", *arguments(alone)]) == 1
    said = capsys.readouterr().out
    assert "whole entries: 12; damaged files: 1" in said
    assert data.name in said
    assert main("cache_text_encoder_outputs", ["--verify", *arguments(alone)]) == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_it_starts_by_its_path_and_as_a_module(command, tmp_path):
    for start in ([str(ROOT / "sd_scripts" / "tools" / f"{command}.py")], ["-m", f"sd_scripts.tools.{command}"]):
        done = subprocess.run(
            [sys.executable, *start, "--help"], capture_output=True, text=True, encoding="utf-8",
            env=trainer_environment(), cwd=tmp_path, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "--purge" in done.stdout
        assert "--vae_batch_size" in done.stdout
        assert "--learning_rate" not in done.stdout


@pytest.mark.slow
def test_two_processes_share_the_work(settings, pictures, tmp_path, capsys):
    def cache(*start: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, *start, *arguments(settings)], capture_output=True, text=True, encoding="utf-8",
            env=trainer_environment() | {"ACCELERATE_USE_CPU": "true"}, cwd=ROOT, check=False, timeout=240,
        )  # fmt: skip

    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    done = cache(*launch, "sd_scripts/tools/cache_latents.py")
    assert done.returncode == 0, done.stderr
    store = pictures / "3_thing" / STORE
    assert len(list(store.glob("*.data"))) == 2  # a part each
    again = cache("-m", "sd_scripts.tools.cache_latents")
    assert "latents: 0 pictures encoded, 5 taken from the cache" in again.stderr
    assert len(list(store.glob("*.data"))) == 2
    shutil.rmtree(store)
    assert "latents: 5 pictures encoded" in cache("-m", "sd_scripts.tools.cache_latents").stderr
    assert Path(store).is_dir()
