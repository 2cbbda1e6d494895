"""Defaults of config.toml on the page: general ones at once, those of a family once it is known."""

import json

import pytest

from kohya_gui.app import DRAFTS, look, make_page
from kohya_gui.forms import FAMILY
from kohya_gui.settings import read_start
from test.gui.test_page import browser, field, said

pytestmark = pytest.mark.browser
__all__ = ["browser"]  # a fixture
CONFIG = """
[basic]
seed = 41
seeed = 42
[model]
models_dir = "{folder}"
[flux1]
guidance_scale = 2.5
[anima]
sigmoid_scale = 3.0
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("config page")
    (root / "my models" / "nice").mkdir(parents=True)
    (root / "config.toml").write_text(CONFIG.format(folder=(root / "my models").as_posix()), encoding="utf-8")
    page, manager = make_page(root / "runs", root / "presets", read_start(root / "config.toml"))
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, footer_links=[], **look())
    yield url, manager, root
    page.close(verbose=False)


@pytest.fixture
def page(browser, place):
    url, manager, _ = place
    for draft in (manager.root / DRAFTS).glob("*"):
        draft.unlink()
    page = browser.new_page()
    page.set_default_timeout(20_000)
    page.goto(url)
    page.locator("#gui-lora-plan .verdict").wait_for()
    yield page
    page.close()


def test_general_defaults_are_there_and_unknown_keys_are_named(page):
    assert field(page, "seed").input_value() == "41"
    assert "basic.seeed is not known" in page.locator("#gui-start-notes").text_content()


def test_defaults_of_a_family_come_and_go_with_it(page):
    page.locator("#gui-lora-defaults").click()
    said(page, "those that config.toml sets")
    assert field(page, "guidance_scale").input_value() == ""
    field(page, FAMILY).select_option("flux")
    assert field(page, "guidance_scale").input_value() == "2.5"
    field(page, FAMILY).select_option("anima")
    assert field(page, "guidance_scale").input_value() == "" and field(page, "sigmoid_scale").input_value() == "3"
    assert field(page, "seed").input_value() == "41"


def test_a_loaded_file_is_left_as_it_is(page, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"LoRA_type": "Flux1", "flux1_checkbox": True, "network_dim": 3}))
    page.locator("#gui-lora-preset input").fill(str(tmp_path / "a.json"))
    page.locator("#gui-lora-preset input").press("Enter")
    page.locator("#gui-lora-load-preset").click()
    said(page, "Loaded a.json")
    assert field(page, FAMILY).input_value() == "flux"
    assert field(page, "guidance_scale").input_value() == "" and field(page, "seed").input_value() == ""


def test_browsing_begins_where_the_file_says(page):
    page.get_by_role("button", name="Browse for Base model").click()
    page.locator("dialog.browse").get_by_role("button", name="nice").wait_for()
