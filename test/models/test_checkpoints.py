"""Reading and writing models: nothing is lost, nothing is left over, and a file is whole or absent."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sd_scripts.errors import ConfigError, UserError
from sd_scripts.models.checkpoints import read_raw, replacing, write_tensors
from sd_scripts.models.detect import inspect
from sd_scripts.models.registry import load_architecture
from test.models.conftest import options, read_data
from test.tiny import tiny_model, tiny_networks


def load(path, dtype=None, **changed):
    return load_architecture(options(**changed), inspect(path), "cpu", dtype)


def networks_of(model):
    return {"unet": model.denoiser, "vae": model.vae, "te1": model.text_encoders[0]}


def assert_same_weights(one, other):
    for network, wanted in zip(networks_of(one).values(), networks_of(other).values(), strict=True):
        tensors, expected = network.state_dict(), wanted.state_dict()
        assert tensors.keys() == expected.keys()
        assert all(torch.equal(tensors[name], expected[name]) for name in expected)


@pytest.mark.parametrize("suffix", [".safetensors", ".ckpt", ""])
@pytest.mark.parametrize("architecture", ["sd1", "sd2"])
def test_what_is_written_is_read(models, architecture, suffix):
    model = load(models[architecture, suffix])
    assert model.name == architecture
    assert_same_weights(model, tiny_networks(architecture))
    assert model.text_encoders[0].embeddings.position_ids.tolist() == [list(range(77))]
    for network in networks_of(model).values():
        assert not network.training
        assert not any(p.requires_grad for p in network.parameters())
        assert not any(t.is_meta for t in [*network.parameters(), *network.buffers()])


@pytest.mark.parametrize("suffix", [".safetensors", ".ckpt", ""])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_are_converted_on_reading_and_on_writing(models, tmp_path, suffix, dtype):
    model = load(models["sd1", suffix], dtype)
    assert {p.dtype for network in networks_of(model).values() for p in network.parameters()} == {dtype}
    expected = tiny_networks("sd1").denoiser.conv_in.weight.to(dtype)
    assert torch.equal(model.denoiser.conv_in.weight, expected)
    path = tmp_path / f"half{suffix}"
    tiny_networks("sd1").save(path, dtype, {})
    assert_same_weights(load(path), model)


def test_no_half_vae_keeps_the_vae_alone_in_float32(models):
    model = load(models["sd1", ".safetensors"], torch.float16, no_half_vae=True)
    assert (model.vae.dtype, model.denoiser.dtype) == (torch.float32, torch.float16)


@pytest.mark.parametrize(("name", "architecture", "sizes"), [("sd15", "sd1", 12), ("sd21", "sd2", 23)])
def test_a_written_file_has_exactly_the_keys_of_a_real_one(tmp_path, name, architecture, sizes):
    path = tmp_path / "m.safetensors"
    model = tiny_networks(architecture, levels=4, layers=2, text_layers=sizes)
    model.save(path, torch.float16, {"ss_v2": "True"})
    real = read_data(f"layouts/{name}.json.gz")
    with safe_open(path, "pt") as file:
        shapes = {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118
        assert file.metadata() == {"ss_v2": "True"}
    assert shapes.keys() == real.keys()
    assert {key: len(shape) for key, shape in shapes.items()} == {key: len(shape) for key, shape in real.items()}


def test_sd2_keeps_its_unused_tensors_or_gets_neutral_ones(tmp_path):
    prefix = "cond_stage_model.model."
    path = tiny_model("sd2", tmp_path / "new.safetensors")
    made = load_file(path)
    blocks = prefix + "transformer.resblocks."
    for name in ("attn.in_proj_weight", "mlp.c_fc.bias", "ln_2.weight"):
        assert torch.equal(made[f"{blocks}2.{name}"], made[f"{blocks}1.{name}"])
    assert torch.equal(made[prefix + "text_projection"], torch.ones(16, 16))
    assert (made[prefix + "logit_scale"].item(), made[prefix + "logit_scale"].dtype) == (1, torch.int64)
    own = {
        name: torch.randn(t.shape) for name, t in made.items() if name.startswith(f"{blocks}2.") or "text_proj" in name
    }
    save_file(made | own, tmp_path / "own.safetensors")
    load(tmp_path / "own.safetensors").save(tmp_path / "again.safetensors", None, {})
    again = load_file(tmp_path / "again.safetensors")
    assert again.keys() == made.keys()
    assert all(torch.equal(again[name], (made | own)[name]) for name in made)


def test_diffusers_reads_our_folder(models):
    from diffusers import StableDiffusionPipeline

    pipeline = StableDiffusionPipeline.from_pretrained(str(models["sd1", ""]), local_files_only=True)
    expected = tiny_networks("sd1")
    assert torch.equal(pipeline.unet.conv_in.weight, expected.denoiser.conv_in.weight)
    assert torch.equal(pipeline.vae.quant_conv.weight, expected.vae.quant_conv.weight)
    got = pipeline.text_encoder.state_dict()
    assert all(torch.equal(got[n], t) for n, t in expected.text_encoders[0].state_dict().items())
    assert pipeline.tokenizer("a cat", padding="max_length").input_ids == expected.tokenizer.rows("a cat")[0]
    stored = load_file(models["sd1", ""] / "text_encoder" / "model.safetensors")
    assert all(name.startswith("text_model.") for name in stored)


def test_diffusers_reads_our_single_file(models, tmp_path):
    from diffusers import UNet2DConditionModel

    config = str(models["sd1", ""])
    path = str(models["sd1", ".safetensors"])
    unet = UNet2DConditionModel.from_single_file(path, config=config, subfolder="unet", local_files_only=True)
    expected = tiny_networks("sd1").denoiser.state_dict()
    assert all(torch.equal(t, expected[n]) for n, t in unet.state_dict().items())


@pytest.mark.parametrize("kind", ["fp16", "bin", "old_vae", "without_level"])
def test_folders_as_others_write_them(models, tmp_path, kind):
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(models["sd1", ""], folder)
    match kind:
        case "fp16":
            for file in folder.rglob("*.safetensors"):
                file.rename(file.with_suffix(".fp16.safetensors"))
        case "bin":
            for file, name in ((f, f.name) for f in list(folder.rglob("*.safetensors"))):
                new = "pytorch_model.bin" if name == "model.safetensors" else "diffusion_pytorch_model.bin"
                torch.save(load_file(file), file.with_name(new))
                file.unlink()
        case "old_vae":
            old = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
            rename_keys(folder / "vae" / "diffusion_pytorch_model.safetensors", old)
        case "without_level":
            rename_keys(folder / "text_encoder" / "model.safetensors", {"text_model.": ""})
    assert_same_weights(load(folder), tiny_networks("sd1"))


def rename_keys(file, changes):
    tensors = load_file(file)
    for old, new in changes.items():
        tensors = {name.replace(old, new): tensor for name, tensor in tensors.items()}
    save_file(tensors, file)


def test_a_missing_tensor_is_named(models, tmp_path):
    tensors = load_file(models["sd1", ".safetensors"])
    del tensors["model.diffusion_model.time_embed.2.bias"]
    save_file(tensors, tmp_path / "m.safetensors")
    with pytest.raises(UserError, match=r"m\.safetensors \(unet\) lacks 1 tensor \(time_embedding\.linear_2\.bias\)"):
        load(tmp_path / "m.safetensors")


def test_a_tensor_of_another_shape_is_named(models, tmp_path):
    tensors = load_file(models["sd1", ".safetensors"])
    tensors["model.diffusion_model.time_embed.2.bias"] = torch.zeros(3)
    save_file(tensors, tmp_path / "m.safetensors")
    with pytest.raises(UserError, match=r"time_embedding\.linear_2\.bias.*\(3,\), expected \(128,\)"):
        load(tmp_path / "m.safetensors")


def test_tensors_that_are_not_used_are_named_in_a_warning(models, tmp_path, caplog):
    tensors = load_file(models["sd1", ".safetensors"]) | {"betas": torch.zeros(3), "odd.one": torch.zeros(1)}
    save_file(tensors, tmp_path / "m.safetensors")
    assert_same_weights(load(tmp_path / "m.safetensors"), tiny_networks("sd1"))
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warnings == ["m.safetensors: 1 unknown tensors are not used: odd.one"]


class Callback:
    """Something that training checkpoints hold besides weights."""

    def __init__(self):
        self.best = {"score": 1}


def test_a_checkpoint_with_harmless_classes_is_read_without_them(models, tmp_path):
    content = torch.load(models["sd1", ".ckpt"], weights_only=True) | {"callbacks": Callback(), "global_step": 7}
    torch.save(content, tmp_path / "m.ckpt")
    assert_same_weights(load(tmp_path / "m.ckpt"), tiny_networks("sd1"))


def test_a_checkpoint_from_before_torch_1_6_is_read(models, tmp_path):
    content = torch.load(models["sd1", ".ckpt"], weights_only=True)
    torch.save(content, tmp_path / "m.ckpt", _use_new_zipfile_serialization=False)
    assert_same_weights(load(tmp_path / "m.ckpt"), tiny_networks("sd1"))


@pytest.mark.parametrize("form", ["prefixed.safetensors", "bare.pt", "diffusers.safetensors", "folder", "whole model"])
def test_a_separate_vae(models, tmp_path, form):
    other = tiny_networks("sd1", seed=1)
    other.save(tmp_path / "other.safetensors", None, {})
    other.save(tmp_path / "folder", None, {})
    tensors = load_file(tmp_path / "other.safetensors")
    prefixed = {name: t for name, t in tensors.items() if name.startswith("first_stage_model.")}
    match form:
        case "prefixed.safetensors":
            save_file(prefixed, tmp_path / form)
        case "bare.pt":
            bare = {name.removeprefix("first_stage_model."): t for name, t in prefixed.items()}
            torch.save({"state_dict": bare | {"loss.logvar": torch.zeros(())}}, tmp_path / form)
        case "diffusers.safetensors":
            save_file(other.vae.state_dict(), tmp_path / form)
        case "whole model":
            form = "other.safetensors"
    model = load(models["sd1", ".safetensors"], vae=str(tmp_path / form))
    expected, got = other.vae.state_dict(), model.vae.state_dict()
    assert all(torch.equal(got[name], expected[name]) for name in expected)
    assert torch.equal(model.denoiser.conv_in.weight, tiny_networks("sd1").denoiser.conv_in.weight)


def test_a_model_without_vae_needs_a_separate_one(models, tmp_path):
    tensors = load_file(models["sd1", ".safetensors"])
    pruned = tmp_path / "pruned.safetensors"
    save_file({name: t for name, t in tensors.items() if not name.startswith("first_stage_model.")}, pruned)
    with pytest.raises(ConfigError, match=r"pruned\.safetensors holds no VAE: name a VAE file here"):
        load(pruned)
    assert_same_weights(load(pruned, vae=str(models["sd1", ".ckpt"])), tiny_networks("sd1"))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"v2": True}, "v2 = True: .*is a Stable Diffusion 1.x model"),
        ({"clip_skip": 3}, "clip_skip = 3: must be 1 to 2"),
        ({"max_token_length": 100}, "max_token_length = 100: must be 75, 150 or 225"),
    ],
)
def test_options_that_do_not_fit_the_model(models, changed, expected):
    with pytest.raises(ConfigError, match=expected):
        load(models["sd1", ".safetensors"], **changed)


def test_mapped_weights_can_be_changed_without_touching_the_file(models):
    before = models["sd1", ".safetensors"].read_bytes()
    model = load(models["sd1", ".safetensors"])
    with torch.no_grad():
        model.denoiser.conv_in.weight.add_(1)
    assert models["sd1", ".safetensors"].read_bytes() == before


def test_reading_without_mapping_gives_the_same_model(models, monkeypatch):
    monkeypatch.setattr("safetensors.safe_open", None)  # what maps
    path = models["sd1", ".safetensors"]
    plain = load(path, disable_mmap_load_safetensors=True)
    monkeypatch.undo()
    assert_same_weights(plain, load(path))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool])
def test_every_number_format_reads_without_mapping(tmp_path, dtype):
    path = tmp_path / "m.safetensors"
    tensors = {"a": torch.tensor([[0, 1, 1]]).to(dtype), "scalar": torch.tensor(1).to(dtype), "none": torch.empty(0, 3)}
    write_tensors(path, tensors, None, {})
    found = read_raw(path, tuple(tensors), mapped=False)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
        assert torch.equal(found[name].float(), tensor.float())


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path):
    path = tmp_path / "m.safetensors"
    write_tensors(path, {"a": torch.ones(2)}, None, {"k": "v"})
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_bytes(b"half")
        raise RuntimeError
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]
    assert torch.equal(read_raw(path, ("a",))["a"], torch.ones(2))


def test_a_folder_is_replaced_whole(tmp_path):
    path = tiny_model("sd1", tmp_path / "out" / "model")
    (path / "stale").touch()
    tiny_networks("sd1", seed=1).save(path, None, {})
    assert not (path / "stale").exists()
    assert [p.name for p in path.parent.iterdir()] == ["model"]
    assert json.loads((path / "model_index.json").read_text(encoding="utf-8"))["unet"][1] == "UNet2DConditionModel"
    assert_same_weights(load(path), tiny_networks("sd1", seed=1))
