"""SDXL: files there and back, what diffusers makes of them, predictions and prompts as diffusers has them."""

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sd_scripts.errors import ConfigError, UserError
from sd_scripts.models.detect import inspect, require_architecture
from sd_scripts.models.registry import load_architecture
from sd_scripts.models.sdxl import SDXL
from test.models.conftest import options, read_data
from test.tiny import tiny_networks

CLIP_G = "conditioner.embedders.1.model."
FORMS = [".safetensors", ".ckpt", ""]


def load(path, dtype=None, **changed):
    return load_architecture(options(**changed), inspect(path), "cpu", dtype)


def assert_same_weights(one, other):
    assert one.networks.keys() == other.networks.keys() == {"unet", "vae", "te1", "te2"}
    for part, network in one.networks.items():
        tensors, expected = network.state_dict(), other.networks[part].state_dict()
        assert tensors.keys() == expected.keys()
        assert all(torch.equal(tensors[name], expected[name]) for name in expected)


@pytest.fixture(scope="module")
def pipeline(models):
    from diffusers import StableDiffusionXLPipeline

    return StableDiffusionXLPipeline.from_pretrained(str(models["sdxl", ""]), local_files_only=True)


@pytest.mark.parametrize("suffix", FORMS)
def test_what_is_written_is_read(models, suffix):
    model = load(models["sdxl", suffix])
    assert isinstance(model, SDXL)
    assert_same_weights(model, tiny_networks("sdxl"))
    for network in model.networks.values():
        assert not any(t.is_meta for t in [*network.parameters(), *network.buffers()])
    info = inspect(models["sdxl", suffix])
    assert info.parameters() == {
        part: sum(p.numel() for p in network.parameters()) for part, network in model.networks.items()
    }
    assert (info.plan.unknown, info.plan.dropped) == ((), ())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_files_of_every_precision(models, tmp_path, dtype):
    tiny_networks("sdxl").save(tmp_path / "m.safetensors", dtype, {})
    model = load(tmp_path / "m.safetensors", torch.float32)
    expected = tiny_networks("sdxl").denoiser.conv_in.weight.to(dtype).float()
    assert torch.equal(model.denoiser.conv_in.weight, expected)
    assert {p.dtype for network in model.networks.values() for p in network.parameters()} == {torch.float32}


