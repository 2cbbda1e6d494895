"""Preset files of the known GUI become the options that it would have started the trainer with, or a word says why not."""

import json
from pathlib import Path

import pytest

from sd_scripts.options.gui_presets import convert, keys_of
from sd_scripts.options.gui_presets.fields import TABLES
from sd_scripts.options.gui_presets.known import options_by_name
from sd_scripts.options.gui_presets.networks import ITEMS
from sd_scripts.options.gui_presets.omitted import OMITTED

GUI_KEYS = json.loads((Path(__file__).parents[1] / "data" / "gui_keys.json").read_text(encoding="utf-8"))
METHODS = {
    "lora": "adapter", "dreambooth": "dreambooth", "finetune": "full", "textual_inversion": "textual_inversion",
    "leco": "leco", "anima_lllite": "lllite",
}  # fmt: skip
MARK = {  # the least that shows which tab a file is from
    "lora": {}, "dreambooth": {"v2": False}, "finetune": {"create_caption": False}, "leco": {"prompts_file": "p.toml"},
    "textual_inversion": {"token_string": "cat"}, "anima_lllite": {"cond_emb_dim": 32},
}  # fmt: skip
BOXES = {
    "sd15": {}, "sd2": {"v2": True}, "sdxl": {"sdxl": True}, "sd3": {"sd3_checkbox": True},
    "flux1": {"flux1_checkbox": True}, "chroma": {"flux1_checkbox": True, "model_type": "chroma"},
    "hunyuan_image": {"hunyuan_image_checkbox": True}, "anima": {"anima_checkbox": True},
    "lumina": {"lumina_checkbox": True},
}  # fmt: skip
TYPE_OF_FAMILY = {
    "flux1": "Flux1", "chroma": "Flux1", "anima": "Anima", "lumina": "Lumina", "hunyuan_image": "HunyuanImage-2.1",
}  # fmt: skip
FAMILY_OF_TYPE = {
    "Flux1": "flux1", "Flux1 OFT": "flux1", "Anima": "anima", "Lumina": "lumina", "HunyuanImage-2.1": "hunyuan_image",
    "Kohya LoHa": "sdxl", "Kohya LoKr": "sdxl",
}  # fmt: skip
COUNTED = "steps are counted when training starts, by the trainer's own arithmetic; the epochs are set"
DIFFERENT = {  # (key, target): why ours is different on purpose
    ("output_name", "toml/wandb_run_name"): "unset is the output's name anyway",
    ("output_dir", "toml/sample_prompts"): "the prompts themselves are kept, not a file that the form writes",
    ("dataset_config", "toml/lr_warmup_steps"): "a percentage stays one",
    ("lr_warmup", "toml/lr_warmup_steps"): "13 % is written as it is; as a fraction, 100 % would be one step",
    ("epoch", "toml/epoch"): "no trainer knows the option",
    ("noise_offset_type", "toml/noise_offset_type"): "no trainer knows the option",
    ("noise_offset_type", "toml/multires_noise_discount"): "without iterations a discount does nothing",
    ("multires_noise_discount", "toml/multires_noise_discount"): "without iterations a discount does nothing",
    ("noise_offset_random_strength", "toml/noise_offset_random_strength"): "without noise_offset it does nothing",
    ("adaptive_noise_scale", "toml/adaptive_noise_scale"): "without noise_offset the trainer refuses it",
    ("max_resolution", "toml/resolution"): "the example is no size",
    ("resolution", "toml/resolution"): "the example is no size",
    ("show_timesteps_resolution", "toml/show_timesteps_resolution"): "the example is no size",
    ("show_timesteps", "toml/show_timesteps_resolution"): "1024 is what unset means",
    ("max_timestep", "toml/max_timestep"): "the example is no whole number",
    ("text_encoder_lr", "toml/text_encoder_lr"): "one rate counts for all encoders",
    ("t5xxl_lr", "toml/text_encoder_lr"): "only families with a T5 have a rate for it; tested below",
    ("stop_text_encoder_training", "toml/stop_text_encoder_training"): "a percentage, which the form passes as steps",
    ("use_cp", "network_args/use_cp"): "LyCORIS calls it use_tucker today",
    ("train_on_input", "network_args/train_on_input"): "false is what unset means",
    ("single_blocks_to_swap", "toml/single_blocks_to_swap"): "trainers of adapters only know blocks_to_swap",
    ("double_blocks_to_swap", "toml/double_blocks_to_swap"): "trainers of adapters only know blocks_to_swap",
    ("anima_compile", "toml/compile_mode"): "default is what unset means",
    ("anima_compile", "toml/compile_backend"): "inductor is what unset means",
    ("save_model_as", "toml/save_model_as"): "same as source model is what unset means; tested below",
    **{
        (key, "toml/max_train_steps"): COUNTED
        for key in ("reg_data_dir", "train_batch_size", "epoch", "gradient_accumulation_steps", "dataset_repeats")
    },
    ("flip_aug", "toml/max_train_steps"): "the form halves the steps, also typed ones: a fault",
    ("train_dir", "toml/in_json"): "tested below",
    ("use_latent_files", "toml/in_json"): "tested below",
    ("latent_metadata_filename", "toml/in_json"): "tested below",
}
NOT_THERE = {  # (key, family or LoRA type or tab): the form sends what the trainer has not
    ("conv_dim", "LyCORIS/iA3"),
    ("conv_alpha", "LyCORIS/iA3"),
    *(("learning_rate_te", family) for family in ("sd3", "flux1", "anima", "lumina")),
    ("fused_optimizer_groups", "sd15"),
    ("block_lr", "sd15"),
    ("sample_sampler", "flux1"),
    ("no_token_padding", "textual_inversion"),
}
WITH = {"conv_alpha": {"conv_dim": 4}, "ggpo_sigma": {"ggpo_beta": 0.01}}  # what must stand beside a key for it to act


