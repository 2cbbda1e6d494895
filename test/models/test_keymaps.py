"""The key maps against the layouts of real files, and there and back again."""

import pytest
import torch

from sd_scripts.models.configs import clip_config, unet_config, vae_config
from sd_scripts.models.families import all_families
from sd_scripts.models.keymaps.clip import open_clip_used_layers
from sd_scripts.models.layouts import plan_file, stored_tensors
from sd_scripts.models.targets import adapter_counts, same_ranks
from test.models.conftest import read_data
from test.tiny import tiny_networks

REAL = [("sd15", "sd1"), ("sd21", "sd2"), ("sdxl", "sdxl")]
SIZES = {  # tensors of each part
    "sd1": {"unet": 686, "vae": 248, "te1": 196},
    "sd2": {"unet": 686, "vae": 248, "te1": 23 * 16 + 4},
    "sdxl": {"unet": 1680, "vae": 248, "te1": 196, "te2": 32 * 16 + 5},
}
KEPT = {"sd1": 0, "sd2": 14, "sdxl": 1}  # SD 2.x: block 23, text_projection, logit_scale; SDXL: logit_scale
CLASSES = {
    "sd1": ("CLIPTextModel",),
    "sd2": ("CLIPTextModel",),
    "sdxl": ("CLIPTextModel", "CLIPTextModelWithProjection"),
}


def real_layout(name):
    return {key: tuple(shape) for key, shape in read_data(f"layouts/{name}.json.gz").items()}


def family(architecture):
    return all_families()[architecture]


def single_file_tensors(parts, architecture):
    stored = [stored_tensors(part.layouts[0], parts[part.name]) for part in family(architecture).parts]
    return {name: tensor for tensors in stored for name, tensor in tensors.items()}


def library_shapes(layout, architecture):
    parts = plan_file(family(architecture), layout).parts
    return {part: {n: s.shape(layout[s.key]) for n, s in sources.items()} for part, sources in parts.items()}


@pytest.mark.parametrize(("name", "architecture"), REAL)
def test_every_key_of_a_real_file_has_its_place(name, architecture):
    plan = plan_file(family(architecture), real_layout(name))
    assert plan.unknown == plan.dropped == ()
    assert {part: len(sources) for part, sources in plan.parts.items()} == SIZES[architecture]
    assert len(plan.kept) == KEPT[architecture]


@pytest.mark.parametrize(("name", "architecture"), REAL)
def test_names_are_those_of_diffusers(name, architecture):
    plan = plan_file(family(architecture), real_layout(name))
    for part, expected in read_data(f"layouts/{name}_library.json.gz").items():
        assert {library: source.key for library, source in plan.parts[part].items()} == expected


