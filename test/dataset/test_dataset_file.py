import json
from pathlib import Path

import pytest

from sd_scripts.data.plan import DataPlan, plan_data
from sd_scripts.errors import UserError
from sd_scripts.options.dataset import DatasetOptions
from sd_scripts.options.dataset_keys import KEYS, LEVELS, Key


@pytest.fixture
def planned(tmp_path, picture):
    """Plans a dataset file in which IMAGES stands for a folder with two pictures."""
    folder = picture("imgs/a.png", caption="one, two").parent
    picture("imgs/b.png", (100, 70))
    (folder.parent / "meta.json").write_text('{"a": {"caption": "one"}}', encoding="utf-8")

    def make(text: str, suffix: str = ".toml", **options) -> DataPlan:
        path = tmp_path / f"data{suffix}"
        path.write_text(text.replace("IMAGES", folder.as_posix()), encoding="utf-8")
        given = {"resolution": "64", "min_bucket_reso": 32, "bucket_reso_steps": 8, **options}
        return plan_data(DatasetOptions(dataset_config=str(path), **given), divisor=8, seed=0)

    return make


def errors(plan: DataPlan) -> list[str]:
    return [str(problem) for problem in plan.problems if problem.level == "error"]


GOOD = """
[general]
caption_extension = ".txt"
flip_aug = true
keep_tokens = 2

[[datasets]]
resolution = 128
batch_size = 3
max_bucket_reso = 256
keep_tokens = 1

  [[datasets.subsets]]
  image_dir = "IMAGES"
  num_repeats = 4
  class_tokens = "sks cat"
  keep_tokens = 0
  flip_aug = false

[[datasets]]
resolution = [64, 96]
enable_bucket = false

  [[datasets.subsets]]
  image_dir = "IMAGES"
"""


def test_inner_tables_win_over_outer_ones_and_those_over_the_command_line(planned):
    plan = planned(GOOD, keep_tokens=7, train_batch_size=5, shuffle_caption=True, dataset_repeats=2)
    assert errors(plan) == []
    first, second = plan.subsets
    assert (first.options.keep_tokens, first.options.flip_aug, first.repeats) == (0, False, 4)
    assert (second.options.keep_tokens, second.options.flip_aug, second.repeats) == (2, True, 2)
    assert first.options.shuffle_caption
    assert first.class_tokens == "sks cat"
    assert [dataset.options.train_batch_size for dataset in plan.datasets] == [3, 5]
    assert [dataset.resolution for dataset in plan.datasets] == [(128, 128), (64, 96)]
    assert [sample.caption for sample in plan.samples] == ["one, two", "sks cat", "one, two", ""]
    assert {sample.bucket for sample in plan.samples if sample.dataset == 1} == {(64, 96)}
    assert plan.batches_per_epoch() == 2 + 2 + 1


def test_batches_never_mix_datasets(planned):
    plan = planned(GOOD)
    for batch in plan.epoch_batches(0):
        assert len({plan.samples[sample].dataset for sample in batch}) == 1


def test_json_is_read_alike(planned):
    content = {"general": {"flip_aug": True}, "datasets": [{"resolution": 64, "subsets": [{"image_dir": "IMAGES"}]}]}
    plan = planned(json.dumps(content), ".json")
    assert errors(plan) == []
    assert plan.subsets[0].options.flip_aug


SUBSET = '[[datasets]]\n[[datasets.subsets]]\nimage_dir = "IMAGES"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SUBSET + "shufle_caption = true", ["shufle_caption", "[[datasets.subsets]]", "data.toml", "shuffle_caption"]),
        ("[general]\nnum_repeat = 3\n" + SUBSET, ["num_repeat", "[general]", "num_repeats"]),
        (SUBSET + 'num_repeats = "many"', ["num_repeats", "'many'", "[[datasets.subsets]] of dataset 1, 1"]),
        (SUBSET + "keep_tokens = -1", ["keep_tokens", "at least 0"]),
        (SUBSET + "batch_size = 2", ["batch_size", "move it to [general] or [[datasets]]"]),
        ('[general]\nimage_dir = "x"\n' + SUBSET, ["image_dir", "move it to [[datasets.subsets]]"]),
        ("[[dataset]]\nresolution = 512", ["dataset", "datasets"]),
        ("[general]\nflip_aug = true", ["has no [[datasets]]"]),
        ("[[datasets]]\nresolution = 64", ["has no [[datasets.subsets]]"]),
        ("[[datasets]]\n[[datasets.subsets]]\nnum_repeats = 1", ["image_dir", "is missing"]),
        ('[[datasets]]\n[[datasets.subsets]]\nimage_dir = "/no/such"', ["/no/such", "no folder"]),
        (SUBSET + 'metadata_file = "m.json"', ["metadata_file", "m.json", "no file"]),
        (SUBSET + 'conditioning_data_dir = "c"', ["conditioning_data_dir", "no folder"]),
        (SUBSET + "random_crop = true", ["random_crop", "cache_latents = false"]),
        ("[[datasets]]\nresolution = 500\n" + SUBSET.split("\n", 1)[1], ["resolution", "496 and 504"]),
    ],
)
def test_what_cannot_be_read_is_named(planned, text, words):
    found = errors(planned(text))
    assert found
    assert any(all(word in message for word in words) for message in found), found


