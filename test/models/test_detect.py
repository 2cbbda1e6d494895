"""What a path holds, and one readable line for everything that is no model."""

import json
import os
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import save_file

from sd_scripts.errors import ConfigError, UserError
from sd_scripts.models.detect import inspect, require_architecture
from sd_scripts.models.families.sd import SD1
from sd_scripts.models.part_files import inspect_part
from sd_scripts.models.probes import identify
from test.models.conftest import read_data
from test.tiny import tiny_networks


@pytest.mark.parametrize("suffix", [".safetensors", ".ckpt", ""])
@pytest.mark.parametrize("architecture", ["sd1", "sd2"])
def test_a_model_is_recognised_in_every_form(models, architecture, suffix):
    info = inspect(models[architecture, suffix])
    assert info.architecture == architecture
    assert info.format == {".safetensors": "safetensors", ".ckpt": "ckpt", "": "diffusers"}[suffix]
    networks = tiny_networks(architecture)
    assert info.parameters() == {
        "unet": networks.denoiser.num_parameters(),
        "vae": networks.vae.num_parameters(),
        "te1": sum(p.numel() for p in networks.text_encoders[0].parameters()),
    }
    targets = list(networks.adapter_targets())
    counts = {p: sum(t.part == p and not t.needs_conv_dim for t in targets) for p in ("te1", "unet")}
    assert {part: modules for part, (modules, _) in info.adapter_module_counts(4).items()} == counts
    require_architecture(info, ("sd1", "sd2"))


@pytest.mark.parametrize(
    ("layout", "architecture"),
    [
        *[("sdxl", "sdxl"), ("sd3_medium", "sd3"), ("sd35_medium", "sd3"), ("sd35_large", "sd3")],
        *[("flux_dev", "flux"), ("flux_schnell", "flux"), ("chroma", "chroma"), ("lumina2", "lumina")],
        *[("anima", "anima"), ("hunyuan_image", "hunyuan_image")],
    ],
)
@pytest.mark.parametrize("prefix", ["", "model.diffusion_model."])
def test_other_architectures_are_told_from_their_names(layout, architecture, prefix):
    names = read_data("layouts/other_names.json.gz")[layout]
    if prefix and names[0].startswith("model."):
        prefix = ""
    assert identify([prefix + name.removeprefix("net.") for name in names]) == architecture
    assert identify(names) == architecture


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["lora_unet_x.lora_down.weight", "lora_unet_x.alpha"], "lora"),
        (["transformer.x.lora_A.weight"], "lora"),
        (["lora_te_x.hada_w1_a"], "lora"),
        (["emb_params"], "embedding"),
        (["control_model.input_hint_block.0.weight"], "controlnet"),
        (["x.weight"], "unknown"),
        ([], "unknown"),
    ],
)
def test_other_files_are_told_too(names, kind):
    assert identify(names) == kind


def test_a_training_checkpoint_of_a_pickle_is_read_and_nothing_in_it_runs(tmp_path):
    class Boom:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    path = tmp_path / "x.ckpt"
    content = {"state_dict": tiny_state(), "callbacks": {"a": Boom()}, "epoch": 3, "optimizer": [torch.ones(2)]}
    torch.save(content, path)
    info = inspect(path)
    assert info.architecture == "sd1"
    assert info.tensors.keys() == content["state_dict"].keys()
    assert info.foreign == (f"{os.name}.mkdir",)
    assert not (tmp_path / "ran").exists()


def test_a_file_from_before_torch_1_6_is_read(tmp_path):
    path = tmp_path / "old.ckpt"
    torch.save({"state_dict": tiny_state()}, path, _use_new_zipfile_serialization=False)
    info = inspect(path)
    assert info.architecture == "sd1"
    assert {n: i.shape for n, i in info.tensors.items()} == {n: tuple(t.shape) for n, t in tiny_state().items()}
    assert {i.dtype for i in info.tensors.values()} == {"F32"}


def tiny_state():
    text = "cond_stage_model.transformer.text_model.embeddings.token_embedding.weight"
    return {"model.diffusion_model.input_blocks.0.0.weight": torch.ones(32, 4, 3, 3), text: torch.ones(5, 2)}


