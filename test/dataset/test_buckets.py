import gzip
import json
from pathlib import Path

import pytest

from sd_scripts.data.buckets import Buckets, bucket_sizes, fit_exactly, padding_box, round_limits
from sd_scripts.data.repeats import fit_repeats

GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "buckets.json.gz"


def cases(kind: str) -> list:
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as file:
        found = [case for case in json.load(file)["cases"] if case["kind"] == kind]
    return [pytest.param(case["inputs"], case["expected"], id=case["id"]) for case in found]


def buckets_of(inputs: dict, no_upscale: bool = False) -> Buckets:
    return Buckets(
        tuple(inputs["resolution"]),
        smallest=inputs["min"],
        largest=inputs["max"],
        step=inputs["steps"],
        no_upscale=no_upscale,
    )


@pytest.mark.parametrize(("inputs", "expected"), cases("bucket_resolutions"))
def test_bucket_sizes(inputs, expected):
    sizes = bucket_sizes(tuple(inputs["max_resolution"]), inputs["min_size"], inputs["max_size"], inputs["steps"])
    assert [list(size) for size in sizes] == expected


@pytest.mark.parametrize(
    ("inputs", "expected"), [case for case in cases("adjust_min_max") if "value" in case.values[1]]
)
def test_limits_are_rounded_to_the_step(inputs, expected):
    assert list(round_limits(inputs["min"], inputs["max"], inputs["steps"])) == expected["value"]


@pytest.mark.parametrize(("inputs", "expected"), cases("assign"))
def test_pictures_get_their_bucket(inputs, expected):
    buckets = buckets_of(inputs, inputs["no_upscale"])
    for case in expected:
        size = tuple(case["image"])
        fit = buckets.fit(size)
        if "error" in case:  # smaller than a step: other programs divide by zero, here it has no bucket
            assert fit is None, size
            continue
        value = case["value"]
        assert list(fit.bucket) == value["bucket"], size
        assert list(fit.resized) == value["resized"], size
        assert list(fit.crop) == value["crop_offset_xy"], size
        assert fit.aspect_error == pytest.approx(value["ar_error"], abs=1e-6, rel=1e-6)
        assert padding_box(size, fit.bucket) == pytest.approx(value["crop_ltrb"], abs=1e-5)


@pytest.mark.parametrize(("inputs", "expected"), cases("batch_count"))
def test_batches_per_bucket(inputs, expected):
    buckets = buckets_of(inputs)
    counts: dict[str, int] = {}
    for size in inputs["sizes"]:
        name = "{}x{}".format(*buckets.fit(tuple(size)).bucket)
        counts[name] = counts.get(name, 0) + inputs["num_repeats"]
    assert counts == expected["images_per_bucket"]
    batches = {name: -(-count // inputs["batch_size"]) for name, count in counts.items()}
    assert batches == expected["batches_per_bucket"]
    assert sum(batches.values()) == expected["total_batches"]


@pytest.mark.parametrize(("inputs", "expected"), cases("reg_image_repeats"))
def test_regularisation_pictures_are_used_as_often_as_training_pictures(inputs, expected):
    folders = list(enumerate(inputs["reg_folders_in_order"]))
    names = [f"reg{at}/r{number}.png" for at, folder in folders for number in range(folder["images"])]
    repeats = [folder["repeats"] for _, folder in folders for _ in range(folder["images"])]
    fitted = fit_repeats(repeats, inputs["train_images"] * inputs["train_repeats"])
    used = {name: count for name, count in zip(names, fitted, strict=True) if count}
    assert used == expected["repeats_of_each_reg_image"]


def test_1050x1080_at_1024():
    fit = Buckets((1024, 1024), smallest=256, largest=2048, step=64, no_upscale=False).fit((1050, 1080))
    assert (fit.bucket, fit.resized, fit.crop) == ((1024, 1024), (1024, 1053), (0, 14))
    assert fit.scale((1050, 1080)) == pytest.approx(1024 / 1050)


@pytest.mark.parametrize("size", [(64, 2048), (2048, 64), (16, 16), (1, 5000)])
def test_extreme_shapes_get_a_bucket_that_they_cover(size):
    fit = Buckets((512, 512), smallest=256, largest=1024, step=64, no_upscale=False).fit(size)
    assert fit.resized[0] >= fit.bucket[0]
    assert fit.resized[1] >= fit.bucket[1]
    assert all(side % 64 == 0 for side in fit.bucket)


def test_without_buckets_all_get_one_size():
    assert fit_exactly((200, 100), (64, 64)).resized == (128, 64)
    assert fit_exactly((200, 100), (64, 64)).crop == (32, 0)
    assert fit_exactly((20, 40), (64, 64)).resized == (64, 128)