def cases():
    for tab, fields in GUI_KEYS.items():
        for key, targets in fields.items():
            for target, facts in targets.items():
                if "example" not in facts or (key, target) in DIFFERENT:
                    continue
                for family, kind in settings_of(tab, facts):
                    if not NOT_THERE.isdisjoint({(key, family), (key, kind), (key, tab)}):
                        continue
                    yield pytest.param(
                        tab, key, target, facts, family, kind, id=f"{tab}-{key}-{target}-{family}-{kind}"
                    )


def settings_of(tab, facts):
    if tab != "lora":
        default = ["anima"] if tab == "anima_lllite" else ["sd15"]
        return [(family, None) for family in facts.get("families", default)]
    if facts.get("types"):
        return [(FAMILY_OF_TYPE.get(kind, "sd15"), kind) for kind in facts["types"]]
    return [
        (family, TYPE_OF_FAMILY.get(family, "Standard")) for family in facts.get("families", ["sd15", "sdxl", "flux1"])
    ]


@pytest.mark.parametrize(("tab", "key", "target", "facts", "family", "kind"), list(cases()))
def test_a_field_becomes_what_the_gui_made_of_it(tab, key, target, facts, family, kind):
    given, becomes = facts["example"]
    content = {**MARK[tab], **BOXES[family], **({"LoRA_type": kind} if kind else {}), **facts.get("needs", {})}
    content |= {**WITH.get(key, {}), key: given}
    if tab == "finetune" and family == "sdxl":
        content["sdxl_checkbox"] = content.pop("sdxl")
    made = convert(content)
    name = target.partition("/")[2]
    values = made.values | dict(item.split("=", 1) for item in made.values.get("network_args", []))
    assert made.method == METHODS[tab]
    assert same(values.get(name), becomes), (values.get(name), becomes, [str(f) for f in made.findings])


def same(ours, theirs):
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    try:
        return float(ours) == float(theirs)
    except (TypeError, ValueError):
        return str(ours) == str(theirs)


@pytest.mark.parametrize("tab", GUI_KEYS)
def test_every_field_of_a_tab_has_its_place_or_a_reason(tab):
    assert not set(GUI_KEYS[tab]) - keys_of(METHODS[tab]) - set(OMITTED)


@pytest.mark.parametrize("tab", GUI_KEYS)
def test_every_option_that_a_tab_can_set_exists(tab):
    method = METHODS[tab]
    made = {rule.option for rule in TABLES[method].values()}
    if method == "adapter":
        made |= {item.name for item in ITEMS.values()}
    known = set(options_by_name())
    assert made - known <= {"rank_dropout_scale", "train_on_input"}  # LyCORIS takes them as further network_args


