"""config.toml under the keys that users know, and other files that forms begin with."""

import json
from pathlib import Path

import pytest

from kohya_gui import settings
from kohya_gui.forms import FORMS, FRESH
from kohya_gui.gui_config import FOLDERS, entries, field_of, is_gui_config, remarks, why_not_used
from kohya_gui.paths import PROJECT_ROOT
from kohya_gui.settings import Start, read_start
from sd_scripts.errors import UserError
from sd_scripts.options.toml_files import load_toml

KNOWN = json.loads((Path(__file__).parents[1] / "data" / "gui_config_keys.json").read_text(encoding="utf-8"))
KEYS = {tuple(["", *name.split(".")][-2:]): fields for name, fields in KNOWN["keys"].items()}
WITHOUT_PLACE = {
    "stop_text_encoder_training",
    "no_token_padding",
    "train_blocks",
}  # shown on tabs without such an option
CROSSED = {  # the known program reads these for a second field too, of another meaning
    ("flux1", "model_type"): {"clip_l", "flux1_clip_l"},
    ("flux1", "timestep_sampling"): {"model_prediction_type"},
    ("folders", "reg_data_dir"): {"train_dir"},
}


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Writes a file and reads it as if it had been named on the command line."""
    monkeypatch.setattr(settings, "CONFIG", tmp_path / "none.toml")

    def read(text: str, name: str = "config.toml") -> Start:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return read_start(tmp_path / name)

    return read


@pytest.mark.parametrize("key", KEYS, ids=".".join)
def test_every_key_that_users_know_has_its_place(key):
    section, name = key
    content = {section: {name: "x"}} if section else {name: "x"}
    assert not any("not known" in words for words in remarks(content))
    if key in FOLDERS or why_not_used(key):
        return
    for field, tabs in KEYS[key].items():
        for tab in tabs.split():
            wanted = set(field.split()) - CROSSED.get(key, set())
            found = field_of(key, FORMS[tab].method)
            assert not wanted or found in wanted or (found is None and wanted <= WITHOUT_PLACE), (field, tab, found)


@pytest.mark.parametrize("name", KNOWN["in_the_example_only"])
def test_keys_that_were_never_read_are_read_or_explained(name):
    section, _, key = name.partition(".")
    assert not any("not known" in words for words in remarks({section: {key: 1}}))


def test_values_become_defaults_of_every_form(config):
    start = config(
        "[basic]\nlearning_rate = 0.0\nmax_resolution = '768,768'\nlr_warmup_steps = 5\n[advanced]\nkeep_tokens = 2\n"
    )
    assert set(start.defaults) == set(FORMS) and start.notes == ()
    for form in FORMS.values():
        values = start.defaults[form.name]
        assert values["resolution"] == "768,768" and values["learning_rate"] == "0"
        assert values["keep_tokens"] == "2" and values["lr_warmup_steps"] == "5"


def test_launch_options_are_among_them(config):
    start = config(
        "[accelerate_launch]\nnum_processes = 2\nmulti_gpu = true\ngpu_ids = '0,1'\nmixed_precision = 'bf16'\n"
    )
    wanted = {"num_processes": "2", "multi_gpu": True, "gpu_ids": "0,1", "mixed_precision": "bf16"}
    assert wanted.items() <= start.defaults["finetune"].items()


def test_what_is_for_one_family_waits_for_it(config):
    start = config("[basic]\ntrain_batch_size = 3\n[flux1]\nguidance_scale = 1.5\n[anima]\nsigmoid_scale = 2.0\n")
    assert "guidance_scale" not in start.defaults["lora"] and start.defaults["lora"][FRESH] is True
    assert start.defaults["lora"]["train_batch_size"] == "3"
    assert start.by_family["lora"] == {"flux": {"guidance_scale": "1.5"}, "anima": {"sigmoid_scale": "2"}}
    assert "flux" not in start.by_family["textual_inversion"]


def test_folders_are_where_browsing_begins_and_no_values(config, tmp_path):
    start = config(f"[model]\nmodels_dir = '{tmp_path.as_posix()}'\n[advanced]\nvae_dir = './models/VAE'\n[basic]\n")
    assert start.browse["lora"] == {"pretrained_model_name_or_path": tmp_path.as_posix(), "vae": "./models/VAE"}
    assert start.defaults["lora"] == {}


def test_a_model_in_the_place_of_its_folder_is_the_value(config):
    start = config("[model]\nmodels_dir = './models/a.safetensors'\n[basic]\n")
    assert start.defaults["lora"] == {"pretrained_model_name_or_path": "./models/a.safetensors"}


def test_unknown_keys_and_odd_values_are_named_in_the_log_and_on_the_page(config, caplog):
    start = config("odd_key = 1\n[basic]\nlearning_rate = 'fast'\ntrain_batch_sise = 2\n[nonsense]\na = 1\n")
    text = "\n".join(start.notes)
    for name in ("odd_key", "basic.train_batch_sise", "nonsense.a", "learning_rate"):
        assert name in text and name in caplog.text
    assert len(start.notes) == 4


@pytest.mark.parametrize(
    "value", ["[[1]]", "{a = {b = 1}}", "1979-05-27", "''", "nan", "'x'", "-1", "[]", f"'{'x' * 5000}'"]
)
def test_no_value_stops_the_start(config, value):
    for section in {section for section, _ in KEYS}:
        lines = [f"{name} = {value}" for of, name in KEYS if of == section]
        config("\n".join([f"[{section}]" if section else "", *lines, "[basic]" if section != "basic" else ""]))


def test_settings_of_a_trainer_fill_the_form_they_are_for(config):
    start = config("network_dim = 4\nlearning_rate = 1e-5\n")
    assert start.asked_for == {"lora": {"network_dim": "4", "learning_rate": "1e-5"}}
    start = config("[x]\ntrain_text_encoder = true\nlearning_rate_te1 = 1e-6\n")
    assert set(start.asked_for) == {"finetune"}


def test_a_preset_of_the_known_gui_is_taken_too(config):
    start = config('{"LoRA_type": "Standard", "network_dim": 7}', "old.json")
    assert start.asked_for["lora"]["network_dim"] == "7"


def test_a_missing_or_broken_file_is_an_error(config, tmp_path):
    with pytest.raises(UserError):
        read_start(tmp_path / "missing.toml")
    with pytest.raises(UserError, match="line 1"):
        config("x = = 1")


def test_the_file_in_the_projects_folder_gives_defaults_and_leaves_drafts(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "CONFIG", tmp_path / "config.toml")
    assert read_start(None) == Start()
    (tmp_path / "config.toml").write_text("[basic]\nseed = 5\n", encoding="utf-8")
    start = read_start(None)
    assert start.defaults["lora"] == {"seed": "5"} and not start.asked_for and start.source == "config.toml"


def test_allowed_paths_reach_the_server(config):
    assert config("[server]\nallowed_paths = ['/a', '/b']\n").allowed_paths == ("/a", "/b")


EXAMPLE = PROJECT_ROOT / "config_example.toml"


def uncommented() -> str:
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    return "\n".join(line.removeprefix("#") for line in lines if line != "#" and not line.startswith("# "))


def test_the_example_sets_nothing_until_a_line_is_taken_in(config):
    start = config(EXAMPLE.read_text(encoding="utf-8"))
    assert start.notes == () and not any(start.defaults.values()) and not start.asked_for
    assert is_gui_config(load_toml(EXAMPLE))


def test_every_line_of_the_example_is_understood(config):
    start = config(uncommented())
    assert start.notes == ()
    assert start.defaults["lora"]["num_processes"] == "2" and start.browse["lora"]["vae"] == "./models/VAE"


def test_the_example_holds_only_keys_that_have_a_place(tmp_path):
    (tmp_path / "a.toml").write_text(uncommented(), encoding="utf-8")
    keys = [key for key, _ in entries(load_toml(tmp_path / "a.toml"))]
    assert len(keys) > 100
    for key in keys:
        assert (
            key in FOLDERS or key == ("server", "allowed_paths") or any(field_of(key, f.method) for f in FORMS.values())
        )
