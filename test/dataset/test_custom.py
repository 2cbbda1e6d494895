"""Pictures from a class of the user's own."""

import sys
from pathlib import Path

import pytest

from sd_scripts.data.plan import plan_data
from sd_scripts.errors import ConfigError
from sd_scripts.options.dataset import DatasetOptions

SMALL = {"resolution": "64", "min_bucket_reso": 32, "max_bucket_reso": 128, "bucket_reso_steps": 8}

# The worked example of docs/datasets.md.
EXAMPLE = '''
from pathlib import Path


class Diary:
    """Pictures of a folder; the caption is the day in the name."""

    def __init__(self, options):
        self.folder = Path(options.train_data_dir)

    def __iter__(self):
        for path in sorted(self.folder.glob("*.png")):
            yield {"path": path, "caption": f"a photo of {path.stem}", "repeats": 2 if "sunday" in path.stem else 1}
'''


@pytest.fixture
def given(tmp_path, monkeypatch, picture):
    """Plans the pictures of a class in a module of the current folder."""
    picture("monday.png", (64, 96))
    picture("sunday.png")
    monkeypatch.chdir(tmp_path)
    count = [0]

    def make(code: str, name: str = "Diary", **options):
        count[0] += 1
        module = f"pictures_{tmp_path.name}_{count[0]}".replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
        folder = {"train_data_dir": str(tmp_path / "train"), "dataset_class": f"{module}.{name}"}
        return plan_data(DatasetOptions(**(folder | SMALL | options)), divisor=8, seed=1)

    return make


def body(line: str) -> str:
    return f"class Diary:\n    def __init__(self, options): pass\n    def __iter__(self):\n        {line}\n"


def test_the_example(given):
    docs = Path(__file__).parents[2] / "docs" / "datasets.md"
    assert EXAMPLE.strip() in docs.read_text(encoding="utf-8")
    made = given(EXAMPLE, train_batch_size=2)
    assert not [problem for problem in made.problems if problem.level == "error"]
    assert [(s.caption, s.repeats, s.bucket) for s in made.samples] == [
        ("a photo of monday", 1, (48, 80)),
        ("a photo of sunday", 2, (64, 64)),
    ]
    assert made.batches_per_epoch() == 2
    assert made.summary()["folders"][0]["name"] == "Diary"
    assert len(given(EXAMPLE, validation_split=0.5).validation.samples) == 1


def test_regularisation_masks_and_guides(tmp_path, given, picture):
    path = tmp_path / "train" / "monday.png"
    code = body(
        f"yield {{'path': {str(path)!r}, 'is_reg': True}}\n        yield {{'path': 'train/sunday.png', 'mask': {str(path)!r}}}"
    )
    made = given(code)
    assert {(s.path.name, s.is_reg, s.mask) for s in made.samples} == {
        ("monday.png", True, None),
        ("sunday.png", False, path),
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("yield 'a.png'", "picture 1: is a str"),
        ("yield {'path': 'a.png', 'captoin': 'x'}", "unknown key 'captoin'"),
        ("yield {'path': 'a.png', 'caption': 7}", "caption is a int"),
        ("yield {'path': 'a.png', 'repeats': 0}", "repeats must be at least 1"),
        ("yield {'path': 'a.png', 'repeats': True}", "repeats is a bool"),
        ("yield {'caption': 'x'}", "has no path"),
        ("raise OSError('the server is away')", "failed with OSError: the server is away"),
    ],
)
def test_what_the_class_gives_wrong_is_said(given, line, words):
    with pytest.raises(ConfigError, match=words):
        given(body(line))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Diary", "write it as module.Class"),
        ("no_such_module.Diary", "cannot be imported"),
        ("pathlib.Diary", "there is no Diary"),
    ],
)
def test_a_class_that_is_not_there(picture, name, words):
    with pytest.raises(ConfigError, match=words):
        plan_data(DatasetOptions(dataset_class=name, **SMALL), divisor=8, seed=1)


def test_missing_pictures_and_masks_are_named(given):
    made = given(
        body("yield {'path': 'gone.png'}\n        yield {'path': 'train/monday.png', 'mask': 'gone mask.png'}")
    )
    errors = [str(problem) for problem in made.problems if problem.level == "error"]
    assert any("gone.png does not exist" in text for text in errors)
    assert any("gone mask.png does not exist" in text for text in errors)


def test_the_search_path_stays_as_it_was(given, tmp_path, monkeypatch):
    """Also where the current folder has its place in it already: loader processes look there too."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.path)
    given(EXAMPLE)
    assert sys.path == before