@pytest.mark.parametrize("text", ["[general", "caption_extension = None"])
def test_broken_toml_is_an_error_with_its_place(planned, text):
    with pytest.raises(UserError, match=r"data\.toml: not valid TOML"):
        planned(text)


def test_missing_file_and_odd_suffix(tmp_path):
    for name, words in {"gone.toml": "no such file", "a.yaml": "neither"}.items():
        with pytest.raises(UserError, match=words):
            plan_data(DatasetOptions(dataset_config=str(tmp_path / name)), divisor=8, seed=0)


def test_a_subset_given_twice_is_used_once(planned):
    plan = planned(SUBSET + SUBSET.split("\n", 1)[1])
    assert len(plan.subsets) == 1
    assert any("twice" in str(problem) for problem in plan.problems)


def test_keys_without_effect_are_said(planned):
    plan = planned("[general]\nnetwork_multiplier = 2.0\n" + SUBSET)
    assert errors(plan) == []
    assert any("network_multiplier" in str(problem) and problem.level == "note" for problem in plan.problems)


# Keys of dataset files as people have them: type, and the tables of each kind of dataset (general, dataset, subset).
FIELD = json.loads((Path(__file__).parent.parent / "data" / "dataset_keys.json").read_text(encoding="utf-8"))
MARKS = {"g": "general", "d": "dataset", "s": "subset"}
KIND_MARKS = {"db": "dreambooth", "ft": "finetuning", "cn": "controlnet"}
VALUES = {
    "bool": (True, 7),
    "int": (64, "many"),
    "float": (0.5, "much"),
    "float | int": (0.5, "much"),
    "str": ("x", 7),
}
VALUES |= {"int | [int,int]": (64, True), "[float,float]": ([1.0, 2.5], 7), "dict": ({"a": 1}, 7)}
OTHER = {
    "resize_interpolation": "area",
    "alpha_mask": True,
    "metadata_file": "IMAGES/../meta.json",
    "conditioning_data_dir": "IMAGES",
    "skip_image_resolution": "32",
    "face_crop_aug_range": "1.0,3.0",
}


@pytest.mark.parametrize("name", FIELD)
def test_every_key_that_the_field_knows_may_stand_where_it_may_there(name):
    key = KEYS[name]
    for mark, kind in KIND_MARKS.items():
        allowed = {MARKS[level] for level in FIELD[name].get(mark, "")}
        assert allowed <= (set(key.levels) if kind in key.kinds else set()), kind
        assert bool(allowed) == (kind in key.kinds), kind


def test_there_are_no_other_keys():
    assert set(KEYS) == set(FIELD)


def at(level: str, line: str) -> str:
    """A dataset file with a line in a table of this level."""
    tables = {name: f"[{name}]" if name == "general" else "" for name in LEVELS} | {"dataset": "[[datasets]]"}
    tables["subset"] = '[[datasets.subsets]]\nimage_dir = "IMAGES"'
    tables[level] += f"\n{line}"
    return "\n".join(tables.values())


def toml(name: str, value: object) -> str:
    import tomli_w

    return tomli_w.dumps({name: value}) if not isinstance(value, dict) else f"{name} = {{ a = 1 }}"


TABLES = {"general": "[general]", "dataset": "[[datasets]] 1", "subset": "[[datasets.subsets]] of dataset 1, 1"}
CASES = [
    (key, level) for key in KEYS.values() for level in LEVELS if key.name != "image_dir"
]  # that one is in every file


@pytest.mark.parametrize(("key", "level"), CASES, ids=lambda case: getattr(case, "name", case))
def test_a_key_is_taken_checked_or_refused_at_each_level(planned, key: Key, level):
    good, bad = VALUES[FIELD[key.name]["type"]]
    found = errors(planned(at(level, toml(key.name, OTHER.get(key.name, good))), cache_latents=False))
    own = [message for message in found if message.startswith(f"{key.name}: ")]
    if level not in key.levels:
        assert own == [f"{key.name}: cannot stand in {TABLES[level]} of data.toml - move it to {key.tables}"]
        return
    assert own == [] if key.spec.available else "is not yet available" in own[0]
    wrong = errors(planned(at(level, toml(key.name, bad))))
    assert any(m.startswith(f"{key.name}: {bad!r} is not") and f"in {TABLES[level]} of data.toml" in m for m in wrong)


def test_kinds_are_not_mixed_and_keys_of_another_kind_are_named(planned):
    other = '[[datasets.subsets]]\nmetadata_file = "m.json"\n'
    found = errors(planned(SUBSET + other))
    assert any("[[datasets]] 1 of data.toml mixes subsets with folders with caption files" in text for text in found)
    plan = planned("[[datasets]]\n" + other + "is_reg = true\n")
    notes = [str(problem) for problem in plan.problems if problem.option == "is_reg"]
    assert len(notes) == 1 and "has no effect in [[datasets.subsets]] of dataset 1, 1 of data.toml" in notes[0]


def test_an_option_of_the_settings_is_sent_there(planned):
    (message,) = errors(planned(SUBSET + "learning_rate = 1e-4"))
    assert message.startswith("learning_rate: is no key of a dataset file") and "settings" in message
