"""Whole runs of both SDXL trainers on a tiny model: what is trained, written, read again, and that caches change nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sd_scripts.entry import train
from sd_scripts.models.detect import inspect
from sd_scripts.options.build import build
from sd_scripts.options.recipes import RECIPES
from sd_scripts.plan import make_plan
from sd_scripts.training.events import read_events
from sd_scripts.training.run_folder import RunFolder

LORA, FULL = RECIPES["sdxl_train_network"], RECIPES["sdxl_train"]
UNET, VAE = "model.diffusion_model.", "first_stage_model."
TE1, TE2 = "conditioner.embedders.0.", "conditioner.embedders.1."
PARTS = (UNET, VAE, TE1, TE2)


@pytest.fixture(scope="module")
def tiny_sdxl(tmp_path_factory) -> Path:
    from test.tiny import tiny_model

    return tiny_model("sdxl", tmp_path_factory.mktemp("models") / "tiny.safetensors")


@pytest.fixture
def settings(tmp_path, tiny_sdxl, pictures) -> dict:
    return {
        "pretrained_model_name_or_path": str(tiny_sdxl),
        "train_data_dir": str(pictures),
        "output_dir": str(tmp_path / "out"),
        "output_name": "xl",
        "resolution": "64",
        "min_bucket_reso": 64,
        "train_batch_size": 4,
        "max_train_steps": 2,
        "learning_rate": 1e-3,
        "seed": 3,
        "log_with": "none",
    }


def run(recipe, settings: dict, **changes) -> tuple[Path, list[dict]]:
    options = build(recipe.options, settings | changes)
    assert train(recipe, options) == 0
    output = Path(options.output_dir)
    folder = max((output / "runs").iterdir())
    return output / "xl.safetensors", read_events(RunFolder(folder).events)[0]


def losses(events: list[dict]) -> list[float]:
    return [event["loss"] for event in events if event["type"] == "step"]


def changed_parts(before: Path, after: Path) -> set[str]:
    first, second = load_file(before), load_file(after)
    assert first.keys() == second.keys()
    return {part for part in PARTS if any(not torch.equal(first[k], second[k]) for k in first if k.startswith(part))}


def test_a_lora_is_written_under_the_names_of_the_field(settings):
    path, events = run(LORA, settings, network_dim=2, text_encoder_lr=[2e-3, 5e-4])
    tensors = load_file(path)
    starts = {key.split("_")[1] for key in tensors}
    assert starts == {"te1", "te2", "unet"}
    assert "lora_unet_input_blocks_3_1_transformer_blocks_0_attn1_to_q.lora_down.weight" in tensors
    steps = [event for event in events if event["type"] == "step"]
    assert steps[0]["lr"] == {"te1": 2e-3, "te2": 5e-4, "unet": 1e-3}
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert metadata["ss_base_model_version"] == "sdxl_base_v1-0"
    assert metadata["modelspec.architecture"] == "stable-diffusion-xl-v1-base/lora"
    assert metadata["modelspec.implementation"] == "https://github.com/Stability-AI/generative-models"
    assert metadata["modelspec.prediction_type"] == "epsilon"
    # te1's last layer is behind the one that is used: everything else has learnt
    silent = {key.split(".")[0] for key, t in tensors.items() if key.endswith("up.weight") and not t.any()}
    assert silent and all(name.startswith("lora_te1_text_model_encoder_layers_1_") for name in silent)


def test_a_lora_goes_on_from_its_file_and_from_its_state(settings, tmp_path):
    whole, _ = run(LORA, settings, network_dim=2, max_train_steps=4)
    run(
        LORA,
        settings,
        network_dim=2,
        max_train_steps=4,
        output_dir=str(tmp_path / "a"),
        save_every_n_steps=2,
        save_state=True,
    )
    state = tmp_path / "a" / "xl-step00000002-state"
    again, _ = run(LORA, settings, network_dim=2, max_train_steps=4, output_dir=str(tmp_path / "b"), resume=str(state))
    first, second = load_file(whole), load_file(again)
    assert all(torch.equal(first[key], second[key]) for key in first)
    given = {"network_weights": str(whole), "dim_from_weights": True, "learning_rate": 0.0, "unet_lr": 1e-12}
    kept, _ = run(LORA, settings, **given, output_dir=str(tmp_path / "c"))
    third = load_file(kept)
    assert third.keys() == first.keys()
    assert all(torch.allclose(first[key], third[key], atol=1e-6) for key in first)


def test_caches_masks_and_workers_change_nothing(settings, tmp_path, pictures):
    from PIL import Image

    masks = tmp_path / "masks"
    masks.mkdir()
    for picture in pictures.rglob("*.png"):
        mask = Image.new("L", Image.open(picture).size, 255)
        mask.paste(0, (0, 0, 32, 64))
        mask.save(masks / picture.name)
    found = {}
    for has_mask in (False, True):
        for latents in KINDS:
            for texts in KINDS:
                changes = cached(latents, texts) | (
                    {"masked_loss": True, "conditioning_data_dir": str(masks)} if has_mask else {}
                )
                changes |= {"max_data_loader_n_workers": 2 if (latents, texts) == ("disk", "disk") else 0}
                name = f"{has_mask}-{latents}-{texts}"
                _, events = run(
                    LORA,
                    settings,
                    network_train_unet_only=True,
                    max_train_steps=1,
                    output_dir=str(tmp_path / name),
                    **changes,
                )
                found[has_mask, latents, texts] = losses(events)[0]  # later ones differ: a cached latent is drawn once
    for (has_mask, _, _), values in found.items():
        assert values == pytest.approx(found[has_mask, "none", "none"], rel=2e-3)  # latents are kept in half precision
    assert found[True, "none", "none"] != pytest.approx(found[False, "none", "none"], rel=2e-3)


KINDS = {
    "none": {"cache_{}": False},
    "memory": {"cache_{}": True},
    "disk": {"cache_{}": True, "cache_{}_to_disk": True},
}


def cached(latents: str, texts: str) -> dict:
    return {name.format("latents"): value for name, value in KINDS[latents].items()} | {
        name.format("text_encoder_outputs"): value for name, value in KINDS[texts].items()
    }


@pytest.mark.parametrize(
    ("changes", "trained"),
    [
        ({}, {UNET}),
        ({"train_text_encoder": True}, {UNET, TE1, TE2}),
        ({"train_text_encoder": True, "learning_rate_te1": 0}, {UNET, TE2}),
        ({"train_text_encoder": True, "learning_rate_te2": 0, "learning_rate": 0, "learning_rate_te1": 1e-3}, {TE1}),
    ],
)
def test_what_is_trained_changes_and_the_rest_stays(settings, tiny_sdxl, changes, trained):
    path, events = run(FULL, settings, **changes)
    assert changed_parts(tiny_sdxl, path) == trained
    names = {UNET: "unet", TE1: "te1", TE2: "te2"}
    steps = [event for event in events if event["type"] == "step"]
    assert set(steps[0]["lr"]) == {names[part] for part in trained}
    assert inspect(path).architecture == "sdxl"
    with safe_open(path, "pt") as file:
        assert file.metadata()["modelspec.architecture"] == "stable-diffusion-xl-v1-base"


def test_blocks_have_their_own_rates(settings, tiny_sdxl):
    rates = [0.0] * 23
    rates[1], rates[10], rates[22] = 1e-3, 2e-3, 3e-3  # the first convolution, the first middle block, the last layer
    path, events = run(FULL, settings, block_lr=",".join(map(str, rates)))
    first, second = load_file(tiny_sdxl), load_file(path)
    changed = {key.removeprefix(UNET) for key in first if not torch.equal(first[key], second[key])}
    assert changed == {
        key.removeprefix(UNET)
        for key in first
        if key.startswith(tuple(UNET + start for start in ("input_blocks.0.", "middle_block.0.", "out.")))
    }
    steps = [event for event in events if event["type"] == "step"]
    assert steps[0]["lr"] == {"unet block 1": 1e-3, "unet block 10": 2e-3, "unet block 22": 3e-3}


@pytest.mark.parametrize("form", ["diffusers", "diffusers_safetensors"])
def test_a_diffusers_folder_is_written(settings, form):
    run(FULL, settings, save_model_as=form, save_precision="fp16", save_every_n_steps=1)
    for name in ("xl", "xl-step00000001"):
        info = inspect(Path(settings["output_dir"]) / name)
        assert (info.architecture, info.format) == ("sdxl", "diffusers")
        assert {tensor.dtype for tensor in info.tensors.values()} == {"F16"}


def test_resumed_equals_unbroken(settings, tmp_path):
    given = {"train_text_encoder": True, "max_train_steps": 3}
    whole, _ = run(FULL, settings, **given)
    run(FULL, settings, **given, output_dir=str(tmp_path / "a"), save_every_n_steps=2, save_state=True)
    state = tmp_path / "a" / "xl-step00000002-state"
    again, _ = run(FULL, settings, **given, output_dir=str(tmp_path / "b"), resume=str(state))
    first, second = load_file(whole), load_file(again)
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_model_that_says_so_is_trained_on_velocity(settings, tiny_sdxl, tmp_path):
    marked = tmp_path / "v.safetensors"
    save_file(load_file(tiny_sdxl) | {"v_pred": torch.empty(0), "ztsnr": torch.empty(0)}, marked)
    told = {"pretrained_model_name_or_path": str(marked)}
    path, events = run(FULL, settings, **told)
    assert {"v_pred", "ztsnr"} <= load_file(path).keys()
    _, same = run(FULL, settings, v_parameterization=True, zero_terminal_snr=True, output_dir=str(tmp_path / "b"))
    _, other = run(FULL, settings, output_dir=str(tmp_path / "c"))
    assert losses(events)[0] == losses(same)[0] != losses(other)[0]
    plan = make_plan(FULL, build(FULL.options, settings | told))
    assert any("says that it predicts velocity" in problem.message for problem in plan.problems)


def test_ranks_and_rates_by_block(settings):
    args = [
        "block_dims=" + ",".join(["2"] * 10 + ["0"] * 3 + ["4"] * 9 + ["0"]),
        "down_lr_weight=0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5",
        "up_lr_weight=linear",
    ]
    path, events = run(LORA, settings, network_args=args, network_train_unet_only=True)
    tensors = load_file(path)
    ranks = {key.split("_")[2]: t.shape[0] for key, t in tensors.items() if key.endswith("lora_down.weight")}
    assert ranks == {"input": 2, "output": 4}
    rates = next(event["lr"] for event in events if event["type"] == "step")
    assert all(rate == pytest.approx(5e-4) for name, rate in rates.items() if int(name.split()[-1]) < 10)
    # the first up block has weight 0 and is left out
    assert "unet block 13" not in rates and not any("output_blocks_0_" in key for key in tensors)


def test_the_plan_counts_what_is_trained(settings):
    plan = make_plan(LORA, build(LORA.options, settings | {"network_dim": 2}))
    assert not plan.errors
    assert [(part.part, part.label) for part in plan.trained] == [
        ("te1", "text encoder 1"), ("te2", "text encoder 2"), ("unet", "U-Net")
    ]  # fmt: skip
    _, _ = run(LORA, settings, network_dim=2)
    written = json.loads(
        (max((Path(settings["output_dir"]) / "runs").iterdir()) / "plan.json").read_text(encoding="utf-8")
    )
    counted = sum(part["parameters"] for part in written["trained"])
    tensors = load_file(Path(settings["output_dir"]) / "xl.safetensors")
    assert counted == sum(t.numel() for key, t in tensors.items() if not key.endswith("alpha"))


def test_samples_are_drawn(settings, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a thing --w 64 --h 96 --s 2 --d 1 --l 5 --n bad\n", encoding="utf-8")
    run(LORA, settings, sample_prompts=str(prompts), sample_every_n_steps=2, sample_sampler="euler_a")
    (picture,) = (tmp_path / "out" / "sample").iterdir()
    from PIL import Image

    assert Image.open(picture).size == (64, 96)


def test_half_precision(settings):
    path, events = run(LORA, settings, mixed_precision="bf16", full_bf16=True, network_dim=2, save_precision="bf16")
    assert all(loss > 0 for loss in losses(events))
    assert {t.dtype for t in load_file(path).values()} == {torch.bfloat16}


@pytest.mark.slow
def test_one_picture_is_learnt_by_heart(settings, tmp_path):
    """A network that starts from nothing, with the demo model's VAE, which was really trained."""
    from PIL import Image

    from test.tiny import tiny_model

    picture = Image.new("RGB", (64, 64), (220, 40, 30))
    picture.paste((20, 60, 200), (0, 0, 32, 64))
    folder = tmp_path / "one" / "40_thing"
    folder.mkdir(parents=True)
    picture.save(folder / "a.png")
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("thing --w 64 --h 64 --s 10 --l 1 --d 1\n", encoding="utf-8")
    settings |= {
        "pretrained_model_name_or_path": str(tiny_model("sdxl", tmp_path / "m.safetensors", layers=2)),
        "vae": str(next((Path(__file__).parents[2] / "models" / "demo").glob("*.safetensors"))),
        "train_data_dir": str(folder.parent), "train_batch_size": 8, "max_train_steps": 200, "learning_rate": 6e-3,
        "lr_scheduler": "linear", "max_grad_norm": 0.0, "v_parameterization": True, "seed": 1,
        "cache_text_encoder_outputs": True, "sample_prompts": str(prompts), "sample_sampler": "euler",
        "sample_at_first": True, "sample_every_n_steps": 200,
    }  # fmt: skip
    _, events = run(FULL, settings)
    found = losses(events)
    assert sum(found[-10:]) < 0.7 * sum(found[:10])
    after, before = sorted((tmp_path / "out" / "sample").iterdir())  # xl_000200 comes before xl_e000000
    assert decibels(after, picture) > decibels(before, picture) + 4


def decibels(path: Path, picture) -> float:
    """How near a file comes to a picture: peak signal-to-noise ratio, dB."""
    import numpy as np
    from PIL import Image

    difference = np.asarray(Image.open(path).convert("RGB"), float) - np.asarray(picture, float)
    return 10 * np.log10(255**2 / (difference**2).mean())
