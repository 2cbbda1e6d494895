"""Files: written whole or not at all, in the format asked for; hashes as other programs compute them."""

import errno
import hashlib
import json
import os

import pytest
import safetensors.torch
import torch

from sd_scripts.adapters import files
from sd_scripts.adapters.files import read_tensors, save_network, write_tensors
from sd_scripts.adapters.hashes import network_hashes
from sd_scripts.errors import UserError
from test.adapters.conftest import DATA


def some_tensors() -> dict[str, torch.Tensor]:
    return {
        "lora_unet_a.alpha": torch.tensor(1.0),
        "lora_unet_a.lora_down.weight": torch.randn(3, 4),
        "lora_unet_a.lora_up.weight": torch.randn(3, 5).T,  # not contiguous
    }


@pytest.mark.parametrize("suffix", ["safetensors", "ckpt", "pt"])
@pytest.mark.parametrize(
    ("precision", "dtype"),
    [(None, torch.float32), ("float", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)],
)
def test_what_is_saved_is_read_back(tmp_path, suffix, precision, dtype):
    tensors, path = some_tensors(), tmp_path / "new folder" / f"näme.{suffix}"
    assert save_network(path, tensors, {"ss_steps": "3", "modelspec.title": "ü"}, precision) == path
    found, metadata = read_tensors(path)
    assert found.keys() == tensors.keys()
    for key, value in tensors.items():
        torch.testing.assert_close(found[key], value.to(dtype), rtol=0, atol=0)
    if suffix == "safetensors":
        assert metadata == {"ss_steps": "3", "modelspec.title": "ü"} | network_hashes(found, {"ss_steps": "3"})
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["x.safetensors", "x.ckpt"])
@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_says_so(tmp_path, monkeypatch, name, moment):
    path = write_tensors(tmp_path / name, {"a": torch.ones(2)})
    before = path.read_bytes()

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    match moment:
        case "fsync":
            monkeypatch.setattr(os, "fsync", full)
        case "replace":
            monkeypatch.setattr(files.Path, "replace", full)
        case _:
            monkeypatch.setattr(files.safetensors.torch, "save_file", full)
            monkeypatch.setattr(files.torch, "save", full)
    with pytest.raises(UserError, match=r"No space left on device.*unchanged") as error:
        write_tensors(path, {"a": torch.zeros(2)})
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_real_full_disk(tmp_path):
    """/dev/full refuses every write: what safetensors and torch make of that must be caught too."""
    from pathlib import Path

    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    safetensors_file = lambda _: safetensors.torch.save_file({"a": torch.ones(9)}, "/dev/full")  # noqa: E731
    for write in (safetensors_file, lambda _: torch.save({}, "/dev/full")):
        with pytest.raises(UserError, match="could not be written"):
            files.replace_file(tmp_path / "x", write)


def test_unknown_kind_of_file_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"\.safetensors, \.ckpt or \.pt"):
        write_tensors(tmp_path / "x.bin2", {})


@pytest.mark.parametrize("name", ["x.safetensors", "x.pt"])
@pytest.mark.parametrize("content", [b"", b"hello, this is a text file and no network at all", b"\x80\x02}q\x00."])
def test_unreadable_files_are_named(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=name) as error:
        read_tensors(path) if content != b"\x80\x02}q\x00." or name != "x.pt" else _raise(path)
    assert "\n" not in str(error.value)


def _raise(path):
    raise UserError(path.name)  # an empty pickle is an empty, but readable, table


def test_missing_and_malicious_files(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_tensors(tmp_path / "none.safetensors")
    torch.save({"a": pytest.approx}, tmp_path / "code.pt")
    with pytest.raises(UserError, match=r"code\.pt"):
        read_tensors(tmp_path / "code.pt")


def test_hashes_of_the_example_file():
    expected = json.loads((DATA / "hashes" / "hash_example.json").read_text(encoding="utf-8"))
    path = DATA / "hashes" / expected["file"]
    tensors, metadata = read_tensors(path)
    hashes = network_hashes(tensors, {k: v for k, v in metadata.items() if not k.startswith("sshs_")})
    assert hashes == {key: expected[key] for key in ("sshs_model_hash", "sshs_legacy_hash")}
    assert {key: metadata[key] for key in hashes} == hashes


def test_hashes_of_the_large_case():
    expected = json.loads((DATA / "hashes" / "hash_example.json").read_text(encoding="utf-8"))["large_case"]
    tensor = (torch.arange(600_000) % 251).float().view(600, 1000)
    hashes = network_hashes({"x.lora_down.weight": tensor}, {"ss_network_dim": "4", "other": "dropped"})
    assert hashes == {key: expected[key] for key in ("sshs_model_hash", "sshs_legacy_hash")}


def test_the_model_hash_is_that_of_the_data_in_the_saved_file(tmp_path):
    path = save_network(tmp_path / "x.safetensors", some_tensors(), {"ss_a": "1", "modelspec.title": "t"}, "fp16")
    content = path.read_bytes()
    data = content[8 + int.from_bytes(content[:8], "little") :]
    assert read_tensors(path)[1]["sshs_model_hash"] == hashlib.sha256(data).hexdigest()
