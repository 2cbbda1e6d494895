"""The page's file dialog."""

from pathlib import Path

import pytest

from kohya_gui.browse import list_folder
from kohya_gui.paths import PROJECT_ROOT


@pytest.fixture
def place(tmp_path) -> Path:
    root = tmp_path / "my tools [a] (b) 桌面 #1 %20"
    (root / "Zoo").mkdir(parents=True)
    (root / "apes").mkdir()
    (root / ".hidden").mkdir()
    for name in ("model.safetensors", "old.CKPT", "notes.txt"):
        (root / name).touch()
    return root


def names(path, kind):
    return [entry["name"] for entry in list_folder(str(path), kind)["entries"]]


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("folder", []),
        ("output_folder", []),
        ("model", ["model.safetensors", "old.CKPT"]),
        ("file", ["model.safetensors", "notes.txt", "old.CKPT"]),
    ],
)
def test_folders_come_first_then_the_files_that_fit(place, kind, files):
    assert names(place, kind) == ["apes", "Zoo", *files]


def test_the_paths_are_those_to_fill_in(place):
    answer = list_folder(str(place), "folder")
    assert answer["folder"] == str(place) and answer["parent"] == str(place.parent)
    assert [Path(entry["path"]) for entry in answer["entries"]] == [place / "apes", place / "Zoo"]


def test_a_files_path_opens_its_folder_and_a_missing_one_the_nearest(place):
    assert list_folder(str(place / "notes.txt"), "file")["folder"] == str(place)
    assert list_folder(str(place / "not" / "there"), "file")["folder"] == str(place)


@pytest.mark.parametrize("path", ["~nobody-of-this-name/x", "x" * 5000, "/" + "x" * 300 + "/y", "a\0b", "\ud800"])
def test_a_text_that_is_no_path_opens_some_folder(path):
    assert Path(list_folder(path, "folder")["folder"]).is_dir()


def test_an_empty_field_opens_the_projects_folder():
    assert list_folder("  ", "folder")["folder"] == str(PROJECT_ROOT)


def test_the_top_has_no_parent():
    assert list_folder(Path(PROJECT_ROOT.anchor).as_posix(), "folder")["parent"] is None
