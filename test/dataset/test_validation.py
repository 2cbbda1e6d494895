"""Pictures held out to measure by: decided by content, never trained on anywhere."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sd_scripts.data.plan import plan_data
from sd_scripts.data.validation import choose_held_out, held_out_count
from sd_scripts.options.dataset import DatasetOptions

GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "buckets.json.gz"
SIZES = {"min_bucket_reso": 32, "max_bucket_reso": 128, "bucket_reso_steps": 8}


def cases() -> list:
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as file:
        found = [case for case in json.load(file)["cases"] if case["kind"] == "validation_split_counts"]
    return [pytest.param(case["inputs"], case["expected"], id=case["id"]) for case in found]


@pytest.fixture
def pictures(picture):
    """Writes so many different pictures to 2_cat."""

    def write(count: int, folder: str = "2_cat") -> list[Path]:
        paths = []
        for number in range(count):
            paths.append(picture(f"{folder}/{number}.png"))
            pixels = np.random.default_rng(number).integers(0, 256, (64, 64, 3), np.uint8)
            Image.fromarray(pixels).save(paths[-1])
        return paths

    return write


def held(plan) -> set[str]:
    return {sample.path.name for sample in plan.validation.samples} if plan.validation else set()


@pytest.mark.parametrize(("inputs", "expected"), cases())
def test_counts_golden(pictures, plan, inputs, expected):
    """Other programs round both halves on their own, so that one picture can be in both, and may hold none out."""
    pictures(inputs["images"])
    made = plan(validation_split=inputs["validation_split"])
    trained = {sample.path.name for sample in made.samples}
    assert not trained & held(made)
    assert len(trained | held(made)) == expected["union"] == inputs["images"]
    if expected["overlap"] == 0 and expected["validation"]:
        assert (len(trained), len(held(made))) == (expected["train"], expected["validation"])
    assert bool(held(made)) == (inputs["images"] > 1)


@pytest.mark.parametrize(
    ("pictures", "share", "count"), [(100, 0.1, 10), (2, 0.9, 1), (1, 0.5, 0), (0, 0.5, 0), (9, 0, 0), (3, 1.0, 2)]
)
def test_share(pictures, share, count):
    assert held_out_count(pictures, share) == count


def test_the_choice_depends_on_content_and_seed_alone(tmp_path, pictures, plan):
    paths = pictures(20)
    first = plan(validation_split=0.2, validation_seed=5, seed=1)
    assert len(held(first)) == 4
    assert held(plan(validation_split=0.2, validation_seed=5, seed=2)) == held(first)
    assert len({frozenset(held(plan(validation_split=0.2, validation_seed=seed))) for seed in range(4)}) > 1
    assert held(plan(validation_split=0.2, seed=7)) == held(plan(validation_split=0.2, validation_seed=7))
    moved = {path.read_bytes(): f"z{path.stem}.png" for path in paths}
    for path in paths:
        path.rename(path.with_name(moved[path.read_bytes()]))
    assert held(plan(validation_split=0.2, validation_seed=5)) == {f"z{name}" for name in held(first)}


def test_added_pictures_move_only_those_at_the_border():
    old = [f"picture {number}" for number in range(200)]
    before = choose_held_out(old, 0.1, 1)
    after = choose_held_out([*old, *(f"new {number}" for number in range(20))], 0.1, 1)
    assert len(before) == 20 and len(after) == 22
    assert len(before - after) <= 3
    assert len((after - before) & set(old)) <= 3


def test_copies_stay_together(pictures, plan):
    for path in pictures(6):
        for copy in range(3):
            shutil.copy(path, path.with_name(f"copy{copy} of {path.name}"))
    made = plan(validation_split=0.34)
    trained = {sample.path.read_bytes() for sample in made.samples}
    validated = {sample.path.read_bytes() for sample in made.validation.samples}
    assert not trained & validated
    assert (len(trained), len(validated)) == (4, 2)
    assert len(made.validation.samples) == 8


def test_no_leak_between_subsets_and_resolutions(tmp_path, pictures):
    folder = pictures(10)[0].parent
    other = tmp_path / "train" / "other"
    shutil.copytree(folder, other)
    datasets = [
        {"resolution": size, "subsets": [{"image_dir": str(place)} for place in places]}
        for size, places in ((64, [folder]), (128, [other]))
    ]
    (tmp_path / "data.json").write_text(json.dumps({"datasets": datasets}), encoding="utf-8")
    options = DatasetOptions(dataset_config=str(tmp_path / "data.json"), validation_split=0.3, **SIZES)
    made = plan_data(options, divisor=8, seed=1)
    trained = {sample.path.read_bytes() for sample in made.samples}
    assert len(trained) == 7 and len(made.samples) == 14
    assert not trained & {sample.path.read_bytes() for sample in made.validation.samples}
    assert {sample.bucket for sample in made.validation.samples} == {(64, 64), (128, 128)}


def test_a_dataset_without_split_does_not_train_on_what_another_holds_out(tmp_path, pictures):
    from sd_scripts.data import collect
    from sd_scripts.data.sources import Dataset, Sources, Subset

    folder = pictures(10)[0].parent
    base = DatasetOptions(dataset_config="x", resolution="64", **SIZES)
    split = base.model_copy(update={"validation_split": 0.3})
    datasets = tuple(Dataset(o, (Subset(folder, 1, None, False, o),)) for o in (split, base))
    collector = collect._Collector(base, None)
    for dataset in Sources(datasets, ()).datasets:
        collector.add_dataset(dataset, 8)
    made = collector.finish(1, is_from_file=True)
    assert len(made.samples) == 14 and len(made.validation.samples) == 3
    assert {sample.dataset for sample in made.validation.samples} == {0}
    assert any("3 copies of held-out pictures" in str(problem) for problem in made.problems)


def test_regularisation_pictures_are_never_held_out(tmp_path, pictures, plan):
    paths = pictures(4)
    reg = pictures(3, "../reg/1_animal")
    assert reg[0].read_bytes() == paths[0].read_bytes()
    made = plan(validation_split=0.5, reg_data_dir=str(tmp_path / "reg"))
    assert len(made.validation.samples) == 1
    assert not any(sample.is_reg for sample in made.validation.samples)
    assert sum(sample.is_reg for sample in made.samples) == 3
    assert sum(sample.repeats for sample in made.samples if sample.is_reg) == 3 * 2


def test_held_out_pictures_are_used_once_and_as_they_are(pictures, plan):
    pictures(6)
    made = plan(validation_split=0.5, flip_aug=True, shuffle_caption=True, caption_dropout_rate=0.5, train_batch_size=2)
    assert [sample.repeats for sample in made.validation.samples] == [1, 1, 1]
    assert [sample.repeats for sample in made.samples] == [2, 2, 2]
    assert len(made.validation.epoch_batches(0)) == 2
    options = made.validation.subsets[0].options
    assert (options.flip_aug, options.shuffle_caption, options.caption_dropout_rate) == (False, False, 0)
    assert made.subsets[0].options.flip_aug


def test_plan_and_metadata_say_how_many(pictures, plan):
    pictures(10)
    made = plan(validation_split=0.2)
    assert made.summary()["images"] == 8
    assert made.summary()["validation_images"] == 2
    assert made.dataset_summary()["num_validation_images"] == 2
    assert made.dataset_summary()["datasets"][0]["subsets"][0]["img_count"] == 8
    assert any("Held out" in line and "2 pictures" in line for line in made.lines())
    assert any("2 pictures held out" in str(problem) for problem in made.problems)


def test_the_split_of_metadata_and_guided_datasets(tmp_path, pictures):
    folder = pictures(8)[0].parent
    (tmp_path / "meta.json").write_text(json.dumps({f"{n}.png": {} for n in range(8)}), encoding="utf-8")
    shutil.copytree(folder, tmp_path / "guides")
    options = DatasetOptions(train_data_dir=str(folder), resolution="64", validation_split=0.25, **SIZES)
    listed = options.model_copy(update={"in_json": str(tmp_path / "meta.json")})
    guided = options.model_copy(update={"conditioning_data_dir": str(tmp_path / "guides")})
    first = plan_data(listed, divisor=8, seed=1)
    second = plan_data(guided, divisor=8, seed=1, has_guides=True)
    assert len(held(first)) == 2
    assert held(first) == held(second)
    assert all(sample.control for sample in second.validation.samples)


def test_one_picture_cannot_be_split(pictures, plan):
    pictures(1)
    made = plan(validation_split=0.5)
    assert made.validation is None and len(made.samples) == 1
    assert any(p.level == "warning" and "too few" in str(p) for p in made.problems)