def test_the_reasons_are_told():
    assert all(len(reason) > 20 for reason in OMITTED.values())


@pytest.mark.parametrize("tab", METHODS)
def test_the_tab_is_told_from_the_keys(tab):
    defaults = dict.fromkeys(GUI_KEYS[tab])
    assert convert(defaults).method == METHODS[tab]


@pytest.mark.parametrize(
    ("boxes", "family"),
    [
        ({"sdxl": True, "v2": False}, "sdxl"), ({"sdxl": 1}, "sdxl"), ({"sdxl": "true"}, "sdxl"), ({"v2": True}, "sd2"),
        ({"sd3_checkbox": True}, "sd3"), ({"flux1_checkbox": True, "model_type": "flux"}, "flux"),
        ({"flux1_checkbox": True, "model_type": "chroma"}, "chroma"), ({"anima_checkbox": True}, "anima"),
        ({"lumina_checkbox": True}, "lumina"), ({"hunyuan_image_checkbox": True}, "hunyuan_image"),
        ({"sdxl": False, "v2": False}, None), ({}, None),
    ],
)  # fmt: skip
def test_the_family_is_told_from_the_boxes(boxes, family):
    assert convert({**boxes, "network_dim": 8}).architecture == family


def test_two_boxes_are_pointed_out():
    made = convert({"sdxl": True, "flux1_checkbox": True, "LoRA_type": "Standard"})
    assert made.architecture == "sdxl"
    assert ("ignored", "flux1_checkbox") in [(f.kind, f.key) for f in made.findings]


def lora(**content):
    return convert({"LoRA_type": "Standard", **content})


def kinds(made, key):
    return [finding.kind for finding in made.findings if finding.key == key]


ZERO_IS_OFF = [
    "max_train_epochs", "max_train_steps", "save_every_n_epochs", "save_every_n_steps", "save_last_n_epochs",
    "save_last_n_steps", "seed", "noise_offset", "adaptive_noise_scale", "min_snr_gamma", "ip_noise_gamma",
    "v_pred_like_loss", "max_token_length", "vae_batch_size", "network_dropout", "scale_weight_norms", "rank_dropout",
    "module_dropout", "conv_dim", "sample_every_n_steps", "sample_every_n_epochs", "blocks_to_swap", "num_processes",
    "main_process_port", "multires_noise_iterations", "loraplus_lr_ratio", "min_timestep",
]  # fmt: skip
ZERO_IS_ZERO = [
    "max_grad_norm", "prior_loss_weight", "learning_rate", "huber_c", "huber_scale", "lr_scheduler_power",
    "network_alpha", "max_data_loader_n_workers", "keep_tokens",
]  # fmt: skip


@pytest.mark.parametrize("key", ZERO_IS_OFF)
@pytest.mark.parametrize("zero", [0, 0.0, "0", "0.0", "", None, "None"])
def test_a_zero_that_says_off_is_unset(key, zero):
    made = lora(**{key: zero})
    assert key not in made.values
    assert not made.findings


@pytest.mark.parametrize("key", ZERO_IS_ZERO)
@pytest.mark.parametrize("zero", [0, 0.0, "0"])
def test_a_zero_that_is_meant_stays_zero(key, zero):
    assert lora(**{key: zero}).values[key] == 0