def test_a_written_file_has_exactly_the_keys_of_a_real_one(tmp_path):
    model = tiny_networks("sdxl", levels=3, layers=2, text_layers=32)
    del model.text_encoders[0].encoder.layers[12:]  # the first one has twelve
    for level, count in ((1, 2), (2, 10)):
        deepen(model.denoiser.down_blocks[level].attentions, count)
        deepen(model.denoiser.up_blocks[2 - level].attentions, count)
    deepen([model.denoiser.mid_block.attentions[0]], 10)
    model.kept["conditioner.embedders.1.model.logit_scale"] = torch.tensor(4.6)
    model.save(tmp_path / "m.safetensors", torch.float16, {"ss_v2": "False"})
    real = read_data("layouts/sdxl.json.gz")
    with safe_open(tmp_path / "m.safetensors", "pt") as file:
        shapes = {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118
        assert file.metadata() == {"ss_v2": "False"}
    assert shapes.keys() == real.keys()
    assert {key: len(shape) for key, shape in shapes.items()} == {key: len(shape) for key, shape in real.items()}


def deepen(attentions, count):
    from copy import deepcopy

    for attention in attentions:
        blocks = attention.transformer_blocks
        while len(blocks) < count:
            blocks.append(deepcopy(blocks[0]))


def test_tensors_that_no_network_uses_come_back(models, tmp_path):
    scale = {CLIP_G + "logit_scale": torch.tensor(4.6)}
    save_file(load_file(models["sdxl", ".safetensors"]) | scale, tmp_path / "m.safetensors")
    load(tmp_path / "m.safetensors").save(tmp_path / "again.safetensors", None, {})
    again = load_file(tmp_path / "again.safetensors")
    assert again.keys() == load_file(tmp_path / "m.safetensors").keys()
    assert torch.equal(again[CLIP_G + "logit_scale"], scale[CLIP_G + "logit_scale"])


def test_the_projection_is_transposed_in_the_file_only(models):
    stored = load_file(models["sdxl", ".safetensors"])[CLIP_G + "text_projection"]
    weight = tiny_networks("sdxl").text_encoders[1].text_projection.weight
    assert torch.equal(stored, weight.T)
    folder = load_file(models["sdxl", ""] / "text_encoder_2" / "model.safetensors")
    assert torch.equal(folder["text_projection.weight"], weight)


def test_diffusers_reads_our_folder(pipeline):
    model = tiny_networks("sdxl")
    ours = {"unet": model.denoiser, "vae": model.vae}
    ours |= {"text_encoder": model.text_encoders[0], "text_encoder_2": model.text_encoders[1]}
    for name, network in ours.items():
        got = getattr(pipeline, name).state_dict()
        assert all(torch.equal(got[n], t) for n, t in network.state_dict().items())
    assert (
        pipeline.tokenizer_2("a cat", padding="max_length").input_ids
        == model.tokenizer(["a cat"]).ids[1][0, 0].tolist()
    )
    assert pipeline.vae.config.scaling_factor == model.latent.scale


@pytest.mark.parametrize(("folder", "part"), [("unet", "unet"), ("vae", "vae")])
def test_diffusers_reads_our_single_file(models, folder, part):
    import diffusers

    cls = {"unet": diffusers.UNet2DConditionModel, "vae": diffusers.AutoencoderKL}[part]
    path, config = str(models["sdxl", ".safetensors"]), str(models["sdxl", ""])
    got = cls.from_single_file(path, config=config, subfolder=folder, local_files_only=True).state_dict()
    assert all(
        torch.equal(got[name], tensor) for name, tensor in tiny_networks("sdxl").networks[part].state_dict().items()
    )


def test_diffusers_converts_the_text_encoders_of_our_single_file(models):
    # its own loading leaves them without weights with transformers 5.24, so its conversion is asked directly
    from diffusers.loaders.single_file_utils import convert_ldm_clip_checkpoint, convert_open_clip_checkpoint

    stored = load_file(models["sdxl", ".safetensors"])
    clip_l, clip_g = tiny_networks("sdxl").text_encoders
    first = convert_ldm_clip_checkpoint(stored, remove_prefix="conditioner.embedders.0.transformer.")
    second = convert_open_clip_checkpoint(clip_g, stored, prefix=CLIP_G)
    for got, expected in ((first, clip_l.state_dict()), (second, clip_g.state_dict())):
        level = "" if got.keys() == expected.keys() else "text_model."
        assert got.keys() == {level + name for name in expected}
        assert all(torch.equal(got[level + name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("prompt", ["", "a photo of a cat", "cat " * 100])
def test_prompts_are_encoded_as_diffusers_does(pipeline, prompt):
    model = tiny_networks("sdxl")
    with torch.no_grad():
        text = model.encode_text(model.tokenize([prompt]))
        hidden, _, pooled, _ = pipeline.encode_prompt(prompt, do_classifier_free_guidance=False, device="cpu")
    assert text.hidden.shape == (1, 77, 32)
    torch.testing.assert_close(text.hidden, hidden)
    torch.testing.assert_close(text.pooled, pooled)


def test_a_picture_is_the_one_that_diffusers_makes(models, pipeline):
    from diffusers import EulerDiscreteScheduler

    from sd_scripts.models.sampling import make_scheduler

    model = load(models["sdxl", ".safetensors"])
    pipeline.scheduler = EulerDiscreteScheduler.from_config(make_scheduler("euler", model.schedule).config)
    noise = torch.randn(1, 4, 8, 12, generator=torch.Generator().manual_seed(7))
    theirs = pipeline(
        "a cat", negative_prompt="a dog", width=96, height=64, num_inference_steps=3, guidance_scale=5.0, latents=noise
    ).images[0]
    ours = model.sample("a cat", "a dog", width=96, height=64, steps=3, scale=5.0, seed=7, sampler="euler")
    difference = torch.tensor(list(ours.tobytes())).float() - torch.tensor(list(theirs.tobytes())).float()
    assert ours.size == (96, 64)
    assert difference.abs().max() <= 1  # of 255


def test_sizes_reach_the_network():
    model = tiny_networks("sdxl")
    noisy, steps = torch.randn(2, 4, 8, 12), torch.tensor([500, 20])
    with torch.no_grad():
        text = model.encode_text(model.tokenize(["a", "b"]))
        whole = torch.tensor([[64, 96, 0, 0, 64, 96]] * 2)
        plain = model.predict(noisy, steps, text)
        assert torch.equal(model.predict(noisy, steps, text, whole), plain)
        cut = model.predict(noisy, steps, text, torch.tensor([[64, 96, 0, 0, 64, 96], [640, 960, 8, 0, 64, 96]]))
    assert torch.allclose(cut[0], plain[0])
    assert not torch.allclose(cut[1], plain[1])


def test_long_captions_are_joined_and_summed_up_by_their_first_row(models):
    model = load(models["sdxl", ".safetensors"], max_token_length=225)
    with torch.no_grad():
        text = model.encode_text(model.tokenize(["cat " * 75 + "dog " * 80]))
        first = tiny_networks("sdxl").encode_text(tiny_networks("sdxl").tokenize(["cat " * 75]))
    assert text.hidden.shape == (1, 2 + 225, 32)
    torch.testing.assert_close(text.pooled, first.pooled)
    torch.testing.assert_close(text.hidden[:, :76], first.hidden[:, :76])


@pytest.mark.parametrize("family", ["sd1", "sdxl"])
def test_emphasis_multiplies_hidden_states(models, family):
    plain = load(models[family, ".safetensors"])
    weighted = load(models[family, ".safetensors"], weighted_captions=True)
    with torch.no_grad():
        expected = plain.encode_text(plain.tokenize(["a red cat"]))
        text = weighted.encode_text(weighted.tokenize(["a (red:1.5) cat"]))
    factors = torch.ones(77)
    factors[2] = 1.5
    torch.testing.assert_close(text.hidden, expected.hidden * factors[None, :, None])
    if family == "sdxl":
        torch.testing.assert_close(text.pooled, expected.pooled)


def test_marks_of_velocity_models_are_read_and_written(models, tmp_path):
    tensors = load_file(models["sdxl", ".safetensors"])
    save_file(tensors | {"v_pred": torch.empty(0), "ztsnr": torch.empty(0)}, tmp_path / "v.safetensors")
    info = inspect(tmp_path / "v.safetensors")
    assert info.predicts_v and not inspect(models["sdxl", ".safetensors"]).predicts_v
    assert info.plan.unknown == ()
    model = load(tmp_path / "v.safetensors")
    assert model.predicts_v
    assert model.schedule.alphas_cumprod[-1] == 0
    model.save(tmp_path / "again.safetensors", None, {})
    assert load_file(tmp_path / "again.safetensors").keys() == load_file(tmp_path / "v.safetensors").keys()
    told = load(models["sdxl", ".safetensors"], v_parameterization=True)
    assert told.predicts_v and told.schedule.alphas_cumprod[-1] > 0


def test_the_vae_does_not_run_in_float16(models):
    model = load(models["sdxl", ".safetensors"], torch.float16)
    assert (model.vae.dtype, model.denoiser.dtype) == (torch.float32, torch.float16)
    assert load(models["sdxl", ".safetensors"], torch.bfloat16).vae.dtype == torch.bfloat16
    assert load(models["sdxl", ".safetensors"], torch.bfloat16, no_half_vae=True).vae.dtype == torch.float32


def test_a_float32_vae_is_not_lowered_by_autocast():
    model = tiny_networks("sdxl")
    pixels = torch.rand(1, 3, 64, 64) * 2 - 1
    with torch.no_grad():
        latents, back = model.encode_image(pixels), model.decode_latents(torch.zeros(1, 4, 8, 8))
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(model.encode_image(pixels), latents)
            assert torch.equal(model.decode_latents(torch.zeros(1, 4, 8, 8)), back)


def test_models_that_are_not_for_text_to_image_are_refused(models, tmp_path):
    tensors = load_file(models["sdxl", ".safetensors"])
    refiner = {
        k.replace("embedders.1.model.", "embedders.0.model."): t for k, t in tensors.items() if "embedders.0" not in k
    }
    save_file(refiner, tmp_path / "refiner.safetensors")
    with pytest.raises(UserError, match="an SDXL refiner, which cannot be trained"):
        require_architecture(inspect(tmp_path / "refiner.safetensors"), ("sdxl",))
    inpainting = tensors | {"model.diffusion_model.input_blocks.0.0.weight": torch.zeros(32, 9, 3, 3)}
    save_file(inpainting, tmp_path / "inpainting.safetensors")
    with pytest.raises(UserError, match=r"inpainting or other special model .9 input channels"):
        require_architecture(inspect(tmp_path / "inpainting.safetensors"), ("sdxl",))
    save_file({k: t for k, t in tensors.items() if "diffusion_model" in k}, tmp_path / "unet.safetensors")
    with pytest.raises(UserError, match="holds no"):
        load(tmp_path / "unet.safetensors", vae=str(models["sdxl", ".safetensors"]))


def test_options_of_other_models(models):
    with pytest.raises(ConfigError, match=r"v2 = True: .*is an SDXL model"):
        load(models["sdxl", ".safetensors"], v2=True)
    with pytest.raises(UserError, match=r"use sdxl_train_network\.py"):
        require_architecture(inspect(models["sdxl", ".safetensors"]), ("sd1", "sd2"))


def test_a_separate_vae(models, tmp_path):
    other = tiny_networks("sdxl", seed=1)
    other.save(tmp_path / "other.safetensors", None, {})
    model = load(models["sdxl", ".safetensors"], vae=str(tmp_path / "other.safetensors"))
    assert torch.equal(model.vae.encoder.conv_in.weight, other.vae.encoder.conv_in.weight)
    assert torch.equal(model.denoiser.conv_in.weight, tiny_networks("sdxl").denoiser.conv_in.weight)


def test_a_folder_in_shards(models, tmp_path):
    import json
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(models["sdxl", ""], folder)
    whole = folder / "unet" / "diffusion_pytorch_model.safetensors"
    tensors = list(load_file(whole).items())
    index = {}
    for number, part in enumerate((tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :])):
        name = f"diffusion_pytorch_model-0000{number + 1}-of-00002.safetensors"
        save_file(dict(part), folder / "unet" / name)
        index |= dict.fromkeys((key for key, _ in part), name)
    whole.unlink()
    text = json.dumps({"weight_map": index})
    (folder / "unet" / "diffusion_pytorch_model.safetensors.index.json").write_text(text, encoding="utf-8")
    assert_same_weights(load(folder), tiny_networks("sdxl"))
    (folder / "unet" / "diffusion_pytorch_model-00002-of-00002.safetensors").unlink()
    with pytest.raises(UserError, match=r"00002-of-00002\.safetensors is missing"):
        load(folder)
