"""Wrong input ends a trainer at once: one readable last line that names the thing and the remedy, exit code 1, no traceback."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest
from PIL import Image

from sd_scripts import entry
from sd_scripts.options.build import build
from sd_scripts.options.recipes import NetworkTraining
from sd_scripts.training.run_folder import RunFolder
from sd_scripts.training.session import without_secrets
from test.conftest import run_trainer


def sdxl_file(path: Path) -> Path:
    """The header of an SDXL checkpoint: enough to tell what it is."""
    names = [
        "model.diffusion_model.input_blocks.0.0.weight",
        "model.diffusion_model.label_emb.0.0.weight",
        "conditioner.embedders.0.transformer.text_model.embeddings.token_embedding.weight",
    ]
    header = {
        name: {"dtype": "F16", "shape": [1], "data_offsets": [2 * at, 2 * at + 2]} for at, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(2 * len(names)))
    return path


def loose_pictures(folder: Path) -> Path:
    folder.mkdir()
    Image.new("RGB", (64, 64)).save(folder / "a.png")
    return folder


def broken_picture(pictures: Path, content: bytes) -> Path:
    (pictures / "3_thing" / "broken.png").write_bytes(content)
    return pictures


def png_bytes(tmp_path: Path) -> bytes:
    Image.effect_noise((64, 64), 50).save(tmp_path / "whole.png")
    return (tmp_path / "whole.png").read_bytes()


CASES = {
    # name: (settings changed, given the paths of a sound run; words that the last line must hold)
    "missing model": (
        lambda p: {"pretrained_model_name_or_path": p["model"].with_name("tiny.safetensor")},
        ["no such model", "did you mean tiny.safetensors"],
    ),
    "text file as model": (lambda p: {"pretrained_model_name_or_path": text_file(p["tmp"])}, ["notes.safetensors"]),
    "SDXL in the SD trainer": (
        lambda p: {"pretrained_model_name_or_path": sdxl_file(p["tmp"] / "xl.safetensors")},
        ["xl.safetensors", "SDXL", "sdxl_train_network.py"],
    ),
    "empty picture folder": (lambda p: {"train_data_dir": empty(p["tmp"])}, ["empty", "10_"]),
    "missing picture folder": (lambda p: {"train_data_dir": p["tmp"] / "gone"}, ["gone", "does not exist"]),
    "state that is none": (lambda p: {"resume": p["pictures"]}, ["resume", "train_state.json", "-state"]),
    "pictures without N_ folder": (lambda p: {"train_data_dir": loose_pictures(p["tmp"] / "loose")}, ["loose", "10_"]),
    "zero-byte picture": (
        lambda p: {"train_data_dir": broken_picture(p["pictures"], b"")},
        ["broken.png", "empty", "on_bad_image"],
    ),
    "truncated picture": (
        lambda p: {"train_data_dir": broken_picture(p["pictures"], png_bytes(p["tmp"])[:-200])},
        ["broken.png", "on_bad_image"],
    ),
    "output folder not writable": (
        lambda p: {"output_dir": p["model"] / "below"},
        ["output_dir", "is a file", "choose another folder"],
    ),
    "resolution 500": (lambda p: {"resolution": "500"}, ["resolution", "500", "multiple of"]),
    "unknown scheduler": (lambda p: {"lr_scheduler": "cosin"}, ["lr_scheduler", "cosin", "cosine"]),
    "samples without prompts": (lambda p: {"sample_every_n_epochs": 1}, ["sample_prompts"]),
    "malformed prompt": (
        lambda p: {"sample_prompts": prompts(p["tmp"]), "sample_at_first": True},
        ["prompts.txt", "line 1", "w"],
    ),
}


def text_file(folder: Path) -> Path:
    (folder / "notes.safetensors").write_text("these are my notes, not a model" * 10, encoding="utf-8")
    return folder / "notes.safetensors"


def empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


def prompts(folder: Path) -> Path:
    (folder / "prompts.txt").write_text("a cat --w wide", encoding="utf-8")
    return folder / "prompts.txt"


@pytest.fixture
def sound(tmp_path, tiny_sd1, pictures):
    model = Path(shutil.copy(tiny_sd1, tmp_path / "tiny.safetensors"))
    return {"tmp": tmp_path, "model": model, "pictures": pictures, "output": tmp_path / "out"}


def arguments(paths: dict, **changes) -> list[str]:
    settings = {
        "pretrained_model_name_or_path": paths["model"],
        "train_data_dir": paths["pictures"],
        "output_dir": paths["output"],
        "resolution": "64",
        "min_bucket_reso": 64,
    } | changes
    return [text for name, value in settings.items() for text in (f"--{name}", str(value))]


def assert_readable(done, words) -> None:
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert "Traceback" not in done.stderr + done.stdout
    assert last.startswith("error: ")
    assert all(word in last for word in words), last


@pytest.mark.parametrize("case", CASES)
def test_one_readable_line_and_nothing_written(case, sound):
    change, words = CASES[case]
    done = run_trainer(*arguments(sound, **change(sound)))
    assert_readable(done, words)
    assert not sound["output"].exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [("lr_warmpu_steps = 10", ["lr_warmpu_steps", "lr_warmup_steps", "x.toml"]), ("seed = ", ["x.toml", "TOML"])],
)
def test_settings_file(content, words, tmp_path):
    (tmp_path / "x.toml").write_text(content, encoding="utf-8")
    assert_readable(run_trainer("--config_file", tmp_path / "x.toml"), words)


def test_through_accelerate_as_the_gui_starts_it(sound):
    folder = RunFolder(sound["tmp"] / "run").make()
    given = arguments(sound, lr_scheduler="cosin", run_dir=folder.path)
    assert_readable(run_trainer(*given, launch=True), ["lr_scheduler", "cosin", "cosine"])
    status = folder.read_status()
    assert status.state == "failed" and "cosine" in status.message


def test_all_errors_are_shown_at_once(sound):
    done = run_trainer(*arguments(sound, lr_scheduler="cosin", resolution="500", optimizer_type="AdmW"))
    assert all(word in done.stderr for word in ("cosin", "resolution", "AdmW"))
    assert_readable(done, ["more above"])


def test_check_prints_the_plan_and_writes_nothing(sound):
    done = run_trainer(*arguments(sound, max_train_epochs=3), "--check", "--json")
    plan = json.loads(done.stdout)
    assert done.returncode == 0
    assert plan["model"]["architecture"] == "sd1"
    assert plan["steps"] == {"batches_per_epoch": 15, "accumulation": 1, "per_epoch": 15, "total": 45, "epochs": 3}
    assert {part["part"] for part in plan["trained"]} == {"te1", "unet"}
    assert not sound["output"].exists()


def test_check_reports_problems_with_exit_code_1(sound):
    done = run_trainer(*arguments(sound, lr_scheduler="cosin"), script="check")
    assert done.returncode == 1 and "cosine" in done.stdout


def test_a_fault_of_the_program_ends_in_one_line_too(sound, monkeypatch, capsys):
    def faulty(*_):
        raise ZeroDivisionError("division by zero\nmore")

    monkeypatch.setattr(entry, "train", faulty)
    assert entry.main("train_network", arguments(sound)) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1] == "error: ZeroDivisionError: division by zero (this is a fault of the program)"


def test_secrets_stay_out_of_the_command_that_is_kept():
    options = build(NetworkTraining, {})
    given = ["train_network.py", "--wandb_api_key", "a1", "--huggingface_token=b2", "--network_dim", "4"]
    assert without_secrets(given, options) == [
        "train_network.py", "--wandb_api_key", "…", "--huggingface_token=…", "--network_dim", "4"
    ]  # fmt: skip
