"""Runs with cached captions: the same losses as without, the text encoder gone, and what cannot be cached refused."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

from sd_scripts.entry import train
from sd_scripts.errors import UserError
from sd_scripts.options.build import build
from sd_scripts.options.recipes import RECIPES
from sd_scripts.training.events import read_events
from sd_scripts.training.run_folder import RunFolder

TEXT = {
    "none": {},
    "memory": {"cache_text_encoder_outputs": True},
    "disk": {"cache_text_encoder_outputs_to_disk": True, "text_encoder_batch_size": 3},
}
LATENTS = {
    "none": {"cache_latents": False},
    "memory": {"cache_latents": True},
    "disk": {"cache_latents_to_disk": True, "compress_cache": True},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A tiny model whose VAE draws no noise, so that a picture encoded twice is the same."""
    from test.tiny import tiny_networks

    networks = tiny_networks("sd1")
    with torch.no_grad():
        networks.vae.quant_conv.weight[4:] = 0
        networks.vae.quant_conv.bias[4:] = -60
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    networks.save(path, None, {})
    return path


@pytest.fixture
def settings(tmp_path, model, pictures) -> dict:
    return {
        "pretrained_model_name_or_path": str(model),
        "train_data_dir": str(pictures),
        "output_dir": str(tmp_path / "out"),
        "resolution": "64",
        "min_bucket_reso": 64,
        "train_batch_size": 2,
        "max_train_steps": 6,
        "network_dim": 2,
        "network_train_unet_only": True,
        "learning_rate": 1e-3,
        "seed": 7,
        "log_with": "none",
        "no_half_vae": True,  # so that cached latents are exact
    }


def run(settings: dict, script: str = "train_network", **changes) -> tuple[list[dict], dict]:
    """Losses and rates of every step, and all events by kind."""
    recipe = RECIPES[script]
    known = {name: value for name, value in (settings | changes).items() if name in recipe.options.model_fields}
    options = build(recipe.options, known)
    assert train(recipe, options) == 0
    folder = max((Path(options.output_dir) / "runs").iterdir())
    events = read_events(RunFolder(folder).events)[0]
    return [event["loss"] for event in events if event["type"] == "step"], events


@pytest.fixture
def plain(settings) -> list[float]:
    """Losses without any cache."""
    return run(settings, **LATENTS["none"])[0]


@pytest.mark.parametrize("latents", LATENTS)
@pytest.mark.parametrize("text", TEXT)
def test_losses_are_those_of_an_uncached_run(settings, plain, latents, text):
    for _ in range(2):  # filling the cache, and reading it
        losses, events = run(settings, **LATENTS[latents], **TEXT[text])
        assert losses == pytest.approx(plain, rel=1e-5)
    phases = {event["phase"] for event in events if event["type"] == "phase"}
    assert ("caching captions" in phases) == (text != "none")


def test_half_precision_latents_change_the_loss_by_little(settings, plain):
    losses, _ = run(settings, no_half_vae=False)
    assert losses == pytest.approx(plain, rel=1e-3)


@pytest.mark.parametrize(
    "changes",
    [{"caption_dropout_rate": 0.5}, {"caption_dropout_every_n_epochs": 2, "max_train_steps": 16}, {"clip_skip": 2},
     {"max_token_length": 150}, {"mixed_precision": "bf16"}, {"caption_prefix": "a picture of"},
     {"gradient_checkpointing": True}, {"max_data_loader_n_workers": 2}],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
@pytest.mark.parametrize("text", ["memory", "disk"])
def test_options_that_act_on_captions_act_the_same(settings, changes, text):
    without, _ = run(settings, **changes)
    losses, _ = run(settings, **changes, **TEXT[text])
    assert losses == pytest.approx(without, rel=1e-5)


@pytest.mark.parametrize(
    "changes", [{}, {"mixed_precision": "bf16"}, {"mixed_precision": "bf16", "full_bf16": True}], ids=str
)
def test_the_whole_model_trains_with_cached_captions_and_is_saved_whole(settings, tmp_path, changes):
    from safetensors.torch import load_file

    without, _ = run(settings, "fine_tune", **changes, output_name="a")
    losses, _ = run(settings, "fine_tune", **changes, **TEXT["memory"], output_name="b")
    assert losses == pytest.approx(without, rel=1e-5)
    a, b = (load_file(tmp_path / "out" / f"{name}.safetensors") for name in "ab")
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a if key.startswith("cond_stage_model"))


