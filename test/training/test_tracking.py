"""Curves go where the options say: TensorBoard for real, Weights & Biases against a stand-in for its package."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from sd_scripts.errors import ConfigError
from sd_scripts.options.build import build
from sd_scripts.options.recipes import NetworkTraining
from sd_scripts.training.tracking import make_boards, told_settings


@pytest.fixture
def wandb(monkeypatch) -> SimpleNamespace:
    """A package wandb that remembers."""
    seen = SimpleNamespace(started={}, logged=[], finished=0, keys=[], refuses=False)
    module = ModuleType("wandb")

    def login(key: str) -> None:
        if seen.refuses:
            raise RuntimeError(f"bad key {key}")
        seen.keys.append(key)

    def init(project=None, name=None, dir=None, config=None, tags=None):
        seen.started = {"project": project, "name": name, "dir": dir, "config": config, "tags": tags}

        def finish() -> None:
            seen.finished += 1

        return SimpleNamespace(log=lambda values, step: seen.logged.append((step, values)), finish=finish)

    module.login, module.init = login, init
    monkeypatch.setitem(sys.modules, "wandb", module)
    return seen


def options(tmp_path, **given):
    return build(NetworkTraining, {"logging_dir": str(tmp_path / "logs"), **given})


def test_tensorboard_holds_the_numbers(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    boards = make_boards(options(tmp_path, log_prefix="a-", log_tracker_name="mine"), tmp_path / "default")
    boards.scalars({"loss/current": 0.5}, 3)
    boards.close()
    (folder,) = (tmp_path / "logs").glob("a-*/mine")
    found = EventAccumulator(str(folder)).Reload().Scalars("loss/current")
    assert [(one.step, one.value) for one in found] == [(3, 0.5)]


def test_wandb_gets_name_key_and_settings(tmp_path, wandb):
    given = options(
        tmp_path, log_with="wandb", wandb_api_key="key1", wandb_run_name="first", log_tracker_name="cats", log_config=True,
        learning_rate=1e-3, output_dir="out",
    )  # fmt: skip
    boards = make_boards(given, tmp_path / "default")
    boards.scalars({"loss/current": 0.5}, 3)
    boards.close()
    assert wandb.keys == ["key1"]
    assert wandb.started["project"] == "cats" and wandb.started["name"] == "first"
    assert wandb.started["config"]["learning_rate"] == 1e-3
    assert not wandb.started["config"].keys() & {"wandb_api_key", "output_dir", "logging_dir"}
    assert wandb.logged == [(3, {"loss/current": 0.5})] and wandb.finished == 1


def test_a_file_may_say_more(tmp_path, wandb):
    (tmp_path / "more.toml").write_text('[wandb]\nname = "other"\ntags = ["a"]\n', encoding="utf-8")
    make_boards(options(tmp_path, log_with="wandb", log_tracker_config=str(tmp_path / "more.toml")), tmp_path / "d")
    assert wandb.started["name"] == "other" and wandb.started["tags"] == ["a"]
    (tmp_path / "more.toml").write_text("[wandb]\nnme = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"log_tracker_config.*nme"):
        make_boards(options(tmp_path, log_with="wandb", log_tracker_config=str(tmp_path / "more.toml")), tmp_path / "d")


def test_both_and_neither(tmp_path, wandb):
    assert make_boards(options(tmp_path, log_with="all"), tmp_path / "d") and wandb.started
    assert not make_boards(options(tmp_path, log_with="none"), tmp_path / "d")


def test_a_key_that_is_refused_is_not_shown(tmp_path, wandb):
    wandb.refuses = True
    with pytest.raises(ConfigError) as caught:
        make_boards(options(tmp_path, log_with="wandb", wandb_api_key="key1"), tmp_path / "d")
    assert "key1" not in str(caught.value) and caught.value.__cause__ is None


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        make_boards(options(tmp_path, log_with="wandb"), tmp_path / "d")


def test_told_settings_hold_no_path_and_no_secret(tmp_path):
    told = told_settings(options(tmp_path, huggingface_token="t", train_data_dir="/home/me/pictures", network_dim=3))
    assert told == {"network_dim": 3}
