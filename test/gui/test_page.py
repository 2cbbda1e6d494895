"""The page in a real browser, with a stand-in for the trainer."""

import os
import re
import shutil
from pathlib import Path

import pytest

from kohya_gui import launch
from kohya_gui.app import look, make_page
from kohya_gui.paths import PROJECT_ROOT
from test.gui.conftest import STUB

pytestmark = pytest.mark.browser
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
WAIT_MS = 30_000
USABLE_S = 4.0


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
    path = os.environ.get("KOHYA_TEST_BROWSER") or next(filter(None, map(shutil.which, names)), None)
    with sync_api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        except sync_api.Error as failure:
            pytest.skip(f"no browser: {failure}")
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """Only its header is read here."""
    demo = PROJECT_ROOT / "models" / "demo" / "demo.safetensors"
    if demo.exists():
        return demo
    from test.tiny import tiny_model

    return tiny_model("sd1", tmp_path_factory.mktemp("model 桌面") / "tiny.safetensors")


@pytest.fixture(scope="module")
def served(tmp_path_factory, model):
    """A page with a runs folder and presets of its own; its trainer is the stub."""
    from PIL import Image

    root = tmp_path_factory.mktemp("gui [a] (b) 桌面")
    pictures = root / "data" / "2_cat"
    pictures.mkdir(parents=True)
    for number in range(3):
        Image.new("RGB", (64, 64), (80 * number, 0, 0)).save(pictures / f"{number}.png")
        (pictures / f"{number}.txt").write_text("a cat", encoding="utf-8")
    (root / "presets").mkdir()
    settings = {
        "pretrained_model_name_or_path": model.as_posix(),
        "train_data_dir": (root / "data").as_posix(),
        "output_dir": (root / "out").as_posix(),
        "output_name": "cat",
        "resolution": "64",
        "min_bucket_reso": 64,
        "network_dim": 4,
        "caption_prefix": "桌面 [x]",
        "max_train_epochs": 2,
    }
    lines = [f"{key} = {value!r}" for key, value in settings.items()]
    (root / "presets" / "demo.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def command(recipe, options, config_file, run_dir):
        return [launch.sys.executable, str(STUB), "--config_file", str(config_file), "--run_dir", str(run_dir)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "training_command", command)
        patch.setenv("STUB_ACT", "finish")
        patch.chdir(PROJECT_ROOT)
        page, manager = make_page(root / "runs", root / "presets")
        _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, footer_links=[], **look())
        manager.watch()
        yield url, manager, patch
        for run in manager.runs():
            while not manager.find(run.name).is_over:
                manager.stop(run.name)
        manager.close()
        page.close(verbose=False)


@pytest.fixture
def page(browser, served):
    url, _, patch = served
    patch.setenv("STUB_ACT", "finish")
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.foreign, page.faults = [], []
    page.on("request", lambda r: page.foreign.append(r.url) if not r.url.startswith((url, "data:", "blob:")) else None)
    page.on("pageerror", lambda fault: page.faults.append(str(fault)))
    page.goto(url)
    page.get_by_text("Ready to start.").or_(page.get_by_text("Cannot start yet.")).wait_for()
    yield page
    assert page.foreign == []
    assert page.faults == []
    context.close()


def field(page, name):
    return page.locator(f"#{name} input, #{name} textarea").first


def under(page, name):
    """The text that the style sheet puts under a field."""
    return page.evaluate(f"getComputedStyle(document.getElementById('{name}'), '::after').content")


def open_section(page, title):
    page.locator("button.label-wrap", has_text=re.compile(f"^{title}")).first.click()


def test_the_page_opens_with_a_form_that_can_start(page):
    assert field(page, "output_name").input_value() == "cat"
    page.get_by_text("Ready to start.").wait_for()
    plan = page.locator("#gui-plan").inner_text()
    assert "3 pictures × 2" in plan and "64 × 64" in plan
    assert page.evaluate("performance.timing.domInteractive - performance.timing.navigationStart") < 1000 * USABLE_S


def test_a_wrong_value_is_named_under_its_field_and_keeps_start_from_starting(page, served):
    _, manager, _ = served
    before = len(manager.runs())
    field(page, "learning_rate").fill("fast")
    page.get_by_text("Cannot start yet.").wait_for()
    assert "fast" in under(page, "learning_rate")
    page.locator("#gui-start").click()
    page.get_by_text("Not started").wait_for()
    assert len(manager.runs()) == before
    field(page, "learning_rate").fill("1e-3")
    page.get_by_text("Ready to start.").wait_for()
    assert under(page, "learning_rate") == "none"