def test_sample_pictures_are_the_same(settings, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text(
        "a thing --n blurry --w 64 --h 64 --s 2 --d 1\nanother --l 1 --w 64 --h 64 --s 2 --d 2\n", encoding="utf-8"
    )
    drawn = []
    for name in ("none", "memory", "disk"):
        _, events = run(settings, sample_prompts=str(prompts), sample_at_first=True, max_train_steps=1, **TEXT[name])
        assert not [event for event in events if event["type"] == "warning"]
        drawn.append([Path(event["path"]).read_bytes() for event in events if event["type"] == "sample"])
    assert len(drawn[0]) == 2
    assert drawn[0] == drawn[1] == drawn[2]


def test_the_text_encoder_is_freed(settings, monkeypatch):
    from transformers import CLIPTextModel

    from sd_scripts.training import loop, session

    alive: list[int] = []

    def count() -> int:
        gc.collect()
        return sum(isinstance(found, CLIPTextModel) for found in gc.get_objects())

    def fit(run):
        alive.append(count() - before)
        return loop.fit(run)

    before = count()  # other tests may have left some
    monkeypatch.setattr(session, "fit", fit)
    run(settings, max_train_steps=1)
    run(settings, max_train_steps=1, **TEXT["memory"])
    assert alive == [1, 0]


def test_kept_text_adapters_act_on_what_is_cached(settings, tmp_path):
    """A LoRA of the text encoder that is loaded and not trained: the captions are encoded with it."""
    run(settings, network_train_unet_only=False, learning_rate=0.5, max_train_steps=3, output_name="first")
    kept = {
        "network_train_unet_only": False,
        "text_encoder_lr": [0.0],
        "network_weights": str(tmp_path / "out" / "first.safetensors"),
        "learning_rate": 1e-3,
    }
    without, _ = run(settings, **kept)
    for name in ("memory", "disk"):
        losses, _ = run(settings, **kept, **TEXT[name])
        assert losses == pytest.approx(without, rel=1e-5)
    bare, _ = run(settings, **TEXT["disk"])
    assert bare != pytest.approx(without, rel=1e-5)  # nor is the one taken for the other


REFUSED = {
    "shuffle_caption": ({"shuffle_caption": True}, "shuffle_caption"),
    "caption_tag_dropout_rate": ({"caption_tag_dropout_rate": 0.1}, "caption_tag_dropout_rate"),
    "token_warmup_step": ({"token_warmup_step": 5}, "token_warmup_step"),
    "trained text encoder": ({"network_train_unet_only": False}, "text encoder is trained"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("text", ["memory", "disk"])
def test_what_cannot_be_cached_is_refused(settings, name, text):
    changes, words = REFUSED[name]
    with pytest.raises(UserError, match=words):
        run(settings, **changes, **TEXT[text])


def test_a_subset_that_shuffles_is_refused_by_name(settings, pictures, tmp_path):
    dataset = tmp_path / "dataset.toml"
    dataset.write_text(
        f"[[datasets]]\n[[datasets.subsets]]\nimage_dir = {str(pictures / '3_thing')!r}\nshuffle_caption = true\n",
        encoding="utf-8",
    )
    with pytest.raises(UserError, match=r"shuffle_caption: of .*3_thing"):
        run(settings | {"train_data_dir": None}, dataset_config=str(dataset), **TEXT["memory"])
