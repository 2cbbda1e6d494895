import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from sd_scripts.data.plan import plan_data
from sd_scripts.data.sources import parse_repeats
from sd_scripts.errors import UserError
from sd_scripts.options.dataset import DatasetOptions

CAPTIONS = Path(__file__).parent.parent / "data" / "golden" / "captions.json.gz"


def texts(plan, level: str) -> str:
    return "\n".join(str(problem) for problem in plan.problems if problem.level == level)


def test_planning_does_not_import_torch(tmp_path, picture):
    picture("1_cat/a.png")
    code = (
        "import sys; from sd_scripts.data.plan import plan_data; from sd_scripts.options.dataset import DatasetOptions;"
        f"plan = plan_data(DatasetOptions(train_data_dir={str(tmp_path / 'train')!r}), divisor=8, seed=0);"
        "plan.epoch_batches(0); plan.summary(); plan.dataset_summary(); assert len(plan.samples) == 1;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# Folders


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("10_sks cat", (10, "sks cat")),
        ("10_", (10, "")),
        ("10", (10, "")),
        ("0_x", (0, "x")),
        ("-1_x", (-1, "x")),
        ("3_a_b", (3, "a_b")),
        ("cat", None),
        ("10cat", None),
    ],
)
def test_repeats_in_folder_names(name, parsed):
    assert parse_repeats(name) == parsed


@pytest.mark.parametrize("name", ["0_x", "-1_x", "x", "10x"])
def test_a_folder_without_repeats_is_named_with_the_fix(picture, plan, name):
    picture(f"{name}/a.png")
    message = texts(plan(), "error")
    assert name in message
    assert "rename" in message
    assert "10_x" in message


def test_folders_without_repeats_beside_good_ones_are_reported(picture, plan):
    picture("2_cat/a.png")
    picture("dogs/b.png")
    picture("loose.png")
    made = plan()
    assert [sample.path.name for sample in made.samples] == ["a.png"]
    assert not texts(made, "error")
    assert "dogs" in texts(made, "warning")
    assert "loose.png" in texts(made, "warning")


def test_a_folder_without_name_is_used_and_reported(picture, plan):
    picture("10_/a.png")
    made = plan()
    assert made.samples[0].repeats == 10
    assert "no name after the number" in texts(made, "warning")


def test_pictures_directly_in_the_folder(picture, plan):
    picture("a.png")
    message = texts(plan(), "error")
    assert "1 picture directly in" in message
    assert "10_train" in message


def test_the_folder_itself_given_instead_of_its_parent(tmp_path, picture, plan):
    picture("10_cat/a.png")
    message = texts(plan(train_data_dir=str(tmp_path / "train" / "10_cat")), "error")
    assert str(tmp_path / "train") in message.split("choose")[1]


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.write_text("x"), lambda path: path.mkdir()])
def test_missing_file_or_empty_folder_is_an_error(tmp_path, plan, make):
    make(tmp_path / "train")
    made = plan()
    assert made.samples == ()
    assert len([problem for problem in made.problems if problem.level == "error"]) == 1
    assert made.batches_per_epoch() == 0


def test_an_empty_repeats_folder_is_an_error(tmp_path, plan):
    (tmp_path / "train" / "10_cat").mkdir(parents=True)
    assert "no picture" in texts(plan(), "error")


@pytest.mark.parametrize("name", ["a b [c] (d).png", "猫 🐈.png", "img_0512x0768.png", "a" * 200 + ".PNG", "100%.jpg"])
def test_odd_names_are_names(picture, plan, name):
    picture(f"1_桌面 (x)/{name}", (64, 64))
    assert [sample.path.name for sample in plan().samples] == [name]
    assert plan().samples[0].size == (64, 64)


def test_other_files_are_ignored_and_unread_pictures_named(picture, plan):
    folder = picture("1_cat/a.png").parent
    for name in ("notes.md", "a.npz", "._a.png", "b.gif"):
        (folder / name).write_bytes(b"x")
    made = plan()
    assert len(made.samples) == 1
    assert "b.gif" in texts(made, "note")


