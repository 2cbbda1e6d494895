"""The page in a real browser, with a stand-in for the trainer."""

import json
import os
import shutil
from pathlib import Path

import pytest

from kohya_gui import launch
from kohya_gui.app import DRAFTS, look, make_page
from kohya_gui.paths import PROJECT_ROOT
from test.gui.conftest import STUB

pytestmark = pytest.mark.browser
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
WAIT_MS = 20_000
USABLE_S = 4.0
SET = """([tab, values]) => {
  for (const [name, value] of Object.entries(values)) {
    const control = document.getElementById(`${tab}--${name}`);
    if (typeof value === "boolean") control.checked = value;
    else {
      if (control.tagName === "SELECT" && ![...control.options].some((o) => o.value === value)) {
        control.add(new Option(value, value));
      }
      control.value = value;
    }
    control.dispatchEvent(new Event(control.tagName === "SELECT" ? "change" : "input", { bubbles: true }));
  }
}"""  # as a user who opens every section would; a browser test of each key press would take minutes
DROP = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  document.querySelector(".presets").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
}"""


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
    (root / "presets" / "lora").mkdir(parents=True)
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
    (root / "presets" / "lora" / "demo.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def command(recipe, options, launched, config_file, run_dir):
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
    url, manager, patch = served
    patch.setenv("STUB_ACT", "finish")
    shutil.rmtree(manager.root / DRAFTS, ignore_errors=True)
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


def field(page, name, tab="lora"):
    return page.locator(f"#{tab}--{name}")


def under(page, name, tab="lora"):
    """The problems that stand under a field."""
    return page.locator(f"#{tab}--{name}--note").inner_text()


def open_section(page, title, tab="lora"):
    page.locator(f'#gui-{tab}-form details[data-section="{title}"] > summary').click()


def said(page, words, tab="lora"):
    """Wait for what the row of presets says."""
    page.locator(f"#gui-{tab}-preset-said").get_by_text(words).first.wait_for()


def open_tab(page, form):
    page.get_by_role("tab", name=form.title, exact=True).click()
    verdict = page.locator(f"#gui-{form.name}-plan .verdict")
    verdict.wait_for()


def choose_preset(page, name, tab="lora"):
    preset = page.locator(f"#gui-{tab}-preset input")
    preset.fill(name)
    preset.press("Enter")


def load(page, name, tab="lora"):
    choose_preset(page, name, tab)
    page.locator(f"#gui-{tab}-load-preset").click()
    page.locator(f"#gui-{tab}-preset-said .said").first.wait_for()


def test_the_page_opens_with_a_form_that_can_start(page):
    assert field(page, "output_name").input_value() == "cat"
    page.get_by_text("Ready to start.").wait_for()
    plan = page.locator("#gui-lora-plan").inner_text()
    assert "3 pictures × 2" in plan and "64 × 64" in plan
    assert page.evaluate("performance.timing.domInteractive - performance.timing.navigationStart") < 1000 * USABLE_S


def test_a_wrong_value_is_named_under_its_field_and_keeps_start_from_starting(page, served):
    _, manager, _ = served
    before = len(manager.runs())
    field(page, "learning_rate").fill("fast")
    page.get_by_text("Cannot start yet.").wait_for()
    assert "fast" in under(page, "learning_rate")
    assert field(page, "learning_rate").get_attribute("aria-invalid") == "true"
    page.locator("#gui-lora-start").click()
    page.get_by_text("Not started").wait_for()
    assert len(manager.runs()) == before
    assert field(page, "learning_rate").input_value() == "fast"
    field(page, "learning_rate").fill("1e-3")
    page.get_by_text("Ready to start.").wait_for()
    assert under(page, "learning_rate") == ""


def test_a_problem_in_the_plan_leads_to_its_field(page):
    page.evaluate(SET, ["lora", {"keep_tokens": "many"}])
    page.get_by_text("Cannot start yet.").wait_for()
    section = page.locator("#gui-lora-form details", has=field(page, "keep_tokens")).first
    assert section.get_attribute("data-level") == "error" and not field(page, "keep_tokens").is_visible()
    page.locator("#gui-lora-filter").fill("nothing at all")
    page.locator("#gui-lora-plan [data-jump=keep_tokens]").click()
    assert field(page, "keep_tokens").is_visible()
    assert page.evaluate("document.activeElement.id") == "lora--keep_tokens"


def test_values_of_closed_sections_count(page):
    page.locator("#gui-lora-print").click()
    command = page.locator("#gui-lora-command")
    command.get_by_text("network_dim = 4").wait_for()
    assert "caption_prefix" in command.inner_text()


def test_zero_reaches_the_settings_as_zero(page):
    page.evaluate(SET, ["lora", {"max_grad_norm": "0", "learning_rate": "0", "prior_loss_weight": "0"}])
    page.locator("#gui-lora-print").click()
    command = page.locator("#gui-lora-command")
    command.get_by_text("max_grad_norm").wait_for()
    text = command.inner_text()
    for name in ("max_grad_norm", "learning_rate", "prior_loss_weight"):
        assert f"{name} = 0.0" in text


def test_start_shows_the_run_and_its_end(page, served):
    _, manager, _ = served
    field(page, "output_name").fill("first light")
    page.locator("#gui-lora-start").click()
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
    page.locator("#gui-lora-start").dblclick()
    page.locator("#gui-run-head").get_by_text("running").wait_for()
    assert len(manager.runs()) == before + 1
    page.reload()
    page.locator("#gui-lora-live").get_by_text("running").wait_for()
    page.get_by_role("tab", name="Runs").click()
    page.locator("#gui-run-stop").click()
    page.locator("#gui-run-head").get_by_text("stopped").wait_for()


def test_a_finished_file_is_replaced_only_after_a_question(page, served, tmp_path):
    _, manager, _ = served
    (tmp_path / "old.safetensors").touch()
    before = len(manager.runs())
    field(page, "output_dir").fill(str(tmp_path))
    field(page, "output_name").fill("old")
    page.locator("#gui-lora-start").click()
    page.get_by_text("exists already").wait_for()
    assert len(manager.runs()) == before
    page.locator("#gui-lora-replace").click()
    page.locator("#gui-run-head").get_by_text("done").wait_for()
    assert len(manager.runs()) == before + 1


def test_a_preset_is_saved_and_loaded_with_one_click_each(page):
    open_section(page, "LoRA")
    field(page, "network_dim").fill("77")
    open_section(page, "Size and buckets")
    field(page, "flip_aug").check()
    choose_preset(page, "mine 桌面")
    page.locator("#gui-lora-save-preset").click()
    said(page, "Saved as")
    page.locator("#gui-lora-save-preset").click()
    page.get_by_text("exists already").wait_for()
    page.locator("#gui-lora-replace-preset").click()
    said(page, "Saved as")
    field(page, "network_dim").fill("5")
    field(page, "flip_aug").uncheck()
    page.locator("#gui-lora-load-preset").click()
    said(page, "Loaded")
    assert field(page, "network_dim").input_value() == "77"
    assert field(page, "flip_aug").is_checked()
    page.reload()
    page.locator("#gui-lora-preset input").click()
    page.get_by_role("option", name="user_presets/mine 桌面").wait_for()


def test_an_old_json_preset_loads_at_once_over_any_form(page, tmp_path):
    page.evaluate(SET, ["lora", {"seed": "9", "flip_aug": True, "unet_lr": "3"}])
    old = {"LoRA_type": "Standard", "network_dim": "12", "max_resolution": "768,768", "epoch": 3, "odd_one": 1}
    (tmp_path / "old.json").write_text(json.dumps(old), encoding="utf-8")
    load(page, str(tmp_path / "old.json"))
    said = page.locator("#gui-lora-preset-said")
    assert "Loaded old.json" in said.inner_text() and "odd_one" in said.inner_text()
    shown = [field(page, name).input_value() for name in ("network_dim", "resolution", "seed", "unet_lr")]
    assert shown == ["12", "768,768", "", ""]
    assert not field(page, "flip_aug").is_checked() and field(page, "output_name").input_value() == ""


@pytest.mark.parametrize("way", ["button", "drop"])
def test_a_file_of_the_users_computer_is_opened(page, tmp_path, way):
    path = tmp_path / "mine 桌面.toml"
    path.write_text("network_dim = 21\n", encoding="utf-8")
    if way == "button":
        with page.expect_file_chooser() as chooser:
            page.locator("#gui-lora-open-file").click()
        chooser.value.set_files(path)
    else:
        page.evaluate(DROP, [path.name, path.read_text(encoding="utf-8")])
    said(page, "Loaded")
    assert field(page, "network_dim").input_value() == "21"


def test_a_file_for_another_tab_says_which(page, tmp_path):
    (tmp_path / "ti.toml").write_text("token_string = 'x'\nnum_vectors_per_token = 2\n", encoding="utf-8")
    load(page, str(tmp_path / "ti.toml"))
    said(page, "for the tab Textual Inversion")


def test_starting_over_leaves_nothing(page):
    page.locator("#gui-lora-defaults").click()
    said(page, "All fields have their defaults")
    assert page.evaluate("document.querySelectorAll('#gui-lora-form .field.changed').length") == 0


def test_a_draft_outlives_a_reload_and_secrets_do_not(page, served):
    _, manager, _ = served
    page.evaluate(SET, ["lora", {"output_name": "not yet", "wandb_api_key": "k3y", "learning_rate": "fast"}])
    page.get_by_text("Cannot start yet.").wait_for()
    page.reload()
    page.get_by_text("Cannot start yet.").wait_for()
    assert field(page, "output_name").input_value() == "not yet"
    assert field(page, "learning_rate").input_value() == "fast"
    assert field(page, "wandb_api_key").input_value() == ""
    assert "k3y" not in (manager.root / DRAFTS / "lora.json").read_text(encoding="utf-8")
    assert page.locator("#lora--wandb_api_key").get_attribute("type") == "password"


def test_a_folder_is_chosen_in_the_page(page, tmp_path):
    (tmp_path / "bilder [a] 桌面" / "inner").mkdir(parents=True)
    field(page, "train_data_dir").fill(str(tmp_path))
    page.get_by_role("button", name="Browse for Picture folder").click()
    dialog = page.locator("dialog.browse")
    dialog.get_by_role("button", name="bilder [a] 桌面").click()
    dialog.get_by_role("button", name="inner").wait_for()
    dialog.get_by_role("button", name="Choose this folder").click()
    assert field(page, "train_data_dir").input_value() == str(tmp_path / "bilder [a] 桌面")
    page.get_by_text("Cannot start yet.").wait_for()  # the plan follows: no pictures there


def test_it_fits_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 800})
    for section in page.locator("#gui-lora-form details.group > summary:visible").all():
        section.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#gui-lora-filter").bounding_box()["width"] > 200
    for tab in ("DreamBooth", "Runs", "About"):
        page.set_viewport_size({"width": 1280, "height": 800})
        page.get_by_role("tab", name=tab).click()
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
