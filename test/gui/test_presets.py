"""Loading and saving presets and other settings files."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohya_gui.form_values import to_state
from kohya_gui.forms import FAMILY, FORMS
from kohya_gui.paths import PRESETS, PROJECT_ROOT
from kohya_gui.planning import check
from kohya_gui.presets import PresetFolder, load_settings, preset_toml
from kohya_gui.tabs.preset_row import loaded_html
from sd_scripts.errors import UserError
from sd_scripts.options.config_file import read_config_file
from test.gui.values import another_value

LORA = FORMS["lora"]
CIRCULATING = sorted((PROJECT_ROOT.parent / "shared/reference/configs_in_circulation").glob("*.json"))


@pytest.fixture
def folder(tmp_path) -> PresetFolder:
    (tmp_path / "shipped.toml").write_text("[lora]\nnetwork_dim = 4\n", encoding="utf-8")
    return PresetFolder(tmp_path)


def loaded(tmp_path, content, form=LORA, name="a.json"):
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / name).write_text(text, encoding="utf-8")
    return load_settings(tmp_path / name, form)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_save_load_save_is_identical_for_every_field(folder, form):
    state = to_state(form, {name: another_value(spec) for name, spec in form.specs.items()})
    path = folder.save("everything 桌面", preset_toml(form, state))
    first = path.read_bytes()
    back = folder.load("user_presets/everything 桌面", form)
    assert [words for level, words in back.notes if level != "note"] == []
    secrets = {name for name, spec in form.specs.items() if spec.secret}
    shown = to_state(form, back.values)
    shown.pop(FAMILY, None)
    assert set(shown) == set(form.specs) - secrets
    assert preset_toml(form, shown).encode() == first


@pytest.mark.parametrize("family", [*LORA.families])
@pytest.mark.parametrize("more", [{}, {"v2": True}])
def test_the_family_that_a_form_was_told_is_kept(folder, family, more):
    state = {FAMILY: family, "network_dim": "4", **more}
    path = folder.save("told", preset_toml(LORA, state))
    found = folder.load("user_presets/told", LORA)
    assert to_state(LORA, found.values) == state
    assert preset_toml(LORA, to_state(LORA, found.values)).encode() == path.read_bytes()
    assert not [words for level, words in found.notes if level != "note"]
    assert read_config_file(path) == ({"network_dim": 4, **more}, [])


def test_a_family_that_is_none_is_named(tmp_path):
    found = loaded(tmp_path, 'model_family = "sd9"\nseed = 3\n', name="a.toml")
    assert FAMILY not in found.values
    assert any("sd9" in words for level, words in found.notes if level == "error")


def test_secrets_are_never_written():
    text = preset_toml(LORA, {"wandb_api_key": "k3y", "huggingface_token": "t0ken", "seed": "1"})
    assert "seed = 1" in text and "k3y" not in text and "t0ken" not in text


def test_zero_reaches_the_file_as_zero():
    numbers = [
        name
        for name, spec in LORA.specs.items()
        if spec.type in (int, float)
        and not (spec.is_list or spec.choices or spec.default == 0)
        and (spec.minimum is None or spec.minimum <= 0)
        and (spec.exclusive_minimum is None or spec.exclusive_minimum < 0)
    ]
    assert len(numbers) > 30
    text = preset_toml(LORA, dict.fromkeys(numbers, "0"))
    for name in numbers:
        assert f"{name} = 0\n" in text or f"{name} = 0.0\n" in text or f'"{name}=0' in text


def test_names_are_listed_and_loaded(folder):
    folder.save("mine", preset_toml(LORA, {"network_dim": "9"}))
    assert folder.names() == ["shipped", "user_presets/mine"]
    assert folder.load("user_presets/mine", LORA).values == {"network_dim": 9}


def test_unknown_keys_are_named_with_the_nearest_known_one(folder, tmp_path):
    (tmp_path / "old.toml").write_text("network_dimm = 4\nlearning_rate = '1e-4'\n", encoding="utf-8")
    found = folder.load("old", LORA)
    assert set(found.values) == {"learning_rate"} and float(found.values["learning_rate"]) == 1e-4
    (words,) = [words for level, words in found.notes if level == "warning"]
    assert "network_dimm" in words and "network_dim" in words.replace("network_dimm", "")


def test_a_preset_of_the_known_gui_loads_with_its_family_and_remarks(tmp_path):
    old = {
        "LoRA_type": "Standard",
        "sdxl": True,
        "network_dim": "32",
        "network_alpha": 16.0,
        "epoch": 4,
        "max_train_steps": "",
        "lora_network_weights": "",
        "optimizer": "AdamW8bit",
        "max_resolution": "1024,1024",
        "no_such_thing": 3,
    }
    found = loaded(tmp_path, old)
    assert found.values[FAMILY] == "sdxl" and found.meant_for == ""
    assert found.values["network_dim"] == 32 and found.values["resolution"] == "1024,1024"
    shown = loaded_html(found, LORA)
    assert "no_such_thing" in shown and "remarks on the file" in shown


@pytest.mark.parametrize(
    ("keys", "form", "tab"),
    [
        ({"LoRA_type": "Standard", "network_dim": 4, "epoch": 1}, "finetune", "LoRA"),
        ({"token_string": "x", "num_vectors_per_token": 2, "epoch": 1}, "lora", "Textual Inversion"),
        ({"LoRA_type": "Standard", "network_dim": 4, "epoch": 1}, "lora", ""),
        ({"prompts_file": "a", "max_denoising_steps": 3, "epoch": 1}, "lora", "LECO"),
    ],
)
def test_a_file_for_another_tab_says_so(tmp_path, keys, form, tab):
    found = loaded(tmp_path, keys, FORMS[form])
    assert found.meant_for == tab
    assert (f"for the tab {tab}" in loaded_html(found, FORMS[form])) == bool(tab)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", '{"network_dim": 4,\n "x" }', "line 2"),
        ("a.toml", "a = 1\nx = = 1\n", "line 2"),
        ("a.toml", "[[datasets]]\n", "dataset"),
        ("a.json", "[]", "list"),
    ],
)
def test_broken_and_other_files_are_refused_with_words(tmp_path, name, content, words):
    with pytest.raises(UserError, match=words):
        loaded(tmp_path, content, name=name)


@pytest.mark.parametrize("name", ["~nobody-of-this-name/x", "x" * 5000, "a\0b", "/", ".", "..", "\ud800"])
def test_a_name_that_is_no_file_is_refused_with_words(folder, name):
    with pytest.raises(UserError):
        folder.load(name, LORA)


def test_settings_of_a_run_load_without_its_folder(tmp_path):
    found = loaded(tmp_path, "network_dim = 3\nrun_dir = 'runs/x'\n", name="config.toml")
    assert found.values == {"network_dim": 3} and [words for level, words in found.notes if level != "note"] == []


def test_a_byte_order_mark_does_no_harm(tmp_path):
    (tmp_path / "a.toml").write_bytes("\ufeffnetwork_dim = 3\n".encode())
    assert load_settings(tmp_path / "a.toml", LORA).values == {"network_dim": 3}


@pytest.mark.parametrize("name", ["", "  ", "../up", "a/b", "a\\b", "c:x", "..", "what?", "x" * 300, "a\nb", ".a"])
def test_a_preset_is_saved_nowhere_else(folder, name):
    with pytest.raises(UserError):
        folder.save(name, "")
    assert folder.names() == ["shipped"]


def test_a_value_that_does_not_fit_is_not_saved():
    with pytest.raises(UserError, match="network_dim"):
        preset_toml(LORA, {"network_dim": "eight"})
    with pytest.raises(UserError, match="conv_dim"):
        preset_toml(LORA, {"conv_dim": "eight"})


@pytest.mark.parametrize("path", sorted(PRESETS.rglob("*.toml")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_shipped_presets_fit_their_tab(path):
    form = FORMS[path.parent.name]
    found = load_settings(path, form)
    assert [words for level, words in found.notes if level != "note"] == [] and found.meant_for == ""
    wrong = [p for p in check(form, to_state(form, found.values)).problems if p.level == "error"]
    assert {p.option for p in wrong} <= {"pretrained_model_name_or_path", "train_data_dir", "output_dir", None}


@pytest.mark.skipif(not CIRCULATING, reason="no such files here")
@pytest.mark.parametrize("path", CIRCULATING, ids=lambda path: path.stem)
def test_presets_in_circulation_load_save_and_load_the_same(tmp_path, path):
    form = FORMS["finetune" if path.stem.startswith("finetune") else "lora"]
    state = to_state(form, load_settings(path, form).values)
    text = preset_toml(form, state)
    (tmp_path / "a.toml").write_text(text, encoding="utf-8")
    again = load_settings(tmp_path / "a.toml", form)
    assert preset_toml(form, to_state(form, again.values)) == text


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(values=st.dictionaries(st.sampled_from(sorted(LORA.specs)) | st.text(max_size=12), ANYTHING, max_size=6))
def test_no_file_crashes_the_page(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("odd") / "a.json"
    path.write_text(json.dumps({"network_dim": 4, "LoRA_type": "Standard"} | values), encoding="utf-8")
    try:
        found = load_settings(path, LORA)
    except UserError:
        return
    loaded_html(found, LORA)
    check(LORA, to_state(LORA, found.values)).report()