BAD_FILES = {
    "empty.safetensors": (lambda model: b"", "is empty (0 bytes)"),
    "text.safetensors": (lambda model: b"this is my model, honestly\n" * 5, "is a text file, not a model"),
    "text.ckpt": (lambda model: "Ein Märchen\n".encode() * 5, "is a text file, not a model"),
    "page.safetensors": (lambda model: b"<!DOCTYPE html><html>404</html>", "is a web page"),
    "pointer.safetensors": (lambda model: b"version https://git-lfs.github.com/spec/v1\noid x\n", "git lfs pull"),
    "cut.safetensors": (lambda model: model[:-100], "is truncated: 100 of"),
    "cut_header.safetensors": (lambda model: model[:200], "is damaged"),
    "noise.safetensors": (lambda model: bytes(range(255, 0, -1)), "is damaged or no safetensors file"),
    "noise.bin": (lambda model: bytes(range(255, 0, -1)), "is no model file"),
    "syntax.safetensors": (lambda model: (9).to_bytes(8, "little") + b'{"a": 1 !', "header cannot be read"),
    "cut.ckpt": (lambda model: b"PK\x03\x04" + bytes(60), "is damaged or truncated"),
    "pickle.ckpt": (lambda model: b"\x80\x02}q\x00(X\x04", "is damaged or truncated"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_gives_one_line_with_its_name(tmp_path, models, name):
    content, expected = BAD_FILES[name]
    path = tmp_path / name
    path.write_bytes(content(models["sd1", ".safetensors"].read_bytes()))
    with pytest.raises(UserError) as caught:
        inspect(path)
    message = str(caught.value)
    assert expected in message
    assert str(path) in message
    assert "\n" not in message


def test_a_missing_model_names_its_nearest_neighbour(tmp_path):
    (tmp_path / "v1-5-pruned.safetensors").touch()
    with pytest.raises(
        UserError, match=r"no such model: .*v1-5-prund\.safetensors; did you mean v1-5-pruned\.safetensors\?"
    ):
        inspect(tmp_path / "v1-5-prund.safetensors")
    with pytest.raises(UserError, match="does not exist either"):
        inspect(tmp_path / "nowhere" / "model.safetensors")


def test_a_folder_that_is_no_diffusers_folder(tmp_path):
    with pytest.raises(UserError, match=r"without model_index\.json: give a model file or a diffusers folder"):
        inspect(tmp_path)
    (tmp_path / "a.safetensors").touch()
    with pytest.raises(UserError, match=r"give the file, such as .*a\.safetensors"):
        inspect(tmp_path)


def test_a_diffusers_folder_without_weights(tmp_path):
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match="unet holds no weights"):
        inspect(tmp_path)


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        (["model.diffusion_model.label_emb.0.0.weight"], "is an SDXL model, this trainer .* use sdxl_train_network.py"),
        (["double_blocks.0.img_attn.qkv.weight", "img_in.weight"], "is a FLUX.1 model.*use flux_train_network.py"),
        (["lora_unet_a.lora_up.weight"], "is a LoRA file, not a base model.*network_weights"),
        (["encoder.conv_in.weight", "decoder.conv_in.weight"], "is a VAE file.*option vae"),
        (["x"], "unknown kind: this trainer takes a Stable Diffusion 1.x model or a Stable Diffusion 2.x model"),
    ],
)
def test_the_wrong_kind_of_model_is_named_with_the_way_out(tmp_path, tensors, expected):
    path = tmp_path / "m.safetensors"
    save_file({name: torch.zeros(1) for name in tensors}, path)
    with pytest.raises(UserError, match=expected):
        require_architecture(inspect(path), ("sd1", "sd2"))


def test_an_inpainting_model_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file(tiny_state() | {"model.diffusion_model.input_blocks.0.0.weight": torch.zeros(32, 9, 3, 3)}, path)
    with pytest.raises(UserError, match=r"inpainting.*9 input channels"):
        require_architecture(inspect(path), ("sd1",))


def test_what_is_no_vae_is_refused(tmp_path, models):
    vae = SD1.part("vae")
    single, folder = inspect_part(vae, models["sd1", ".safetensors"]), inspect_part(vae, models["sd1", ""])
    assert single.shapes.keys() == folder.shapes.keys()
    lora = tmp_path / "lora.safetensors"
    save_file({"lora_unet_a.lora_up.weight": torch.zeros(1)}, lora)
    with pytest.raises(ConfigError, match=r"vae = .*is a LoRA file, not a VAE"):
        inspect_part(vae, lora)
    flux = tmp_path / "ae.safetensors"
    middle = {f"{half}.mid.block_1.conv1.weight": torch.zeros(1) for half in ("encoder", "decoder")}
    save_file(middle | {"decoder.conv_in.weight": torch.zeros(8, 16, 1, 1)}, flux)
    with pytest.raises(ConfigError, match="16 latent channels; this model's have 4"):
        inspect_part(vae, flux)
    with pytest.raises(ConfigError, match="no such file"):
        inspect_part(vae, tmp_path / "none")


def test_a_real_size_file_is_told_in_50_ms(tmp_path):
    header, offset = {}, 0
    for name, shape in read_data("layouts/sd21.json.gz").items():
        size = 2 * torch.Size(shape).numel()
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    path = tmp_path / "big.safetensors"
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + offset)  # sparse: no disk is used
    best = min(timed(lambda: inspect(path)) for _ in range(5))
    info = inspect(path)
    assert info.architecture == "sd2"
    assert info.parameters() == {"unet": 865910724, "vae": 83653863, "te1": 340387840}
    assert info.adapter_module_counts(4, 4) == {"te1": (138, 1695744), "unet": (278, 4236032)}
    assert best < 0.05


def timed(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def test_detection_does_not_import_torch():
    modules = ("detect", "part_files", "families", "hashes", "registry", "targets", "tokenizers.clip")
    names = ", ".join([*(f"sd_scripts.models.{name}" for name in modules), "sd_scripts.training.prompts"])
    code = f"import sys, {names}; assert not {{'torch', 'numpy'}} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