def test_pictures_of_the_same_stem_are_refused(picture, plan):
    picture("1_cat/a.png")
    picture("1_cat/a.jpg")
    assert "a.jpg and a.png" in texts(plan(), "error")


def test_a_folder_that_cannot_be_read_is_named(picture, plan, monkeypatch):
    picture("1_cat/a.png")

    def refuse(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(UserError, match="train cannot be read: Permission denied"):
        plan()


# Bad pictures


def test_bad_pictures_stop_or_are_skipped(picture, plan):
    picture("1_cat/good.png")
    for name, data in {"zero.png": b"", "text.jpg": b"hello"}.items():
        (picture("1_cat/x.png").parent / name).write_bytes(data)
    cut = picture("1_cat/cut.jpg", (200, 200))
    cut.write_bytes(cut.read_bytes()[:-500])
    made = plan()
    for name in ("zero.png", "text.jpg", "cut.jpg"):
        assert name in texts(made, "error")
    assert "on_bad_image" in texts(made, "error")
    skipping = plan(on_bad_image="skip")
    assert not texts(skipping, "error")
    assert "zero.png" in texts(skipping, "warning")
    assert {sample.path.name for sample in skipping.samples} == {"good.png", "x.png"}
    assert len(skipping.summary()["bad_pictures"]) == 3


def test_damage_in_the_middle_of_a_small_set_is_found(picture, plan):
    path = picture("1_cat/a.png", (64, 64))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    assert "a.png is damaged" in texts(plan(), "error")


def test_a_link_to_nothing_is_named(picture, plan):
    folder = picture("1_cat/a.png").parent
    try:
        (folder / "b.png").symlink_to(folder / "gone.png")
    except OSError:
        pytest.skip("links cannot be made here")
    assert "b.png is a link to a file that does not exist" in texts(plan(), "error")


# Captions


def test_caption_sources(picture, plan):
    picture("2_sks cat/a.png", caption="a cat\nsecond line")
    picture("2_sks cat/b.png", caption="")
    picture("2_sks cat/c.png")
    folder = plan().summary()["folders"][0]["captions"]
    assert [sample.caption for sample in plan().samples] == ["a cat\nsecond line", "", "sks cat"]
    assert folder == {"extension": ".txt", "found": 1, "empty": 1, "missing": 1, "too_long": None}
    counted = plan().summary(count_tokens=len, token_limit=6)["folders"][0]["captions"]
    assert counted["too_long"] == 2  # "second line" and "sks cat"


@pytest.mark.parametrize(
    ("option", "expected"), [(None, ["cap", ""]), (".txt", ["text", "b"]), ("txt", ["text", "b"]), (".tag", ["", ""])]
)
def test_caption_extension(picture, plan, option, expected):
    folder = picture("1_/a.png", caption="text").parent
    picture("1_/b.png", caption="b")
    (folder / "a.caption").write_text("cap", encoding="utf-8")
    made = plan(caption_extension=option)
    assert [sample.caption for sample in made.samples] == expected
    assert ("but .txt files lie there" in texts(made, "warning")) == (expected[1] == "")


def caption_file_cases() -> list:
    with gzip.open(CAPTIONS, "rt", encoding="utf-8") as file:
        found = [case for case in json.load(file)["cases"] if case["kind"] == "caption_files"]
    return [pytest.param(case["id"], case["inputs"], case["expected"], id=case["id"]) for case in found]


# What other programs do wrong in these cases, done right here.
MENDED = {
    "captions-052": {"a.png": "cat"},  # a blank first line is no caption
    "captions-053": {"a.png": ""},  # an empty file is an empty caption, not a crash
    "captions-057": {"a.png": "cat"},  # a byte-order mark is no text
}


@pytest.mark.parametrize(("name", "inputs", "expected"), caption_file_cases())
def test_caption_files_golden(picture, plan, name, inputs, expected):
    options = {"caption_extension": ".txt", **inputs["options"]}
    folder = f"1_{options.pop('class_tokens') or ''}"
    for image in inputs["images"]:
        path = picture(f"{folder}/{image}")
    for file, text in inputs["files"].items():
        (path.parent / file).write_text(text, encoding="utf-8")
    wanted = MENDED.get(name) or expected["value"]
    wildcards = options.get("enable_wildcard", False)
    assert {
        sample.path.name: sample.caption if wildcards else next(iter(sample.lines), "")
        for sample in plan(**options).samples
    } == wanted


def test_a_caption_under_the_name_without_face_box_counts(picture, plan):
    folder = picture("1_x/p_1_2_3_4.png").parent
    (folder / "p.txt").write_text("short", encoding="utf-8")
    assert plan().samples[0].caption == "short"
    (folder / "p_1_2_3_4.txt").write_text("own", encoding="utf-8")
    assert plan().samples[0].caption == "own"


def test_undecodable_captions_are_named(picture, plan):
    picture("1_x/a.png").with_suffix(".txt").write_bytes("café".encode("latin-1"))
    assert "a.txt is not UTF-8" in texts(plan(), "error")


# Sizes


@pytest.mark.parametrize(
    ("options", "option", "words"),
    [
        ({"resolution": "500"}, "resolution", "nearest are 496 and 504"),
        ({"resolution": "4"}, "resolution", "nearest is 8"),
        ({"resolution": "big"}, "resolution", "width,height"),
        ({"resolution": "0"}, "resolution", "width,height"),
        ({"bucket_reso_steps": 20}, "bucket_reso_steps", "multiple of 8"),
        ({"min_bucket_reso": 72}, "min_bucket_reso", "64 or less"),
        ({"max_bucket_reso": 56}, "max_bucket_reso", "64 or more"),
        ({"bucket_reso_steps": 128, "max_bucket_reso": 128}, "bucket_reso_steps", "64 or less"),
    ],
)
def test_sizes_that_cannot_work(picture, plan, options, option, words):
    picture("1_cat/a.png")
    errors = [problem for problem in plan(**options).problems if problem.level == "error"]
    assert [problem.option for problem in errors] == [option]
    assert words in str(errors[0])


def test_bucket_limits_are_rounded_with_a_message(picture, plan):
    picture("1_cat/a.png", (700, 500))
    made = plan(resolution="512", min_bucket_reso=300, max_bucket_reso=1000, bucket_reso_steps=64)
    assert "256 is used" in texts(made, "warning")
    assert "1024 is used" in texts(made, "warning")
    assert made.dataset_summary()["datasets"][0]["min_bucket_reso"] == 256


def test_non_square_resolution_is_width_and_height(picture, plan):
    picture("1_cat/a.png", (30, 60))
    sample = plan(resolution="32,64", enable_bucket=False).samples[0]
    assert (sample.bucket, sample.fit.resized) == ((32, 64), (32, 64))


def test_too_small_for_a_bucket_without_enlarging(picture, plan):
    picture("1_cat/tiny.png", (7, 100))
    picture("1_cat/b.png", (64, 64))
    made = plan(bucket_no_upscale=True)
    assert [sample.path.name for sample in made.samples] == ["b.png"]
    assert "tiny.png" in texts(made, "warning")


def test_what_suffers_is_said(picture, plan):
    picture("1_cat/soft.png", (20, 20))
    picture("1_cat/long.png", (1000, 64))
    made = plan()
    assert "soft.png" in texts(made, "note")
    assert "long.png" in texts(made, "warning")


def test_bucket_table(ten_pictures, plan):
    buckets = plan(train_batch_size=2).summary()["buckets"]
    table = {tuple(bucket["resolution"]): bucket for bucket in buckets}
    assert {size: bucket["images"] for size, bucket in table.items()} == {(64, 64): 4, (72, 56): 3, (56, 72): 3}
    assert {size: bucket["batches"] for size, bucket in table.items()} == {(64, 64): 6, (72, 56): 5, (56, 72): 5}
    assert table[64, 64]["scale"] == [1, 1]
    assert table[72, 56]["scale"] == [0.8, 0.8]
    assert table[72, 56]["largest_cut"] == [8, 0]
    assert json.dumps(plan().summary())
    assert any("72 × 56: 3 pictures" in line for line in plan().lines())


# Batches


def test_batches_hold_every_use_once_and_one_bucket_each(ten_pictures, plan):
    made = plan(train_batch_size=4)
    for epoch in range(3):
        batches = made.epoch_batches(epoch)
        assert len(batches) == made.batches_per_epoch() == 3 + 3 + 3
        assert Counter(sample for batch in batches for sample in batch) == dict.fromkeys(range(10), 3)
        assert all(len({made.samples[sample].bucket for sample in batch}) == 1 for batch in batches)
        uses = [use for batch in made.epoch_uses(epoch) for use in batch]
        assert len(set(uses)) == len(uses) == 30


def test_order_depends_on_seed_and_epoch_alone(ten_pictures, plan):
    assert plan(seed=1).epoch_batches(2) == plan(seed=1).epoch_batches(2)
    orders = [tuple(plan(seed=seed).epoch_batches(epoch)) for seed in (1, 2) for epoch in (0, 1)]
    assert len(set(orders)) == 4


def test_buckets_smaller_than_the_batch_train(picture, plan):
    for number, size in enumerate([(64, 64)] + [(100, 70)] * 3 + [(70, 100)] * 5):
        picture(f"1_cat/{number}.png", size)
    assert sorted(map(len, plan(train_batch_size=4).epoch_batches(0))) == [1, 1, 3, 4]


@pytest.mark.parametrize(("world_size", "expected"), [(1, 16), (2, 9), (3, 6), (7, 3)])
def test_batches_of_each_process(ten_pictures, plan, world_size, expected):
    assert plan(train_batch_size=2).batches_per_epoch(world_size) == expected


# Regularisation


def regularised(picture, plan, tmp_path, count: int, **options):
    for number in range(3):
        picture(f"2_cat/{number}.png")
    for number in range(count):
        picture(f"../reg/1_animal/{number}.png", [(64, 64), (100, 70)][number % 2])
    return plan(reg_data_dir=str(tmp_path / "reg"), prior_loss_weight=0.5, **options)


def test_few_regularisation_pictures_are_repeated(picture, plan, tmp_path):
    made = regularised(picture, plan, tmp_path, 2)
    assert [sample.repeats for sample in made.samples if sample.is_reg] == [3, 3]
    assert {sample.loss_weight for sample in made.samples if sample.is_reg} == {0.5}
    assert {sample.loss_weight for sample in made.samples if not sample.is_reg} == {1.0}


def test_surplus_regularisation_pictures_take_turns(picture, plan, tmp_path):
    made = regularised(picture, plan, tmp_path, 20, train_batch_size=2)
    used = Counter()
    for epoch in range(10):
        own = [sample for batch in made.epoch_batches(epoch) for sample in batch if made.samples[sample].is_reg]
        assert len(own) == 6
        assert len(made.epoch_batches(epoch)) == made.batches_per_epoch()
        used.update(own)
    assert len(used) == 20
    assert set(used.values()) == {3}
    assert "14 of 20 wait for a later epoch" in texts(made, "note")


def test_only_regularisation_pictures_is_an_error(picture, tmp_path):
    folder = picture("1_cat/a.png").parent
    text = f'[[datasets]]\nresolution = 64\n[[datasets.subsets]]\nimage_dir = "{folder.as_posix()}"\nis_reg = true\n'
    (tmp_path / "data.toml").write_text(text, encoding="utf-8")
    options = DatasetOptions(dataset_config=str(tmp_path / "data.toml"), min_bucket_reso=64)
    assert "no pictures to train" in texts(plan_data(options, divisor=8, seed=0), "error")


# Masks and metadata


def test_a_mask_option_without_effect_is_said(picture, plan):
    path = picture("1_cat/a.png")
    assert "alpha_mask" in texts(plan(alpha_mask=True), "warning")
    Image.new("RGBA", (64, 64), (1, 2, 3, 100)).save(path)
    made = plan(alpha_mask=True)
    assert "alpha_mask" not in texts(made, "warning")
    assert made.summary()["folders"][0]["masks"] == 1


def test_dataset_summary_fits_the_metadata(ten_pictures, plan):
    from sd_scripts.adapters.metadata import DatasetSummary, DataSummary, SubsetSummary

    told = plan(train_batch_size=2).dataset_summary()
    (dataset,) = told.pop("datasets")
    subsets = tuple(SubsetSummary(**subset) for subset in dataset.pop("subsets"))
    summary = DataSummary(datasets=(DatasetSummary(**dataset, subsets=subsets),), **told)
    assert summary.datasets[0].num_train_images == 30
    assert summary.datasets[0].tag_frequency["3_cat"] | {} == {
        **{f"cat {number}": 1 for number in range(10)}, "red": 10, "blue": 10, "green": 10
    }  # fmt: skip
    assert [bucket["count"] for bucket in summary.datasets[0].bucket_info["buckets"].values()] == [9, 12, 9]
    assert (subsets[0].img_count, subsets[0].num_repeats, subsets[0].class_tokens) == (10, 3, "cat")


# Left out, cut around faces


@pytest.mark.parametrize(("given", "names"), [(None, "abc"), ("64", "c"), ("64,63", "ac"), ("63", "ac")])
def test_pictures_of_at_most_a_size_are_left_out(picture, plan, given, names):
    picture("1_cat/a.png", (64, 64))
    picture("1_cat/b.png", (63, 63))
    picture("1_cat/c.png", (65, 64))
    made = plan(skip_image_resolution=given)
    assert "".join(sample.path.stem for sample in made.samples) == names
    assert ("left out" in texts(made, "note")) == (names != "abc")


def test_several_resolutions_of_one_folder_skip_on_their_own(tmp_path, picture):
    folder = picture("x/a.png", (64, 64)).parent
    picture("x/b.png", (128, 128))
    subset = {"image_dir": str(folder)}
    datasets = [
        {"resolution": 64, "subsets": [subset]},
        {"resolution": 128, "skip_image_resolution": [64, 64], "subsets": [subset]},
    ]
    (tmp_path / "data.json").write_text(json.dumps({"datasets": datasets}), encoding="utf-8")
    options = DatasetOptions(dataset_config=str(tmp_path / "data.json"), min_bucket_reso=32, bucket_reso_steps=8)
    made = plan_data(options, divisor=8, seed=0)
    assert [(sample.path.stem, sample.bucket) for sample in made.samples] == [
        ("a", (64, 64)), ("b", (64, 64)), ("b", (128, 128)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value"),
    [("skip_image_resolution", "big"), ("face_crop_aug_range", "3.0,1.0"), ("face_crop_aug_range", "2")],
)
def test_sizes_and_ranges_that_are_none(picture, plan, option, value):
    picture("1_cat/a.png")
    made = plan(**{option: value}, cache_latents=False)
    assert [problem.option for problem in made.problems if problem.level == "error"] == [option]


def test_faces_in_names(picture, plan):
    picture("1_cat/a_0030_0020_0010_0012.png")
    picture("1_cat/b.png")
    assert [sample.face for sample in plan().samples] == [None, None]
    made = plan(face_crop_aug_range="1.0,3.0", cache_latents=False)
    face = made.samples[0].face
    assert (face.x, face.y, face.width, face.height) == (30, 20, 10, 12)
    assert made.samples[1].face is None
    assert "b.png" in texts(made, "warning")
    assert not made.is_cacheable


@pytest.mark.parametrize("architecture", ["sd1", "flux", "hunyuan_image"])
def test_the_unit_of_sizes_is_the_models(picture, plan, architecture):
    from sd_scripts.options.sizes import DIVISORS

    picture("1_cat/a.png", (300, 200))
    unit = DIVISORS[architecture]
    made = plan(divisor=unit, resolution="256", min_bucket_reso=64, max_bucket_reso=512, bucket_reso_steps=unit)
    assert not texts(made, "error")
    assert all(side % unit == 0 for side in made.samples[0].bucket)
    assert ("multiple" in texts(plan(divisor=unit, bucket_reso_steps=8), "error")) == (unit > 8)


def test_a_plan_is_small(tmp_path, picture, plan):
    import shutil
    import tracemalloc

    path = picture("1_cat/0.png", caption="a cat, red, blue")
    for number in range(1, 500):
        shutil.copy(path, path.with_name(f"{number}.png"))
        shutil.copy(path.with_suffix(".txt"), path.with_name(f"{number}.txt"))
    plan()
    tracemalloc.start()
    made = plan()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(made.samples) == 500
    assert used / 500 < 2000