@pytest.mark.parametrize(
    ("key", "box"),
    [
        ("guidance_scale", "flux1_checkbox"), ("discrete_flow_shift", "flux1_checkbox"), ("logit_std", "sd3_checkbox"),
        ("mode_scale", "sd3_checkbox"), ("anima_sigmoid_scale", "anima_checkbox"),
        ("lumina_discrete_flow_shift", "lumina_checkbox"), ("hunyuan_sigmoid_scale", "hunyuan_image_checkbox"),
    ],
)  # fmt: skip
def test_zeros_of_a_family_stay_zero(key, box):
    name = key.removeprefix("anima_").removeprefix("lumina_").removeprefix("hunyuan_")
    assert convert({box: True, "network_dim": 4, key: 0}).values[name] == 0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"learning_rate": 1e-4, "unet_lr": 1e-4, "text_encoder_lr": 5e-5}, (1e-4, [5e-5], None, None)),
        ({"learning_rate": 1e-4, "unet_lr": 1e-4, "text_encoder_lr": 0}, (1e-4, [0.0], True, None)),
        ({"learning_rate": 1e-4, "unet_lr": 0, "text_encoder_lr": 5e-5}, (0, [5e-5], None, True)),
        ({"learning_rate": 1e-4, "unet_lr": 0.0, "text_encoder_lr": "0"}, (None, None, None, None)),
        ({"learning_rate": 1e-4, "unet_lr": "", "text_encoder_lr": None}, (None, None, None, None)),
        ({"learning_rate": 1e-4, "text_encoder_lr": [1e-5, 2e-5]}, (None, [1e-5, 2e-5], None, None)),
    ],
)
def test_rates_of_the_parts(given, expected):
    values = lora(**given).values
    names = ("unet_lr", "text_encoder_lr", "network_train_unet_only", "network_train_text_encoder_only")
    assert tuple(values.get(name) for name in names) == expected
    assert values["learning_rate"] == 1e-4


@pytest.mark.parametrize(
    ("box", "expected"), [("flux1_checkbox", [1e-4, 3e-5]), ("sd3_checkbox", [1e-4, 1e-4, 3e-5]), ("sdxl", [1e-4])]
)
def test_the_rate_of_t5_comes_last(box, expected):
    assert lora(**{box: True, "text_encoder_lr": 1e-4, "t5xxl_lr": 3e-5}).values["text_encoder_lr"] == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"epoch": 4, "max_train_epochs": "", "max_train_steps": ""}, (4, None)),
        ({"epoch": "4", "max_train_epochs": 0, "max_train_steps": 0}, (4, None)),
        ({"epoch": 4, "max_train_epochs": 0, "max_train_steps": 1600}, (None, 1600)),
        ({"epoch": 4, "max_train_epochs": "7", "max_train_steps": 1600}, (7, None)),
        ({"epoch": 0, "max_train_epochs": None}, (None, None)),
        ({"max_train_steps": "1600.0"}, (None, 1600)),
    ],
)
def test_epochs_and_steps(given, expected):
    values = lora(**given).values
    assert (values.get("max_train_epochs"), values.get("max_train_steps")) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"lr_warmup": 10}, "10%"), ({"lr_warmup": "10"}, "10%"), ({"lr_warmup": 100}, "100%"),
        ({"lr_warmup": 2.5}, "2.5%"), ({"lr_warmup": 0}, None), ({"lr_warmup": 10, "lr_warmup_steps": 50}, 50),
        ({"lr_warmup": 10, "lr_warmup_steps": 0}, "10%"), ({"lr_warmup": 101}, None), ({"lr_warmup": "ten"}, None),
        ({"lr_warmup": 10, "lr_scheduler": "constant"}, None),
    ],
)  # fmt: skip
def test_warm_up(given, expected):
    assert lora(**{"lr_scheduler": "cosine", **given}).values.get("lr_warmup_steps") == expected


def test_steps_of_warm_up_win_and_the_percentage_is_named():
    assert kinds(lora(lr_scheduler="cosine", lr_warmup=10, lr_warmup_steps=50), "lr_warmup") == ["ignored"]


NOISE = {
    "noise_offset": 0.05,
    "adaptive_noise_scale": 0.01,
    "multires_noise_iterations": 6,
    "multires_noise_discount": 0.2,
}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("Original", {"noise_offset", "adaptive_noise_scale"}),
        ("Multires", {"multires_noise_iterations", "multires_noise_discount"}),
        (None, set(NOISE)),
    ],
)
def test_the_kind_of_noise_chooses_the_group(kind, expected):
    made = lora(**NOISE, **({"noise_offset_type": kind} if kind else {}))
    assert {name for name in NOISE if name in made.values} == expected
    assert {finding.key for finding in made.findings} == set(NOISE) - expected


