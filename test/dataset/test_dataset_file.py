import json
from pathlib import Path

import pytest

from sd_scripts.data.dataset_file import DATASET_ONLY, SUBSET_ONLY, known_keys
from sd_scripts.data.plan import DataPlan, plan_data
from sd_scripts.errors import UserError
from sd_scripts.options.dataset import DatasetOptions


@pytest.fixture
def planned(tmp_path, picture):
    """Plans a dataset file in which IMAGES stands for a folder with two pictures."""
    folder = picture("imgs/a.png", caption="one, two").parent
    picture("imgs/b.png", (100, 70))

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
        (SUBSET + 'num_repeats = "many"', ["dataset_repeats", "'many'", "[[datasets.subsets]] of dataset 1, 1"]),
        (SUBSET + "keep_tokens = -1", ["keep_tokens", "at least 0"]),
        (SUBSET + "batch_size = 2", ["batch_size", "move it to [[datasets]] or [general]"]),
        ('[general]\nimage_dir = "x"\n' + SUBSET, ["image_dir", "move it to [[datasets.subsets]]"]),
        ("[[dataset]]\nresolution = 512", ["dataset", "datasets"]),
        ("[general]\nflip_aug = true", ["has no [[datasets]]"]),
        ("[[datasets]]\nresolution = 64", ["has no [[datasets.subsets]]"]),
        ("[[datasets]]\n[[datasets.subsets]]\nnum_repeats = 1", ["image_dir", "is missing"]),
        ('[[datasets]]\n[[datasets.subsets]]\nimage_dir = "/no/such"', ["/no/such", "no folder"]),
        (SUBSET + 'metadata_file = "m.json"', ["metadata_file", "not yet available"]),
        (SUBSET + 'conditioning_data_dir = "c"', ["conditioning_data_dir", "not yet available"]),
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
    plan = planned(SUBSET + "cache_info = true")
    assert errors(plan) == []
    assert any("cache_info" in str(problem) and problem.level == "note" for problem in plan.problems)


def test_every_key_that_the_field_knows_is_known(tmp_path):
    """Keys of dataset files in the field; those without a meaning yet are refused by name, not as unknown."""
    from sd_scripts.data.dataset_file import NOT_YET, WITHOUT_EFFECT

    field = (Path(__file__).parent.parent / "data" / "dataset_keys.txt").read_text(encoding="utf-8").split()
    levels = dict(line.split(":") for line in field)
    assert set(levels) <= known_keys() | set(NOT_YET) | set(WITHOUT_EFFECT)
    for key, level in levels.items():
        if key in known_keys():
            assert (key in DATASET_ONLY) == (level == "gd"), key
            assert (key in SUBSET_ONLY) == (level == "s" and key != "alpha_mask"), key
