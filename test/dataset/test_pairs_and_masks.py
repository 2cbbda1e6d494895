"""Guiding pictures and masks: which belongs to which picture, and that they are seen as the picture is."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from sd_scripts.data.batch_maker import BatchKey, BatchMaker
from sd_scripts.data.pictures import load_picture
from sd_scripts.data.plan import plan_data
from sd_scripts.options.dataset import DatasetOptions
from sd_scripts.training.objective import masked as apply_mask

SMALL = {"resolution": "64", "min_bucket_reso": 32, "max_bucket_reso": 128, "bucket_reso_steps": 8}


def texts(plan, level: str) -> str:
    return "\n".join(str(problem) for problem in plan.problems if problem.level == level)


@pytest.fixture
def guided(tmp_path, picture):
    """Plans train/x with guiding pictures in guides/, as a ControlNet trainer does."""
    picture("x/a.png", (64, 96))
    picture("x/b.jpg")
    (tmp_path / "train" / "guides").mkdir()

    def make(**options):
        folders = {"train_data_dir": str(tmp_path / "train" / "x")}
        folders["conditioning_data_dir"] = str(tmp_path / "train" / "guides")
        return plan_data(DatasetOptions(**(folders | SMALL | options)), divisor=8, seed=1, has_guides=True)

    return make


def test_each_picture_gets_its_guide_by_name(picture, guided):
    first, second = picture("guides/a.jpg"), picture("guides/b.png")
    made = guided()
    assert not texts(made, "error")
    assert [sample.control for sample in made.samples] == [first, second]
    assert made.summary()["folders"][0]["controls"] == 2
    assert made.samples[0].repeats == 1


def test_missing_surplus_and_double_guides_are_named(picture, guided):
    for name in ("a.jpg", "a.png", "c.png"):
        picture(f"guides/{name}")
    message = texts(guided(), "error")
    assert "1 picture without a guiding one" in message and "b.jpg" in message
    assert "1 guiding picture" in message and "c.png" in message
    assert "a.jpg and a.png" in message and "same picture" in message


def test_a_guide_that_cannot_be_read_is_named(picture, guided):
    picture("guides/a.png")
    picture("guides/b.png").write_bytes(b"")
    message = texts(guided(), "error")
    assert "guides/b.png is empty" in message.replace("\\", "/")


def test_pictures_whose_guide_cannot_be_read_are_left_out_on_request(picture, guided):
    picture("guides/a.png")
    picture("guides/b.png").write_bytes(b"")
    made = guided(on_bad_image="skip")
    assert [sample.path.name for sample in made.samples] == ["a.png"]
    assert not texts(made, "error")


def test_no_folder_of_guides_is_an_error(tmp_path, guided):
    assert "conditioning_data_dir" in texts(guided(conditioning_data_dir=None), "error")
    assert "is no folder" in texts(guided(conditioning_data_dir=str(tmp_path / "gone")), "error")


def test_random_cuts_are_refused_with_guides(picture, guided):
    picture("guides/a.png"), picture("guides/b.png")
    assert "random_crop" in texts(guided(random_crop=True, cache_latents=False), "error")


def test_guides_in_folders_with_repeats(tmp_path, picture):
    picture("3_cat/a.png")
    path = picture("../guides/3_cat/a.png")
    options = DatasetOptions(
        train_data_dir=str(tmp_path / "train"), conditioning_data_dir=str(tmp_path / "guides"), **SMALL
    )
    made = plan_data(options, divisor=8, seed=1, has_guides=True)
    assert [(sample.control.resolve(), sample.repeats) for sample in made.samples] == [(path.resolve(), 3)]


# Masks


@pytest.fixture
def masked(tmp_path, picture):
    """Plans train/ with masks in masks/."""

    def make(**options):
        folders = {"train_data_dir": str(tmp_path / "train"), "conditioning_data_dir": str(tmp_path / "masks")}
        given = {"masked_loss": True, "cache_latents": False, **folders, **SMALL, **options}
        return plan_data(DatasetOptions(**given), divisor=8, seed=1)

    return make


def write_mask(tmp_path, name: str, values: np.ndarray, **save) -> None:
    path = tmp_path / "masks" / name
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(values.astype(np.uint8)).save(path, **save)


def test_masks_found_and_missing_are_counted(tmp_path, picture, masked):
    for name in "abc":
        picture(f"1_cat/{name}.png")
    for name in ("a.png", "z.png"):
        write_mask(tmp_path, name, np.zeros((64, 64)))
    made = masked()
    assert made.summary()["folders"][0]["masks"] == 1
    assert "2 pictures without a mask" in texts(made, "warning") and "b.png, c.png" in texts(made, "warning")
    assert "z.png" in texts(made, "warning")
    assert any("1 mask" in line for line in made.lines())


def test_no_mask_at_all_is_an_error(tmp_path, picture, masked):
    picture("1_cat/a.png")
    write_mask(tmp_path, "other.png", np.zeros((64, 64)))
    assert "no mask for any picture" in texts(masked(), "error")


def test_masks_without_masked_loss_are_said_to_have_no_effect(tmp_path, picture, masked):
    picture("1_cat/a.png")
    write_mask(tmp_path, "a.png", np.zeros((64, 64)))
    made = masked(masked_loss=False)
    assert made.samples[0].mask is None
    assert "set masked_loss = true" in texts(made, "warning")


def test_a_mask_file_wins_over_transparency(tmp_path, picture, masked):
    path = picture("1_cat/a.png")
    Image.new("RGBA", (64, 64), (1, 2, 3, 100)).save(path)
    assert masked(conditioning_data_dir=None, masked_loss=False, alpha_mask=True).samples[0].mask == "alpha"
    write_mask(tmp_path, "a.png", np.full((64, 64), 255))
    made = masked(alpha_mask=True)
    assert made.samples[0].mask == tmp_path / "masks" / "a.png"
    assert (load_picture(made.samples[0], made.subsets[0].options).mask == 255).all()


@pytest.mark.parametrize("scale", [1, 2, 3])
@pytest.mark.parametrize("size", [(96, 64), (64, 96), (128, 128)])
def test_a_mask_of_any_size_lies_on_its_picture(tmp_path, picture, masked, size, scale):
    """The mask marks the bright part of the picture; after scaling, cutting and flipping it still does."""
    width, height = size
    bright = np.zeros((height, width), bool)
    bright[: height // 2, width // 2 :] = True
    path = picture("1_cat/a.png", size)
    Image.fromarray(np.where(bright[..., None], 230, 20).repeat(3, 2).astype(np.uint8)).save(path)
    mask = np.where(bright, 255, 0).repeat(scale, 0).repeat(scale, 1)
    write_mask(tmp_path, "a.png", mask)
    made = masked(resolution="48", flip_aug=True, random_crop=True)
    maker = BatchMaker(made, None, None, seed=3, total_steps=1)
    flips = set()
    for epoch in range(12):
        batch = maker.make(BatchKey(epoch, 0, ((0, 0),))).batch
        pixels, weights = batch.pixels[0].float().mean(0), batch.masks[0, 0]
        assert weights.shape == pixels.shape == made.samples[0].bucket[::-1]
        differs = (pixels > 125) != (weights > 0.5)
        assert differs.float().mean() < 0.04
        flips.add(bool(weights[0, 0] > 0.5))
    assert flips == {False, True}


def test_a_mask_follows_the_orientation(tmp_path, picture, masked):
    path = picture("1_cat/a.jpg", (96, 64))
    exif = Image.Exif()
    exif[274] = 6
    Image.new("RGB", (96, 64)).save(path, exif=exif)
    values = np.zeros((64, 96))
    values[:, :48] = 255  # left as stored: on top when upright
    write_mask(tmp_path, "a.jpg", values, exif=exif, quality=95)
    made = masked()
    mask = load_picture(made.samples[0], made.subsets[0].options).mask
    assert mask.shape[0] > mask.shape[1]
    assert (mask[: mask.shape[0] // 2 - 4] > 240).all() and (mask[mask.shape[0] // 2 + 4 :] < 15).all()


def masked_gradient(masks: torch.Tensor | None) -> tuple[float, torch.Tensor]:
    """Loss of a prediction, and its gradient."""
    draws = torch.Generator().manual_seed(0)
    prediction = torch.randn(1, 4, 8, 8, generator=draws, requires_grad=True)
    elements = (prediction - torch.randn(1, 4, 8, 8, generator=draws)) ** 2
    loss = (elements if masks is None else apply_mask(elements, masks)).mean()
    loss.backward()
    return loss.item(), prediction.grad


def test_the_masked_area_does_not_change_the_gradient(tmp_path, picture, masked):
    picture("1_cat/a.png")
    values = np.zeros((64, 64))
    values[:, 32:] = 255
    write_mask(tmp_path, "a.png", values)
    batch = BatchMaker(masked(), None, None, seed=0, total_steps=1).make(BatchKey(0, 0, ((0, 0),))).batch
    _, whole = masked_gradient(None)
    _, gradient = masked_gradient(batch.masks)
    assert torch.equal(gradient[..., :4], torch.zeros_like(gradient[..., :4]))
    torch.testing.assert_close(gradient[..., 4:], whole[..., 4:])


@pytest.mark.parametrize("value", [0, 255])
def test_black_masks_give_no_loss_and_white_ones_change_nothing(tmp_path, picture, masked, value):
    picture("1_cat/a.png")
    write_mask(tmp_path, "a.png", np.full((30, 30, 3), value))
    batch = BatchMaker(masked(), None, None, seed=0, total_steps=1).make(BatchKey(0, 0, ((0, 0),))).batch
    loss, _ = masked_gradient(batch.masks)
    assert loss == (0 if value == 0 else pytest.approx(masked_gradient(None)[0]))


def test_masks_in_a_dataset_file(tmp_path, picture):
    path = picture("x/a.png")
    write_mask(tmp_path, "a.png", np.zeros((64, 64)))
    subset = {"image_dir": str(path.parent), "conditioning_data_dir": str(tmp_path / "masks")}
    (tmp_path / "data.json").write_text(json.dumps({"datasets": [{"subsets": [subset]}]}), encoding="utf-8")
    options = DatasetOptions(dataset_config=str(tmp_path / "data.json"), masked_loss=True, **SMALL)
    made = plan_data(options, divisor=8, seed=0)
    assert not texts(made, "error")
    assert made.samples[0].mask == tmp_path / "masks" / "a.png"