@pytest.mark.parametrize("kind", ["Original", "Multires"])
def test_on_other_tabs_than_lora_both_kinds_of_noise_were_sent(kind):
    made = convert(NOISE | {"noise_offset_type": kind, "learning_rate_te": 1e-5, "optimizer": "AdamW"})
    assert made.method == "dreambooth"
    assert {name: made.values.get(name) for name in NOISE} == NOISE
    assert kinds(made, "noise_offset_type") == ["converted"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (True, "xformers"), ("xformers", "xformers"), ("True", "xformers"), (1, "xformers"), ("sdpa", "sdpa"),
        ("none", None), (False, None), ("", None), (None, None), ("flash", None),
    ],
)  # fmt: skip
def test_the_choice_of_attention(given, expected):
    made = lora(xformers=given)
    assert [name for name in ("xformers", "sdpa") if made.values.get(name)] == ([expected] if expected else [])
    assert kinds(made, "xformers") == (["invalid"] if given == "flash" else [])


TYPE_MODULES = {
    "Standard": "networks.lora", "Kohya LoCon": "networks.lora", "LoRA-FA": "networks.lora_fa",
    "Kohya DyLoRA": "networks.dylora", "Kohya LoHa": "networks.loha", "Kohya LoKr": "networks.lokr",
    "Flux1": "networks.lora_flux", "Flux1 OFT": "networks.oft_flux", "Anima": "networks.lora_anima",
    "HunyuanImage-2.1": "networks.lora_hunyuan_image", "Lumina": "networks.lora_lumina",
}  # fmt: skip
TYPE_ALGOS = {
    "LyCORIS/LoCon": "locon", "LyCORIS/LoHa": "loha", "LyCORIS/LoKr": "lokr", "LyCORIS/iA3": "ia3",
    "LyCORIS/Diag-OFT": "diag-oft", "LyCORIS/BOFT": "boft", "LyCORIS/GLoRA": "glora", "LyCORIS/DyLoRA": "dylora",
    "LyCORIS/Native Fine-Tuning": "full", "LoCon": "locon",
}  # fmt: skip


@pytest.mark.parametrize("kind", [*TYPE_MODULES, *TYPE_ALGOS])
def test_lora_types(kind):
    family = BOXES[FAMILY_OF_TYPE.get(kind, "sd15")]
    values = convert({**family, "LoRA_type": kind, "network_dim": 16}).values
    assert values["network_module"] == TYPE_MODULES.get(kind, "lycoris.kohya")
    assert values.get("algo") == TYPE_ALGOS.get(kind)
    assert values["network_dim"] == 16


def test_arguments_that_the_lora_type_has_not_are_left_out_and_named():
    made = convert({"LoRA_type": "Standard", "conv_dim": 64, "factor": 8, "conv_alpha": 1, "use_tucker": False})
    assert not {"conv_dim", "conv_alpha", "factor", "use_tucker"} & made.values.keys()
    assert [finding.key for finding in made.findings if finding.kind == "ignored"] == ["conv_dim", "factor"]


@pytest.mark.parametrize(
    ("content", "module", "architecture"),
    [
        ({"LoRA_type": "Flux1"}, "networks.lora_flux", "flux"),
        ({"LoRA_type": "Flux1", "model_type": "chroma"}, "networks.lora_flux", "chroma"),
        ({"LoRA_type": "Standard", "flux1_checkbox": True}, "networks.lora_flux", "flux"),
        ({"LoRA_type": "Flux1", "sdxl": True}, "networks.lora", "sdxl"),
        ({"LoRA_type": "Standard", "sd3_checkbox": True}, "networks.lora_sd3", "sd3"),
        ({"LoRA_type": "LyCORIS/LoKr", "flux1_checkbox": True}, "lycoris.kohya", "flux"),
    ],
)
def test_lora_type_and_family_are_brought_together(content, module, architecture):
    made = convert(content)
    assert (made.values["network_module"], made.architecture) == (module, architecture)
    is_odd = content["LoRA_type"] != "LyCORIS/LoKr" and "sd3_checkbox" not in content
    assert kinds(made, "LoRA_type") == (["converted"] if is_odd else [])


def test_the_family_that_a_lora_type_tells_has_its_fields():
    assert convert({"LoRA_type": "Flux1", "guidance_scale": 1.0}).values["guidance_scale"] == 1.0


