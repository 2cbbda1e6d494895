"""Hashes of model files: the values that other programs compute, made once."""

import hashlib
import json
import os

import pytest

from sd_scripts.models import hashes


@pytest.fixture
def cache(tmp_path, monkeypatch):
    path = tmp_path / "cache" / "hashes.json"
    monkeypatch.setattr(hashes, "cache_file", lambda: path)
    return path


def model(folder, size=2**21):
    path = folder / "m.safetensors"
    path.write_bytes(bytes(i % 251 for i in range(size)))
    return path


def test_values(tmp_path, cache):
    path = model(tmp_path)
    data = path.read_bytes()
    found = hashes.hash_in_background(path).result(timeout=60)
    assert found.sha256 == hashlib.sha256(data).hexdigest()
    assert found.old == hashlib.sha256(data[2**20 : 2**20 + 2**16]).hexdigest()[:8]
    assert hashes.hash_file(model(tmp_path, 1000)).old == "e3b0c442"  # of nothing, as in other programs


def test_a_known_file_is_not_read_again(tmp_path, cache, monkeypatch):
    path = model(tmp_path)
    first = hashes.hash_in_background(path).result(timeout=60)
    monkeypatch.setattr(hashes, "hash_file", lambda path: pytest.fail("read again"))
    known = hashes.hash_in_background(path)
    assert known.done()
    assert known.result() == first


def test_a_changed_file_is_hashed_anew_and_the_old_entry_goes(tmp_path, cache):
    path = model(tmp_path)
    first = hashes.hash_in_background(path).result(timeout=60)
    path.write_bytes(b"other")
    os.utime(path, ns=(1, 1))
    assert hashes.hash_in_background(path).result(timeout=60) != first
    assert len(json.loads(cache.read_text(encoding="utf-8"))) == 1


@pytest.mark.parametrize("content", [None, "", "{broken", "[1]", '{"PATH": {"sha256": 1}}'])
def test_a_damaged_cache_is_made_again(tmp_path, cache, content):
    path = model(tmp_path)
    if content is not None:
        cache.parent.mkdir()
        cache.write_text(content.replace("PATH", hashes._key(path)), encoding="utf-8")
    found = hashes.hash_in_background(path).result(timeout=60)
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert hashes.hash_in_background(path).done()


def test_a_home_that_cannot_be_written_does_not_matter(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(hashes, "cache_file", lambda: tmp_path / "file" / "hashes.json")
    assert len(hashes.hash_in_background(model(tmp_path)).result(timeout=60).sha256) == 64


def test_a_folder_or_nothing_raises_os_error(tmp_path, cache):
    with pytest.raises(OSError):
        hashes.hash_in_background(tmp_path).result(timeout=60)
    with pytest.raises(FileNotFoundError):
        hashes.hash_in_background(tmp_path / "none").result(timeout=60)