@pytest.mark.parametrize(("name", "architecture"), REAL)
def test_real_networks_take_every_tensor(name, architecture):
    import transformers
    from diffusers import AutoencoderKL, UNet2DConditionModel

    shapes = library_shapes(real_layout(name), architecture)
    with torch.device("meta"):
        networks = {
            "unet": UNet2DConditionModel(**unet_config(shapes["unet"], architecture)),
            "vae": AutoencoderKL(**vae_config(shapes["vae"], 0.18215)),
        }
        for number, cls in enumerate(CLASSES[architecture], start=1):
            activation = "gelu" if architecture == "sd2" or number == 2 else "quick_gelu"
            config = transformers.CLIPTextConfig(**clip_config(shapes[f"te{number}"], activation))
            networks[f"te{number}"] = getattr(transformers, cls)(config)
    for part, network in networks.items():
        assert {n: tuple(t.shape) for n, t in network.state_dict().items()} == shapes[part]
    unet = networks["unet"].mid_block.attentions[0].transformer_blocks[0].attn1
    assert (unet.heads, unet.inner_dim // unet.heads) == ((8, 160) if architecture == "sd1" else (20, 64))
    heads = [network.config.num_attention_heads for part, network in networks.items() if part.startswith("te")]
    assert heads == {"sd1": [12], "sd2": [16], "sdxl": [12, 20]}[architecture]


@pytest.mark.parametrize(("name", "architecture"), REAL)
def test_a_real_layout_comes_back(name, architecture):
    layout = real_layout(name)
    plan = plan_file(family(architecture), layout)
    stored = {key: torch.empty(shape, device="meta") for key, shape in layout.items()}
    parts = {part: {n: s.take(stored[s.key]) for n, s in sources.items()} for part, sources in plan.parts.items()}
    back = single_file_tensors(parts, architecture)
    assert {n: tuple(t.shape) for n, t in back.items()} == {n: s for n, s in layout.items() if n not in plan.kept}


def test_fused_attention_is_split_in_row_order():
    layout = real_layout("sd21")
    sources = plan_file(family("sd2"), layout).parts["te1"]
    rows = torch.arange(3 * 1024 * 2).view(3 * 1024, 2)
    taken = [sources[f"encoder.layers.7.self_attn.{n}_proj.weight"].take(rows) for n in "qkv"]
    assert torch.equal(torch.cat(taken), rows)


def test_averages_and_constants_are_dropped_and_the_rest_is_named():
    extra = [
        "model_ema.decay",
        "model_ema.diffusion_modelout2bias",
        "betas",
        "alphas_cumprod_prev",
        "posterior_variance",
    ]
    position_ids = "cond_stage_model.transformer.text_model.embeddings.position_ids"
    names = [*real_layout("sd15"), *extra, position_ids, "something.else"]
    plan = plan_file(family("sd1"), dict.fromkeys(names))
    assert set(plan.dropped) == {*extra, position_ids}
    assert plan.unknown == ("something.else",)
    assert len(plan.parts["te1"]) == 196


def test_a_text_encoder_without_the_text_model_level_is_read():
    names = [name.replace("transformer.text_model.", "transformer.") for name in real_layout("sd15")]
    plan = plan_file(family("sd1"), dict.fromkeys(names))
    assert len(plan.parts["te1"]) == 196
    assert plan.unknown == ()


@pytest.mark.parametrize(
    ("blocks", "has_projection", "used"),
    [(24, True, 23), (24, False, 23), (23, False, 23), (3, True, 2), (2, False, 2)],
)
def test_the_last_open_clip_block_is_left_out(blocks, has_projection, used):
    names = {f"transformer.resblocks.{i}.ln_1.weight" for i in range(blocks)}
    assert open_clip_used_layers(names | ({"text_projection"} if has_projection else set())) == used


@pytest.mark.parametrize("architecture", ["sd1", "sd2", "sdxl"])
@pytest.mark.parametrize("sizes", [{}, {"levels": 3, "layers": 2, "text_layers": 3}, {"levels": 4}, {"levels": 1}])
def test_small_models_come_back_exactly(architecture, sizes):
    model = tiny_networks(architecture, **sizes)
    parts = {part: dict(network.state_dict()) for part, network in model.networks.items()}
    stored = single_file_tensors(parts, architecture)
    plan = plan_file(family(architecture), stored)
    assert (plan.kept, plan.dropped, plan.unknown) == ((), (), ())
    for part, tensors in parts.items():
        sources = plan.parts[part]
        assert sources.keys() == tensors.keys()
        for name, source in sources.items():
            assert torch.equal(source.take(stored[source.key]), tensors[name])


@pytest.mark.parametrize("variant", ["sd15", "sd15__conv", "sd21", "sd21__conv", "sdxl", "sdxl__conv"])
def test_adapter_targets_have_the_names_order_and_sizes_of_lora_files(variant):
    architecture = {"sd15": "sd1", "sd21": "sd2", "sdxl": "sdxl"}[variant[:4]]
    shapes = library_shapes(real_layout(variant[:4]), architecture)
    expected = read_data(f"lora_layouts/{variant}.json.gz")
    expected = expected.get("keys", expected)
    with_conv = variant.endswith("__conv")
    targets = [target for target in family(architecture).targets(shapes) if with_conv or not target.needs_conv_dim]
    assert [target.name for target in targets] == list(dict.fromkeys(key.split(".")[0] for key in expected))
    counts = adapter_counts(family(architecture), shapes, same_ranks(4, 4 if with_conv else None))
    modules = {part: modules for part, (modules, _) in counts.items()}
    assert (
        modules
        == {
            "sd1": {"te1": 72, "unet": 278 if with_conv else 192},
            "sd2": {"te1": 138, "unet": 278 if with_conv else 192},
            "sdxl": {"te1": 72, "te2": 192, "unet": 788 if with_conv else 722},
        }[architecture]
    )
    weights = [shape for key, shape in expected.items() if not key.endswith("alpha")]
    assert sum(parameters for _, parameters in counts.values()) == sum(torch.Size(shape).numel() for shape in weights)