def test_an_unknown_lora_type_is_named():
    made = convert({"LoRA_type": "LoXYZ", "conv_dim": 4})
    assert kinds(made, "LoRA_type") == ["invalid"]
    assert "network_module" not in made.values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("decouple=True weight_decay=0.6 betas=0.9,0.99", ["decouple=True", "weight_decay=0.6", "betas=0.9,0.99"]),
        ('"d0=1e-5" "d_coef=1.0"', ["d0=1e-5", "d_coef=1.0"]),
        ("\"betas=0.9, 0.99\" x='a b'", ["betas=0.9, 0.99", "x='a", "b'"]),
        ('a="b', ["a=b"]), ("", None), ("   ", None), (["a=1", "b=2"], ["a=1", "b=2"]),
    ],
)  # fmt: skip
def test_arguments_in_one_line(text, expected):
    assert lora(optimizer_args=text).values.get("optimizer_args") == expected


def test_additional_parameters_become_options():
    line = '--lr_scheduler_type "CosineAnnealingLR" --lr_scheduler_args "T_max=30" "eta_min=0e-0" --network_train_unet_only'
    values = lora(
        additional_parameters=line + r' --log_prefix=xl --vae "C:\my models\a.safetensors" --loss_type huber'
    ).values
    assert values["lr_scheduler_type"] == "CosineAnnealingLR"
    assert values["lr_scheduler_args"] == ["T_max=30", "eta_min=0e-0"]
    assert values["network_train_unet_only"] is True
    assert values["log_prefix"] == "xl"
    assert values["vae"] == r"C:\my models\a.safetensors"
    assert values["loss_type"] == "huber"
    assert lora(additional_parameters="--max_train_epoc 3").values["max_train_epochs"] == 3  # cut short


def test_additional_parameters_that_contradict_the_form_win_and_are_named():
    made = lora(
        seed=1, optimizer_args="a=1 b=2", additional_parameters="--seed 2 --optimizer_args b=3 c=4 --nonsense 1"
    )
    assert made.values["seed"] == 2
    assert made.values["optimizer_args"] == ["a=1", "b=3", "c=4"]
    assert kinds(made, "seed") == kinds(made, "optimizer_args") == ["ignored"]
    assert kinds(made, "additional_parameters") == ["ignored"]


def test_network_args_beside_the_lora_type_are_items_too():
    made = convert(
        {"LoRA_type": "Kohya LoCon", "conv_dim": 4, "additional_parameters": "--network_args conv_dim=8 x=y"}
    )
    assert made.values["conv_dim"] == 8
    assert made.values["network_args"] == ["x=y"]
    assert kinds(made, "conv_dim") == ["ignored"]


