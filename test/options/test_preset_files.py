"""Every settings and preset file that circulates is recognised and read with the right values; nothing crashes the reader."""

import json
from pathlib import Path

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sd_scripts.errors import UserError
from sd_scripts.options.build import try_build
from sd_scripts.options.gui_presets import idle_values, keys_of
from sd_scripts.options.gui_presets.conversion import says_nothing
from sd_scripts.options.gui_presets.families import BOXES
from sd_scripts.options.gui_presets.fields import TABLES
from sd_scripts.options.launch import Launch
from sd_scripts.options.network_arguments import NetworkArguments
from sd_scripts.options.preset_files import load_file
from sd_scripts.options.recipes import RECIPES, recipe_for
from sd_scripts.options.schema import specs
from sd_scripts.options.toml_files import write_settings

CIRCULATION = Path(__file__).parents[3] / "shared" / "reference" / "configs_in_circulation"
FILES = sorted(CIRCULATION.glob("*.json"))
in_circulation = pytest.mark.skipif(not FILES, reason="the configs in circulation are not here")


def write(tmp_path, name, content):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return file


def load_json(tmp_path, content):
    return load_file(write(tmp_path, "a.json", json.dumps(content)))


# Kinds of files


@pytest.mark.parametrize(
    ("name", "content", "kind", "method"),
    [
        ("a.toml", "learning_rate = 1e-4\n", "settings_toml", None),
        ("a.toml", 'network_module = "networks.lora"\n', "settings_toml", "adapter"),
        ("a.toml", '[x]\nlearning_rate = 1e-4\n[y]\ntoken_string = "cat"\n', "settings_toml", "textual_inversion"),
        ("a.json", '{"LoRA_type": "Standard", "epoch": 1}', "gui_json", "adapter"),
        ("a.json", '{"outer": {"inner": {"LoRA_type": "Standard"}}}', "gui_json", "adapter"),
        ("a.json", '{"-- Basic --": null, "LoRA_type": "Standard", "-- More --": null}', "gui_json", "adapter"),
        ("a.json", '{"basic": {"LoRA_type": "Standard"}, "advanced": {"seed": 1}}', "gui_json", "adapter"),
        ("a.json", '{"optimizer_type": "AdamW", "learning_rate": 1}', "settings_json", None),
        ("a.json", '{"network_module": "networks.lora", "optimizer_type": "AdamW"}', "settings_json", "adapter"),
        ("preset.txt", '\n{"LoRA_type": "Standard", "seed": 1}', "gui_json", "adapter"),
        ("a.JSON", '{"optimizer": {"optimizer": "AdamW", "seed": 3}}', "gui_json", None),
    ],
)
def test_the_kind_is_told(tmp_path, name, content, kind, method):
    loaded = load_file(write(tmp_path, name, content))
    assert (loaded.kind, loaded.method) == (kind, method)
    assert loaded.findings[0].kind == "recognised"
    assert not [finding for finding in loaded.findings[1:] if finding.kind in ("ignored", "invalid")]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", '{"general": {}, "datasets": [{"subsets": []}]}', "dataset_config"),
        ("a.toml", "[[datasets]]\n", "dataset_config"),
        ("a.json", '["a cat", "a dog"]', "a list"),
        ("a.json", "[]", "an empty list"),
        ("a.json", '"text"', "a single str"),
        ("a.json", "null", "not settings"),
        ("a.json", '{"a/1.png": {"caption": "cat", "tags": "x"}, "2": {"caption": "dog"}}', "in_json"),
        ("a.json", '{"_class_name": "UNet2DConditionModel", "sample_size": 64}', "no settings file"),
        ("a.json", "{}", "no settings file"),
        ("a.json", '{"seed": 1,\n "epoch" 2}', "line 2, column 10"),
        ("a.toml", "seed = 1\nepoch = = 2\n", "line 2"),
        ("a.toml", "[a.b]\nseed = 1\n", "table inside a section"),
        ("a.toml", b"seed = 1 # \xe9", "UTF-8"),
        ("a.toml", "seed = " + "9" * 5000, "not valid TOML"),
        ("a.toml", "seed = " + "[" * 5000, "nested"),
        ("a.json", '{"seed": ' * 5000, "nested"),
        ("a.json", '{"LoRA_type": "Standard", "seed": ' + "[" * 500 + '"\\ud800"' + "]" * 500 + "}", "nested"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_other_files_are_refused_with_what_they_are(tmp_path, name, content, words):
    with pytest.raises(UserError) as failure:
        load_file(write(tmp_path, name, content))
    assert words in str(failure.value)
    assert name in str(failure.value)


def test_a_file_of_thousands_of_keys_is_refused_at_once(tmp_path):
    with pytest.raises(UserError, match="3001 keys"):
        load_json(tmp_path, {"LoRA_type": "Standard", **dict.fromkeys(map(str, range(3000)), 1)})


@pytest.mark.parametrize("name", ["none.json", "none.toml", "none", "."])
def test_a_file_that_is_not_there(tmp_path, name):
    with pytest.raises(UserError):
        load_file(tmp_path / name)


# Values


def test_loose_values_of_a_preset(tmp_path):
    given_values = {
        "seed": "1234",
        "lr_warmup": "10",
        "max_train_steps": "",
        "keep_tokens": None,
        "bucket_reso_steps": 64.0,
    }
    loaded = load_json(tmp_path, given_values)
    assert loaded.values == {"seed": 1234, "lr_warmup_steps": "10%", "bucket_reso_steps": 64}


def test_trainer_options_keep_their_values(tmp_path):
    content = """
    optimizer_args = ["betas=0.9,0.99"]
    max_grad_norm = 0
    lr_warmup_steps = 0.1
    sample_prompts = "C:\\\\prompts\\\\a.txt"
    network_args = ["conv_dim=4", "algo=lokr", "mystery=1"]
    network_module = "lycoris.kohya"
    persistent_data_loader_workers = 1
    lr_warmpu_steps = 10
    epoch = 3
    noise_offset_type = "Original"
    """
    loaded = load_file(write(tmp_path, "a.toml", content))
    assert loaded.values == {
        "optimizer_args": ["betas=0.9,0.99"], "max_grad_norm": 0, "lr_warmup_steps": 0.1,
        "sample_prompts": "C:\\prompts\\a.txt", "conv_dim": 4, "algo": "lokr", "network_args": ["mystery=1"],
        "network_module": "lycoris.kohya", "persistent_data_loader_workers": True,
        "lr_warmpu_steps": 10,  # unknown: the check that follows names the nearest
    }  # fmt: skip
    assert [finding.key for finding in loaded.findings if finding.kind == "ignored"] == ["epoch", "noise_offset_type"]


@pytest.mark.parametrize("name", ["a.toml", "a.json"])
def test_a_word_for_a_number_is_named(tmp_path, name):
    line = 'learning_rate = "abc"' if name == "a.toml" else '{"learning_rate": "abc", "optimizer_type": "Lion"}'
    loaded = load_file(write(tmp_path, name, line))
    assert "learning_rate" not in loaded.values
    [finding] = [finding for finding in loaded.findings if finding.kind == "invalid"]
    assert finding.key == "learning_rate"
    assert "'abc'" in finding.message


def test_keys_that_stand_twice_are_named(tmp_path):
    loaded = load_file(write(tmp_path, "a.json", '{"epoch": 1, "x": {"seed": 1}, "seed": 2, "epoch": 3}'))
    assert (loaded.values["seed"], loaded.values["max_train_epochs"]) == (2, 3)
    assert {f.key for f in loaded.findings if "counts" in f.message} == {"seed", "epoch"}
    loaded = load_file(write(tmp_path, "a.toml", "[a]\nseed = 1\n[b]\nseed = 2\n"))
    assert loaded.values == {"seed": 2}
    assert [f.key for f in loaded.findings if f.kind == "converted"] == ["seed"]


def test_the_toml_suffix_may_be_left_out(tmp_path):
    write(tmp_path, "a.toml", "seed = 1\n")
    assert load_file(tmp_path / "a").values == {"seed": 1}


def test_secrets_are_read_and_never_shown(tmp_path):
    loaded = load_json(tmp_path, {"LoRA_type": "Standard", "wandb_api_key": "hidden", "huggingface_token": ["hidden"]})
    assert loaded.values["wandb_api_key"] == "hidden"
    assert "hidden" not in " ".join(map(str, loaded.findings))


# Files in circulation: what they mean, worked out from the raw JSON


def number(value, default=0.0):
    return default if value in ("", None) else float(value)


def expected_values(raw):
    """Options by name, None for unset, computed without the tables."""
    is_adapter = "LoRA_type" in raw
    epochs, steps = number(raw.get("max_train_epochs")), number(raw.get("max_train_steps"))
    percent, scheduler = number(raw.get("lr_warmup")), raw.get("lr_scheduler")
    expected = {
        "learning_rate": float(raw["learning_rate"]),
        "optimizer_type": raw["optimizer"],
        "lr_scheduler": scheduler,
        "lr_warmup_steps": f"{percent:g}%" if percent and scheduler != "constant" else None,
        "max_train_epochs": epochs or (None if steps else number(raw.get("epoch")) or None),
        "max_train_steps": None if epochs else steps or None,
        "resolution": raw.get("max_resolution"),
        "mixed_precision": raw["mixed_precision"],
        "save_precision": raw["save_precision"],
        "seed": number(raw.get("seed")) or None,
        "train_batch_size": raw["train_batch_size"],
        "gradient_accumulation_steps": number(raw.get("gradient_accumulation_steps")) or None,
        "min_snr_gamma": raw.get("min_snr_gamma") or None,
        "max_token_length": {75: None}.get(
            int(number(raw.get("max_token_length"), 75)), number(raw.get("max_token_length"))
        ),
        "save_every_n_epochs": number(raw.get("save_every_n_epochs")) or None,
        "keep_tokens": int(number(raw.get("keep_tokens"))),
        "caption_extension": raw.get("caption_extension") or None,
        "bucket_reso_steps": raw.get("bucket_reso_steps"),
        "bucket_no_upscale": raw.get("bucket_no_upscale"),
        "min_bucket_reso": raw.get("min_bucket_reso"),
        "max_bucket_reso": raw.get("max_bucket_reso"),
        "cache_latents": raw["cache_latents"],
        "gradient_checkpointing": raw["gradient_checkpointing"],
        "xformers": True if raw["xformers"] in (True, "xformers") else None,
        "optimizer_args": [part.strip('"') for part in raw.get("optimizer_args", "").split()] or None,
        "max_data_loader_n_workers": int(raw["max_data_loader_n_workers"]),
        "shuffle_caption": raw.get("shuffle_caption"),
        "caption_dropout_rate": raw.get("caption_dropout_rate") or None,
        "sample_prompts": raw.get("sample_prompts") or None,
        "output_name": raw.get("output_name"),
        "max_grad_norm": raw.get("max_grad_norm"),
        "prior_loss_weight": raw.get("prior_loss_weight"),
    }
    is_multires = is_adapter and raw.get("noise_offset_type") == "Multires"
    expected["noise_offset"] = None if is_multires else number(raw.get("noise_offset")) or None
    is_original = is_adapter and raw.get("noise_offset_type") == "Original"
    expected["multires_noise_iterations"] = None if is_original else raw.get("multires_noise_iterations") or None
    return expected | (expected_of_adapter(raw) if is_adapter else {})


ALGOS = {"LoHa": "loha", "LoKr": "lokr", "LoCon": "locon", "DyLoRA": "dylora"}


def expected_of_adapter(raw):
    kind = raw["LoRA_type"]
    unet, text = float(raw["unet_lr"]), float(raw["text_encoder_lr"])
    both_follow = not unet and not text
    has_conv = kind not in ("Standard",) and number(raw.get("conv_dim"))
    return {
        "network_module": "lycoris.kohya" if kind.startswith("LyCORIS/") else "networks.lora",
        "algo": ALGOS[kind.removeprefix("LyCORIS/")] if kind.startswith("LyCORIS/") else None,
        "network_dim": raw["network_dim"],
        "network_alpha": raw["network_alpha"],
        "conv_dim": raw["conv_dim"] if has_conv else None,
        "conv_alpha": raw["conv_alpha"] if has_conv else None,
        "unet_lr": None if both_follow else unet,
        "text_encoder_lr": None if both_follow else [text],
        "network_train_unet_only": True if (unet and not text) or "unet_only" in raw["additional_parameters"] else None,
        "factor": raw.get("factor") if kind == "LyCORIS/LoKr" else None,
        "rank_dropout": raw.get("rank_dropout") or None,
        "module_dropout": raw.get("module_dropout") or None,
        "network_dropout": raw.get("network_dropout") or None,
        "scale_weight_norms": raw.get("scale_weight_norms") or None,
        "no_half_vae": raw.get("sdxl_no_half_vae") if raw.get("sdxl") else None,
        "cache_text_encoder_outputs": raw.get("sdxl_cache_text_encoder_outputs") if raw.get("sdxl") else None,
        "network_weights": raw.get("lora_network_weights") or raw.get("network_weights") or None,
        "training_comment": raw.get("training_comment") or None,
        "lr_scheduler_type": "CosineAnnealingLR"
        if "CosineAnnealingLR" in raw["additional_parameters"] + raw.get("lr_scheduler_type", "")
        else None,
    }


def same(ours, theirs):
    if isinstance(ours, (int, float)) and theirs is not None and not isinstance(ours, bool):
        return float(ours) == float(theirs)
    return ours == theirs


@in_circulation
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_files_in_circulation_mean_what_they_say(file):
    raw = json.loads(file.read_text(encoding="utf-8-sig"))
    loaded = load_file(file)
    wrong = {
        name: (loaded.values.get(name), value)
        for name, value in expected_values(raw).items()
        if not same(loaded.values.get(name), value)
    }
    assert not wrong
    assert not [finding for finding in loaded.findings if finding.kind == "invalid"]
    assert loaded.kind == "gui_json"
    is_sdxl = raw.get("sdxl") or raw.get("sdxl_checkbox")
    assert loaded.architecture == ("sdxl" if is_sdxl else None)


@in_circulation
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_files_in_circulation_fit_the_options_and_come_back_equal(tmp_path, file):
    loaded = load_file(file)
    recipe = recipe_for(loaded.method, loaded.architecture or "sd1")
    parts = {recipe.options: {}, NetworkArguments: {}, Launch: {}}
    for name, value in loaded.values.items():
        model = next((model for model in parts if name in specs(model)), None)
        assert model is not None, name
        parts[model][name] = value
    for model, values in parts.items():
        options, problems = try_build(model, values)
        assert options is not None, [str(problem) for problem in problems]
        write_settings(tmp_path / "again.toml", options)
        assert try_build(model, load_file(tmp_path / "again.toml").values)[0] == options


# Hostile files


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
    | st.sampled_from(["None", "true", "1e-4", "10%", "0", "Flux1", "chroma", "Multires", "--seed 1", '--a "b', "sdpa"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
KEYS = sorted(keys_of(None) | set().union(*(specs(recipe.options) for recipe in RECIPES.values())))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), ANYTHING, max_size=8),
    st.sampled_from(["", "Flux1", "LoCon"]),
)
def test_any_json_value_in_any_key_is_read_or_refused(tmp_path, content, kind):
    if kind:
        content = {"LoRA_type": kind, **content}
    try:
        loaded = load_json(tmp_path, content)
    except UserError as failure:
        assert "\n" not in str(failure)
        return
    assert all(isinstance(str(finding), str) and finding.message for finding in loaded.findings)
    assert all(value is not None for value in loaded.values.values())


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(KEYS), ANYTHING.filter(lambda value: not isinstance(value, dict)))
def test_no_value_is_lost_without_a_word(tmp_path, key, value):
    """A key alone on a LoRA preset: it sets something, or is named, or says nothing."""
    loaded = load_json(tmp_path, {"LoRA_type": "Standard", key: value})
    sets = set(loaded.values) - {"network_module"}
    is_said = any(finding.key for finding in loaded.findings)
    assert sets or is_said or says_nothing(value) or key in BOXES or is_a_default(key, value)


def is_a_default(key, value):
    """Values that mean the same as unset: the form's own words for it, and lists of nothing."""
    unset = TABLES["adapter"][key].unset if key in TABLES["adapter"] else ()
    words = {"noise_offset_type": ("Multires",), "LoRA_type": (value,), "model_type": ("flux",), "clip_skip": (1,)}
    return str(value).strip() in map(str, (*unset, *idle_values(key), *words.get(key, ()))) or not value


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=6))
def test_any_toml_value_in_any_key_is_read_or_refused(tmp_path, content):
    try:
        text = tomli_w.dumps(without_null(content))
        loaded = load_file(write(tmp_path, "a.toml", text))
    except (UserError, UnicodeEncodeError):
        return
    assert all(finding.message for finding in loaded.findings)


def without_null(value):
    if isinstance(value, dict):
        return {key: without_null(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_null(inner) for inner in value if inner is not None]
    return value