def test_values_of_closed_sections_count(page):
    page.locator("#gui-show-command").click()
    command = page.locator("#gui-command")
    command.get_by_text("network_dim = 4").wait_for()
    assert "caption_prefix" in command.inner_text()


def test_start_shows_the_run_and_its_end(page, served):
    _, manager, _ = served
    field(page, "output_name").fill("first light")
    page.locator("#gui-start").click()
    page.locator("#gui-run-head").get_by_text("done").wait_for()
    assert "first light" in page.locator("#gui-run-head").inner_text()
    assert "the stub runs" in page.locator("#gui-run-log").inner_text()
    page.locator("#gui-run-charts polyline").first.wait_for()
    assert manager.runs()[0].status.state == "done"


def test_start_pressed_twice_starts_one_run_that_another_page_can_stop(page, served):
    _, manager, patch = served
    patch.setenv("STUB_ACT", "wait")
    before = len(manager.runs())
    field(page, "output_name").fill("twice")
    page.locator("#gui-start").dblclick()
    page.locator("#gui-run-head").get_by_text("running").wait_for()
    assert len(manager.runs()) == before + 1
    page.reload()
    page.locator("#gui-live").get_by_text("running").wait_for()
    page.get_by_role("tab", name="Runs").click()
    page.locator("#gui-run-stop").click()
    page.locator("#gui-run-head").get_by_text("stopped").wait_for()


def test_a_finished_file_is_replaced_only_after_a_question(page, served, tmp_path):
    _, manager, _ = served
    (tmp_path / "old.safetensors").touch()
    before = len(manager.runs())
    field(page, "output_dir").fill(str(tmp_path))
    field(page, "output_name").fill("old")
    page.locator("#gui-start").click()
    page.get_by_text("exists already").wait_for()
    assert len(manager.runs()) == before
    page.locator("#gui-replace").click()
    page.locator("#gui-run-head").get_by_text("done").wait_for()
    assert len(manager.runs()) == before + 1


def test_a_preset_is_saved_and_loaded_with_one_click_each(page):
    open_section(page, "LoRA")
    field(page, "network_dim").fill("77")
    open_section(page, "Size and buckets")
    page.locator("#flip_aug input").check()
    preset = field(page, "gui-preset")
    preset.fill("mine 桌面")
    preset.press("Enter")
    page.locator("#gui-save-preset").click()
    page.get_by_text("Saved as").wait_for()
    page.locator("#gui-save-preset").click()
    page.get_by_text("exists already").wait_for()
    page.locator("#gui-replace-preset").click()
    page.get_by_text("Saved as").wait_for()
    field(page, "network_dim").fill("5")
    page.locator("#flip_aug input").uncheck()
    page.locator("#gui-load-preset").click()
    page.get_by_text("Loaded").wait_for()
    assert field(page, "network_dim").input_value() == "77"
    assert page.locator("#flip_aug input").is_checked()


def test_a_json_preset_is_refused_with_words(page, tmp_path):
    (tmp_path / "old.json").write_text('{"LoRA_type": "Standard"}', encoding="utf-8")
    preset = field(page, "gui-preset")
    preset.fill(str(tmp_path / "old.json"))
    preset.press("Enter")
    page.locator("#gui-load-preset").click()
    page.get_by_text("this is a JSON file").wait_for()


def test_a_folder_is_chosen_in_the_page(page, tmp_path):
    (tmp_path / "bilder [a] 桌面" / "inner").mkdir(parents=True)
    field(page, "train_data_dir").fill(str(tmp_path))
    page.locator("#train_data_dir").get_by_role("button", name="Browse…").click()
    dialog = page.locator("dialog.browse")
    dialog.get_by_role("button", name="bilder [a] 桌面").click()
    dialog.get_by_role("button", name="inner").wait_for()
    dialog.get_by_role("button", name="Choose this folder").click()
    assert field(page, "train_data_dir").input_value() == str(tmp_path / "bilder [a] 桌面")
    page.get_by_text("Cannot start yet.").wait_for()  # the plan follows: no pictures there


def test_it_fits_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 800})
    for tab in ("LoRA", "Runs", "About"):
        page.get_by_role("tab", name=tab).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
