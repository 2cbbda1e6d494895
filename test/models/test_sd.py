"""What SD 1.x and 2.x compute: text, latents, predictions, targets, samples."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from sd_scripts.errors import ConfigError
from sd_scripts.models.base import AdapterTarget
from sd_scripts.models.noise_schedule import NoiseSchedule
from sd_scripts.models.sampling import ALIASES, SAMPLERS, make_scheduler
from sd_scripts.models.sd import SDSettings, StableDiffusion1, join_rows
from test.tiny import tiny_networks


def with_settings(model, **settings):
    return type(model)(model.denoiser, model.vae, model.text_encoders[0], SDSettings(**settings))


@pytest.mark.parametrize("architecture", ["sd1", "sd2"])
def test_text_is_the_encoders_normalised_last_layer(architecture):
    model = tiny_networks(architecture)
    tokens = model.tokenize(["a cat", "a dog in the snow"])
    hidden = model.encode_text(tokens).hidden
    assert hidden.shape == (2, 77, 16)
    encoder = model.text_encoders[0]
    torch.testing.assert_close(hidden, encoder(tokens.ids[0][:, 0]).last_hidden_state)
    assert tokens.ids[0][0, 0, -1] == (49407 if architecture == "sd1" else 0)


def test_clip_skip_is_the_encoder_without_its_last_layers():
    model = tiny_networks("sd1", text_layers=3)
    tokens = model.tokenize(["a cat"])
    skipped = with_settings(model, clip_skip=2).encode_text(tokens).hidden
    same = with_settings(model, clip_skip=1).encode_text(tokens).hidden
    assert torch.equal(same, model.encode_text(tokens).hidden)
    encoder = model.text_encoders[0]
    encoder.encoder.layers = encoder.encoder.layers[:2]
    torch.testing.assert_close(skipped, model.encode_text(tokens).hidden)
    assert (skipped - same).abs().max() > 1e-3


@pytest.mark.parametrize(("length", "n"), [(75, 77), (150, 152), (225, 227)])
def test_long_captions_are_joined(length, n):
    model = with_settings(tiny_networks("sd1"), max_token_length=length)
    hidden = model.encode_text(model.tokenize(["cat " * 300, "a"])).hidden
    assert hidden.shape == (2, n, 16)


def test_rows_are_joined_without_their_inner_marks():
    rows = torch.arange(2 * 3 * 5).view(2, 3, 5, 1)
    joined = join_rows(rows)[..., 0]
    assert joined[0].tolist() == [0, 1, 2, 3, 6, 7, 8, 11, 12, 13, 14]
    assert joined[1].tolist() == [value + 15 for value in joined[0].tolist()]


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("clip_skip", [None, 2])
def test_gradients_reach_every_target_that_acts(checkpointing, clip_skip):
    model = with_settings(tiny_networks("sd1"), clip_skip=clip_skip)
    if checkpointing:
        model.set_gradient_checkpointing(True)
    for network in (model.denoiser, *model.text_encoders):
        network.train()
    assert not model.encode_text(model.tokenize(["a cat"])).hidden.requires_grad  # frozen stays frozen
    for network in (model.denoiser, *model.text_encoders):
        network.requires_grad_(True)
    text = model.encode_text(model.tokenize(["a cat"]))
    noisy = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    model.predict(noisy, torch.tensor([500]), text).square().mean().backward()
    for target in model.adapter_targets():
        unused = clip_skip == 2 and "layers_1" in target.name
        assert (target.modules[0].weight.grad is None) == unused, target.name


def test_checkpointing_changes_no_gradient():
    grads = []
    for enabled in (False, True):
        model = tiny_networks("sd1")
        model.set_gradient_checkpointing(enabled)
        weights = [model.denoiser.conv_in.weight, model.text_encoders[0].encoder.layers[0].mlp.fc1.weight]
        for network, weight in zip((model.denoiser, model.text_encoders[0]), weights, strict=True):
            network.train()
            weight.requires_grad_(True)
        noisy = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0))
        model.predict(noisy, torch.tensor([5]), model.encode_text(model.tokenize(["x"]))).square().sum().backward()
        grads.append([weight.grad for weight in weights])
    for plain, checkpointed in zip(*grads, strict=True):
        torch.testing.assert_close(plain, checkpointed)


def test_latents_are_a_scaled_sample_of_the_posterior():
    model = tiny_networks("sd1")
    pixels = torch.rand(2, 3, 64, 48, generator=torch.Generator().manual_seed(0)) * 2 - 1
    posterior = model.vae.encode(pixels).latent_dist
    latents = model.encode_image(pixels, torch.Generator().manual_seed(5))
    noise = torch.randn(posterior.mean.shape, generator=torch.Generator().manual_seed(5))
    assert latents.shape == (2, 4, 8, 6)
    torch.testing.assert_close(latents, (posterior.mean + posterior.std * noise) * 0.18215)
    torch.testing.assert_close(model.encode_image(pixels), posterior.mean * 0.18215)
    decoded = model.decode_latents(latents)
    assert decoded.shape == pixels.shape
    torch.testing.assert_close(decoded, model.vae.decode(latents / 0.18215).sample.clamp(-1, 1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_networks_take_float32_and_give_pictures_in_float32(dtype):
    model = tiny_networks("sd1")
    for network in (model.denoiser, model.vae, *model.text_encoders):
        network.to(dtype)
    text = model.encode_text(model.tokenize(["a cat"]))
    latents = model.encode_image(torch.zeros(1, 3, 64, 64), torch.Generator().manual_seed(0))
    assert latents.dtype == dtype
    assert model.predict(latents.float(), torch.tensor([3]), text).dtype == dtype
    decoded = model.decode_latents(latents.float())
    assert decoded.dtype == torch.float32
    assert decoded.isfinite().all()


@pytest.mark.parametrize("architecture", ["sd1", "sd2"])
def test_targets_are_modules_of_the_networks(architecture):
    model = tiny_networks(architecture, levels=4, layers=2)
    targets = list(model.adapter_targets())
    assert sum(t.part == "unet" and not t.needs_conv_dim for t in targets) == 192
    assert sum(t.part == "unet" for t in targets) == 278
    for target in targets:
        assert isinstance(target, AdapterTarget)
        (module,) = target.modules
        network = model.denoiser if target.part == "unet" else model.text_encoders[0]
        prefix = "lora_unet_" if target.part == "unet" else "lora_te_text_model_"
        names = {prefix + name.replace(".", "_"): found for name, found in network.named_modules()}
        assert names[target.name] is module
        is_conv3x3 = isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3)
        assert target.is_conv3x3 == is_conv3x3
        assert target.needs_conv_dim == ("attentions" not in target.name and target.part == "unet")


def draw(model, **changed):
    settings = {"width": 64, "height": 72, "steps": 3, "scale": 5.0, "seed": 11, **changed}
    return np.asarray(model.sample("a cat", "dog", **settings))


def test_a_sample_depends_on_its_seed_alone_and_leaves_no_trace():
    model = tiny_networks("sd1")
    model.denoiser.train()
    model.vae.encoder.train()
    modes = [m.training for network in (model.denoiser, model.vae) for m in network.modules()]
    torch.manual_seed(1)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    first = draw(model)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]
    assert [m.training for network in (model.denoiser, model.vae) for m in network.modules()] == modes
    torch.manual_seed(2)
    assert first.shape == (72, 64, 3)
    assert np.array_equal(first, draw(model))
    assert not np.array_equal(first, draw(model, seed=12))
    assert not np.array_equal(first, draw(model, scale=1.0))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_repeats_itself(sampler):
    model = tiny_networks("sd1")
    first = draw(model, sampler=sampler)
    assert np.array_equal(first, draw(model, sampler=sampler))
    assert first.std() > 0


def test_old_names_of_samplers_mean_the_same():
    schedule = NoiseSchedule.scaled_linear("v")
    for alias, name in ALIASES.items():
        assert make_scheduler(alias, schedule).config == make_scheduler(name, schedule).config


def test_samples_are_those_of_diffusers(models):
    from diffusers import StableDiffusionPipeline

    model = tiny_networks("sd1")
    pipeline = StableDiffusionPipeline.from_pretrained(str(models["sd1", ""]), local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    generator = torch.Generator().manual_seed(11)
    expected = pipeline(
        "a cat",
        negative_prompt="dog",
        width=64,
        height=72,
        num_inference_steps=3,
        guidance_scale=5.0,
        generator=generator,
    ).images[0]
    assert np.abs(draw(model).astype(int) - np.asarray(expected).astype(int)).max() <= 1


class Exact(nn.Module):
    """A denoiser that knows the picture: what it predicts leads any sampler straight to it."""

    def __init__(self, latents, schedule):
        super().__init__()
        self.latents = latents
        self.schedule = schedule
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, noisy, timesteps, text, return_dict=True):
        alpha_bar = self.schedule.alphas_cumprod[timesteps.long()].view(-1, 1, 1, 1)
        noise = (noisy - alpha_bar.sqrt() * self.latents) / (1 - alpha_bar).sqrt()
        if self.schedule.prediction == "epsilon":
            return (noise,)
        return (alpha_bar.sqrt() * noise - (1 - alpha_bar).sqrt() * self.latents,)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("prediction", ["epsilon", "v"])
def test_a_perfect_denoiser_is_followed_to_its_picture(sampler, prediction):
    model = with_settings(tiny_networks("sd1"), v_parameterization=prediction == "v")
    latents = torch.randn(1, 4, 9, 8, generator=torch.Generator().manual_seed(3))
    expected = ((model.decode_latents(latents)[0] + 1) * 127.5).permute(1, 2, 0).detach().numpy()
    model.denoiser = Exact(latents, model.schedule)
    drawn = draw(model, sampler=sampler, steps=20).astype(float)
    assert np.abs(drawn - expected).mean() < 2


def test_a_zero_terminal_snr_model_starts_from_pure_noise():
    schedule = NoiseSchedule.scaled_linear("v").with_zero_terminal_snr()
    scheduler = make_scheduler("ddim", schedule)
    scheduler.set_timesteps(10)
    assert scheduler.timesteps[0] == 999
    torch.testing.assert_close(scheduler.alphas_cumprod, schedule.alphas_cumprod, rtol=1e-4, atol=1e-6)


def test_an_unknown_sampler_is_refused():
    with pytest.raises(ConfigError, match="sample_sampler = 'eulr': choose one of ddim"):
        draw(tiny_networks("sd1"), sampler="eulr")


def test_a_size_that_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match=r"100x64.*multiples of 8"):
        draw(tiny_networks("sd1"), width=100, height=64)


def test_v_prediction_is_an_explicit_choice():
    model = tiny_networks("sd2")
    assert model.schedule.prediction == "epsilon"
    assert with_settings(model, v_parameterization=True).schedule.prediction == "v"
    assert isinstance(tiny_networks("sd1"), StableDiffusion1)
