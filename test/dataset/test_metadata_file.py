import gzip
import json
from pathlib import Path

import pytest
from PIL import Image

from sd_scripts.data.metadata_file import Record, record_lines
from sd_scripts.data.plan import plan_data
from sd_scripts.options.dataset import DatasetOptions

CAPTIONS = Path(__file__).parent.parent / "data" / "golden" / "captions.json.gz"


@pytest.fixture
def listed(tmp_path, picture):
    """Plans the metadata that it is given; pictures lie in train/x."""

    def make(entries, *, suffix=".json", given=True, **options):
        path = tmp_path / f"meta{suffix}"
        if isinstance(entries, str):
            path.write_text(entries, encoding="utf-8")
        else:
            path.write_text(json.dumps(entries), encoding="utf-8")
        folder = str(tmp_path / "train" / "x") if given else None
        sizes = {"resolution": "64", "min_bucket_reso": 32, "max_bucket_reso": 128, "bucket_reso_steps": 8}
        return plan_data(
            DatasetOptions(in_json=str(path), train_data_dir=folder, **sizes, **options), divisor=8, seed=1
        )

    return make


def texts(plan, level: str) -> str:
    return "\n".join(str(problem) for problem in plan.problems if problem.level == level)


def cases() -> list:
    with gzip.open(CAPTIONS, "rt", encoding="utf-8") as file:
        found = [case for case in json.load(file)["cases"] if case["kind"] == "metadata_captions"]
    return [pytest.param(case["id"], case["inputs"], case["expected"]["value"], id=case["id"]) for case in found]


@pytest.mark.parametrize(("name", "inputs", "expected"), cases())
def test_captions_golden(picture, listed, name, inputs, expected):
    for key in inputs["metadata"]:
        picture(f"x/{key}")
    if name == "captions-059":  # other programs lose the tags of an entry without caption
        expected = expected | {"b.png": "x, y"}
    made = listed(inputs["metadata"], on_bad_image="skip", **inputs["options"])
    assert {sample.path.name: sample.caption for sample in made.samples} == expected


@pytest.mark.parametrize(
    "key", ["{folder}/a.png", "a.png", "a", "{folder}/a", "./a.png", "../x/a.png", "sub\\..\\a.png", "a.jpg"]
)
def test_every_style_of_key_finds_its_picture(tmp_path, picture, listed, key):
    path = picture("x/a.png")
    (path.parent / "sub").mkdir()
    made = listed({key.format(folder=path.parent.as_posix()): {"caption": "hello"}})
    assert not texts(made, "error")
    assert [(sample.path, sample.caption) for sample in made.samples] == [(path, "hello")]


def test_a_dot_in_a_stem_is_no_suffix(picture, listed):
    path = picture("x/a.1.png")
    picture("x/a.png")
    made = listed({"a.1": {"caption": "one"}})
    assert [sample.path for sample in made.samples] == [path]


def test_relative_keys_without_picture_folder_start_at_the_file(tmp_path, picture, listed):
    path = picture("x/a.png")
    made = listed({"train/x/a.png": {"tags": "red"}}, given=False)
    assert [sample.path for sample in made.samples] == [path]


def test_lines_of_jsonl(picture, listed):
    path = picture("x/a.png", (64, 96))
    picture("x/b.png")
    lines = [
        '{"image_path": "a.png", "caption": "hi", "tags": "t", "width": 64, "height": 96, "image_size": [1, 1]}',
        "",
    ]
    made = listed("\n".join([*lines, '{"image_path": "b.png", "image_size": [64, 63]}']), suffix=".jsonl")
    assert [sample.caption for sample in made.samples] == ["hi,t", ""]
    assert made.samples[0].path == path
    assert "image_size is wrong for 1 picture: b.png" in texts(made, "note")