@pytest.mark.parametrize(
    ("content", "option", "expected"),
    [
        ({"LoRA_type": "Standard", "lora_network_weights": "a.safetensors"}, "network_weights", "a.safetensors"),
        ({"LoRA_type": "Standard", "conv_dims": "1,2"}, "conv_block_dims", "1,2"),
        ({"LoRA_type": "Standard", "use_8bit_adam": True}, "optimizer_type", "AdamW8bit"),
        ({"LoRA_type": "Standard", "use_8bit_adam": True, "optimizer": "Lion"}, "optimizer_type", "Lion"),
        ({"LoRA_type": "Standard", "use_wandb": True}, "log_with", "wandb"),
        ({"LoRA_type": "Standard", "use_wandb": "True", "log_with": ""}, "log_with", "wandb"),
        ({"LoRA_type": "Standard", "use_wandb": False}, "log_with", None),
        ({"LoRA_type": "Standard", "save_model_as": "diffusers"}, "save_model_as", "safetensors"),
        ({"LoRA_type": "LyCORIS/LoHa", "use_cp": True}, "use_tucker", True),
        ({"LoRA_type": "LyCORIS/LoHa", "use_cp": True, "use_tucker": False}, "use_tucker", False),
        ({"learning_rate_te": 1e-5, "save_model_as": "same as source model"}, "save_model_as", None),
        ({"learning_rate_te": 1e-5, "save_model_as": "diffusers"}, "save_model_as", "diffusers"),
        ({"learning_rate_te": 0}, "learning_rate_te", 0),
        ({"learning_rate_te": 1, "caption_dropout_every_n_epochs": 3}, "caption_dropout_every_n_epochs", 3),
        ({"LoRA_type": "Standard", "dynamo_backend": "inductor"}, "torch_compile", True),
        ({"LoRA_type": "Standard", "dynamo_backend": "no"}, "torch_compile", None),
        ({"token_string": "cat", "template": "style template"}, "use_style_template", True),
        ({"token_string": "cat", "template": "caption"}, "use_style_template", None),
        ({"token_string": "cat", "no_token_padding": True}, "no_token_padding", None),
        ({"use_latent_files": "No", "train_dir": "d:\\x\\"}, "in_json", "d:\\x/meta_cap.json"),
        ({"use_latent_files": "Yes", "train_dir": "/x", "latent_metadata_filename": "l.json"}, "in_json", "/x/l.json"),
        ({"image_folder": "/x/img"}, "train_data_dir", "/x/img"),
        ({"LoRA_type": "Standard", "sample_prompts": "a cat\na dog --w 512"}, "sample_prompts", "a cat\na dog --w 512"),
        ({"LoRA_type": "Standard", "caption_extension": ".none-use-foldername"}, "caption_extension",
         ".none-use-foldername"),
        ({"LoRA_type": "Standard", "max_resolution": "1024, 768"}, "resolution", "1024,768"),
        ({"LoRA_type": "Standard", "max_resolution": 512}, "resolution", "512"),
        ({"LoRA_type": "Standard", "train_inpainting": True, "cache_latents": True}, "cache_latents", False),
        ({"LoRA_type": "Standard", "wandb_api_key": "secret"}, "wandb_api_key", "secret"),
        ({"LoRA_type": "Standard", "extra_accelerate_launch_args": "--a b"}, "extra_accelerate_launch_args",
         ["--a", "b"]),
        ({"LoRA_type": "Standard", "persistent_data_loader_workers": 0}, "persistent_data_loader_workers", False),
        ({"LoRA_type": "LyCORIS/LoHa", "use_conv_cp": True}, "use_tucker", True),
        ({"LoRA_type": "Standard", "alpha_mask": "true"}, "alpha_mask", True),  # by the option's own name
    ],
)  # fmt: skip
def test_single_conversions(content, option, expected):
    assert convert(content).values.get(option) == expected


def test_a_percentage_for_the_text_encoder_becomes_a_step():
    base = {"learning_rate_te": 1e-5, "stop_text_encoder_training_pct": 30}
    assert convert({**base, "max_train_steps": 1000}).values["stop_text_encoder_training"] == 300
    made = convert({**base, "max_train_epochs": 10})
    assert "stop_text_encoder_training" not in made.values
    assert kinds(made, "stop_text_encoder_training") == ["ignored"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("learning_rate", "abc"), ("seed", 1.5), ("seed", 2**63), ("seed", [1]), ("train_batch_size", {}), ("flip_aug", "perhaps"),
     ("network_dim", "1e999"), ("min_snr_gamma", float("nan")), ("optimizer_args", [1]), ("output_dir", True)],
)  # fmt: skip
def test_a_value_that_cannot_be_read_is_named(key, value):
    made = lora(**{key: value})
    assert key not in made.values
    [finding] = [finding for finding in made.findings if finding.kind == "invalid"]
    assert finding.key == key
    assert str(value)[:3] in finding.message or "1e999" in finding.message


@pytest.mark.parametrize("value", [["hidden"], {"a": "hidden"}])
def test_a_secret_is_never_shown(value):
    assert "hidden" not in " ".join(map(str, lora(wandb_api_key=value).findings))


def test_keys_of_other_tabs_and_unknown_keys_are_named_unless_they_say_nothing():
    made = lora(learning_rate_te=1e-4, learning_rate_te1=1e-5, flux1_clip_l="", block_lr="1,2", learnign_rate=3, x=None)
    assert [finding.key for finding in made.findings] == ["learning_rate_te", "block_lr", "learnign_rate"]
    assert "did you mean learning_rate?" in str(made.findings[-1])


def test_fields_of_other_families_are_named_only_when_they_were_touched():
    made = convert({"LoRA_type": "Standard", "sdxl": True, "logit_std": 1.0, "guidance_scale": 3.5, "mode_scale": 1.5})
    assert [finding.key for finding in made.findings] == ["mode_scale"]
