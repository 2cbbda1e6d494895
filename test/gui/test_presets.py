"""Loading and saving presets."""

import json

import pytest

from kohya_gui.form import Form
from kohya_gui.paths import PRESETS
from kohya_gui.planning import try_build
from kohya_gui.presets import PresetFolder, load_settings
from sd_scripts.errors import UserError
from sd_scripts.options.schema import specs
from test.gui.conftest import RECIPE
from test.gui.test_form import SPECS, another_value

KNOWN = specs(RECIPE.options)


@pytest.fixture
def folder(tmp_path) -> PresetFolder:
    (tmp_path / "shipped.toml").write_text("[lora]\nnetwork_dim = 4\n", encoding="utf-8")
    return PresetFolder(tmp_path)


def test_save_load_save_is_identical(folder):
    form = Form(RECIPE.options)
    values = {name: another_value(spec) for name, spec in SPECS.items()}
    wanted, _ = try_build(RECIPE.options, values)
    first = folder.save("everything 桌面", wanted).read_bytes()
    loaded = folder.load("user_presets/everything 桌面", KNOWN)
    assert loaded.notes == ()
    again, problems = try_build(RECIPE.options, form.given(form.shown(loaded.values)))
    assert not problems
    assert folder.save("everything 桌面", again).read_bytes() == first
    hidden_or_secret = {n for n, s in KNOWN.items() if s.secret or n not in SPECS}
    assert set(loaded.values) == set(KNOWN) - hidden_or_secret


def test_names_are_listed_and_loaded(folder):
    folder.save("mine", RECIPE.options(network_dim=9))
    assert folder.names() == ["shipped", "user_presets/mine"]
    assert folder.load("user_presets/mine", KNOWN).values == {"network_dim": 9}


def test_unknown_keys_are_named_with_the_nearest_known_one(folder, tmp_path):
    (tmp_path / "old.toml").write_text("network_dimm = 4\nlearning_rate = '1e-4'\n", encoding="utf-8")
    loaded = folder.load("old", KNOWN)
    assert loaded.values == {"learning_rate": "1e-4"}
    assert "network_dimm" in loaded.notes[0] and "network_dim" in loaded.notes[0].removeprefix("network_dimm")


def test_loading_starts_from_defaults():
    form = Form(RECIPE.options)
    shown = dict(zip(form.specs, form.shown({"network_dim": 4}), strict=True))
    assert shown["network_dim"] == "4" and shown["output_name"] == "" and shown["cache_latents"] is True


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", '{"LoRA_type": "Standard"}', "JSON"),
        ("a.toml", '{"LoRA_type": "Standard"}', "JSON"),
        ("a.toml", "a = 1\nx = = 1\n", "line 2"),
        ("a.toml", "[[datasets]]\n", "dataset"),
    ],
)
def test_files_of_other_kinds_are_refused_with_words(tmp_path, name, content, words):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=words):
        load_settings(tmp_path / name, KNOWN)


def test_a_byte_order_mark_does_no_harm(tmp_path):
    (tmp_path / "a.toml").write_bytes("\ufeffnetwork_dim = 3\n".encode())
    assert load_settings(tmp_path / "a.toml", KNOWN).values == {"network_dim": 3}


@pytest.mark.parametrize("name", ["", "  ", "../up", "a/b", "a\\b", "c:x", "..", "what?"])
def test_a_preset_is_saved_nowhere_else(folder, name):
    with pytest.raises(UserError):
        folder.save(name, RECIPE.options())
    assert folder.names() == ["shipped"]


@pytest.mark.parametrize("path", sorted(PRESETS.rglob("*.toml")), ids=lambda path: path.stem)
def test_shipped_presets_have_only_known_legal_options(path):
    loaded = load_settings(path, KNOWN)
    assert loaded.notes == ()
    assert not try_build(RECIPE.options, loaded.values)[1]
    assert json.dumps(loaded.values)