def test_the_size_is_read_from_the_picture_and_not_needed(picture, listed):
    picture("x/a.png", (100, 70))
    made = listed({"a.png": {"caption": "x"}})
    assert made.samples[0].size == (100, 70)
    assert made.samples[0].bucket == (72, 56)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"a.png": {"tags": ["red"]}}, ["entry 'a.png'", "tags holds a list"]),
        ({"a.png": {"caption": 7}}, ["entry 'a.png'", "caption holds a number"]),
        ({"a.png": "a cat"}, ["entry 'a.png'", "holds a text"]),
        ({"a.png": {"image_size": [64]}}, ["entry 'a.png'", "image_size is [64]"]),
        ({"a.png": {"image_size": ["64", 64]}}, ["entry 'a.png'", "image_size"]),
        ({"a.png": {"train_resolution": "64"}}, ["entry 'a.png'", "train_resolution is '64'"]),
        ({"a.png": {}, "gone.png": {}, "b": {}}, ["no picture for 2 of 3 entries: gone.png, b"]),
        ({"": {"caption": "x"}}, ["image_path is missing"]),
    ],
)
def test_a_wrong_entry_is_named_with_its_key(picture, listed, entries, words):
    picture("x/a.png")
    message = texts(listed(entries), "error")
    assert "meta.json" in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("text", "suffix", "words"),
    [
        ("{", ".json", "not valid JSON"),
        ("[]", ".json", "holds a list"),
        ('{"image_path": "a"}\n{', ".jsonl", "line 2: not valid JSON"),
        ("[" * 100_000, ".json", "not valid JSON"),
    ],
)
def test_what_is_no_metadata_is_said(picture, listed, text, suffix, words):
    from sd_scripts.errors import UserError

    picture("x/a.png")
    with pytest.raises(UserError, match=words):
        listed(text, suffix=suffix)


def test_many_wrong_entries_are_counted(picture, listed):
    picture("x/a.png")
    made = listed({f"{n}.png": {"tags": 1} for n in range(100)})
    assert len([problem for problem in made.problems if problem.level == "error"]) == 21
    assert "80 more entries" in texts(made, "error")


def test_missing_pictures_are_left_out_on_request(picture, listed):
    picture("x/a.png")
    made = listed({"a.png": {}, "gone.png": {}}, on_bad_image="skip")
    assert len(made.samples) == 1
    assert not texts(made, "error")
    assert "gone.png" in texts(made, "warning")


def test_entries_without_text_are_said(picture, listed):
    picture("x/a.png")
    assert "neither caption nor tags in 1 of 1 entries: a" in texts(listed({"a": {"tags": " "}}), "warning")
    assert not texts(listed({"a": {"tags": "x"}}), "warning")


def test_pictures_without_entry_are_counted(picture, listed):
    for name in "abc":
        picture(f"x/{name}.png")
    made = listed({"b.png": {}})
    assert "2 pictures without an entry" in texts(made, "note")


def test_a_picture_listed_twice_is_used_once(picture, listed):
    picture("x/a.png")
    made = listed({"a.png": {"caption": "one"}, "a": {"caption": "two"}})
    assert [sample.caption for sample in made.samples] == ["one"]
    assert "stand twice" in texts(made, "warning")


def test_repeats_and_statistics(picture, listed):
    picture("x/a.png")
    picture("x/b.png")
    made = listed({"a.png": {"caption": "red", "tags": "Red, blue"}, "b.png": {"tags": "blue"}}, dataset_repeats=3)
    told = made.dataset_summary()["datasets"][0]
    assert told["num_train_images"] == 6
    assert told["is_dreambooth"] is False
    assert told["tag_frequency"] == {"meta.json": {"red": 1, "blue": 2}}
    assert told["subsets"][0]["metadata_file"].endswith("meta.json")


def test_metadata_in_a_dataset_file(tmp_path, picture):
    path = picture("x/a.png")
    (tmp_path / "meta.json").write_text('{"a": {"caption": "hi"}}', encoding="utf-8")
    config = tmp_path / "data.json"
    subset = {"metadata_file": str(tmp_path / "meta.json"), "image_dir": str(path.parent), "num_repeats": 2}
    twice = [{"resolution": size, "subsets": [subset]} for size in (64, 128)]
    config.write_text(json.dumps({"datasets": twice}), encoding="utf-8")
    made = plan_data(
        DatasetOptions(dataset_config=str(config), min_bucket_reso=32, bucket_reso_steps=8), divisor=8, seed=0
    )
    assert not texts(made, "error")
    assert [(s.caption, s.repeats, s.bucket) for s in made.samples] == [("hi", 2, (64, 64)), ("hi", 2, (128, 128))]


def test_wildcard_lines_get_the_tags_and_empty_ones_do_not_count():
    options = DatasetOptions(enable_wildcard=True, caption_separator=";")
    assert record_lines(Record("a", "one\n\n two ", "x\ny", None), options) == ("one;x;y", "two;x;y")
    assert record_lines(Record("a", "", "", None), options) == ()


def test_an_orientation_counts(tmp_path, picture, listed):
    path = picture("x/a.jpg")
    exif = Image.Exif()
    exif[274] = 6
    Image.new("RGB", (96, 64)).save(path, exif=exif)
    assert listed({"a": {"caption": "x"}}).samples[0].size == (64, 96)
