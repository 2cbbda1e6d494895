"""The forms in a real browser: what they show, hide, find and mark."""

import json
import random

import pytest

from kohya_gui.form_values import from_state, to_state
from kohya_gui.forms import FAMILY, FORMS
from kohya_gui.presets import preset_toml
from sd_scripts.options.effect import unmet_condition
from sd_scripts.options.families import FAMILIES
from test.gui.test_page import (
    SET,
    browser,
    choose_preset,
    field,
    load,
    model,
    open_section,
    open_tab,
    page,
    said,
    served,
)
from test.gui.values import another_value

pytestmark = pytest.mark.browser
__all__ = ["browser", "model", "page", "served"]  # fixtures
LORA = FORMS["lora"]
STATE = """tab => Object.fromEntries([...document.querySelectorAll(`#gui-${tab}-form [data-option]`)]
  .map((c) => [c.dataset.option, c.type === "checkbox" ? c.checked : c.value]))"""
SHOWN = """tab => [...document.querySelectorAll(`#gui-${tab}-form .field`)].filter((f) => !f.hidden)
  .map((f) => f.querySelector("[data-option]").dataset.option)"""


def search(page, text, tab="lora"):
    page.locator(f"#gui-{tab}-filter").fill(text)
    return page.evaluate(SHOWN, tab)


def save(page, name, tab):
    choose_preset(page, name, tab)
    page.locator(f"#gui-{tab}-save-preset").click()
    page.locator(f"#gui-{tab}-preset-said").get_by_text(name).first.wait_for()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_field_set_saved_loaded_and_saved_again_is_identical(page, served, form):
    _, manager, _ = served
    folder = manager.root.parent / "presets" / form.name / "user_presets"
    open_tab(page, form)
    wanted = to_state(form, {name: another_value(spec) for name, spec in form.specs.items()})
    page.evaluate(SET, [form.name, wanted])
    save(page, "all-first", form.name)
    assert (folder / "all-first.toml").read_text(encoding="utf-8") == preset_toml(form, wanted)
    page.locator(f"#gui-{form.name}-defaults").click()
    said(page, "All fields have their defaults", form.name)
    load(page, "user_presets/all-first", form.name)
    said(page, "Loaded all-first.toml", form.name)
    shown = page.evaluate(STATE, form.name)
    secrets = {name for name, spec in form.specs.items() if spec.secret}
    assert {name: shown[name] for name in wanted} == wanted | dict.fromkeys(secrets, "")
    save(page, "all-second", form.name)
    assert (folder / "all-second.toml").read_bytes() == (folder / "all-first.toml").read_bytes()


def test_one_load_is_enough_over_any_form(page, served):
    _, manager, _ = served
    load(page, "demo")
    save(page, "clean", "lora")
    page.evaluate(SET, ["lora", to_state(LORA, {name: another_value(spec) for name, spec in LORA.specs.items()})])
    load(page, "demo")
    said(page, "Loaded demo.toml")
    save(page, "after", "lora")
    folder = manager.root.parent / "presets" / "lora" / "user_presets"
    assert (folder / "after.toml").read_bytes() == (folder / "clean.toml").read_bytes()


def test_the_fields_are_labelled_for_everybody(page):
    faults = page.evaluate(
        """() => [...document.querySelectorAll("#gui-lora-form [data-option]")].filter((control) => {
          const ids = control.getAttribute("aria-describedby").split(" ");
          const [label] = control.labels;
          return !label?.textContent.trim() || ids.some((id) => !document.getElementById(id));
        }).map((control) => control.id)"""
    )
    assert faults == []
    ids = page.evaluate("[...document.querySelectorAll('.kform [id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    assert page.get_by_label("Learning rate", exact=True).first.get_attribute("id") == "lora--learning_rate"


def test_the_search_finds_by_name_label_and_help(page):
    assert "min_snr_gamma" in search(page, "min_snr")
    assert "min_snr_gamma" in search(page, "MIN SNR gamma")
    by_label = search(page, "base model")
    assert "pretrained_model_name_or_path" in by_label
    help_text = LORA.specs["train_batch_size"].help
    assert search(page, help_text[5:40]) == ["train_batch_size"]
    assert page.locator("#gui-lora-form mark:visible").count() > 0
    assert page.locator("#gui-lora-form .found").inner_text() == "1 option"
    assert field(page, "train_batch_size").is_visible()  # its section is open


def test_every_option_can_be_found(page):
    missing = page.evaluate(
        """(names) => names.filter((name) => {
          const search = document.querySelector("#gui-lora-filter");
          search.value = name;
          search.dispatchEvent(new Event("input"));
          const field = document.getElementById(`lora--${name}`).closest(".field");
          return field.hidden || !field.checkVisibility();
        })""",
        list(LORA.specs),
    )
    assert missing == []


def test_escape_ends_a_search_and_closes_what_it_opened(page):
    open_section(page, "Saving")
    before = page.evaluate(SHOWN, "lora")
    search(page, "latents")
    page.locator("#gui-lora-filter").press("Escape")
    assert page.evaluate(SHOWN, "lora") == before
    opened = page.locator("#gui-lora-form details.group[open]")
    assert [d.get_attribute("data-section") for d in opened.all()] == ["Saving"]
    assert page.locator("#gui-lora-form mark").count() == 0


def test_a_search_without_a_hit_says_so(page):
    assert search(page, "no such thing") == []
    page.get_by_text("No option fits").wait_for()


def test_a_slash_leads_to_the_search(page):
    page.locator("h1").first.click()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "gui-lora-filter"


def test_what_differs_from_its_default_is_marked_counted_and_reset(page):
    open_section(page, "Length")
    row = page.locator("#gui-lora-form .field", has=field(page, "seed"))
    assert "changed" not in row.get_attribute("class") and not row.locator(".reset").is_visible()
    field(page, "seed").fill("7")
    assert "changed" in row.get_attribute("class")
    count = page.locator('#gui-lora-form details[data-section="Length"] .count').first
    before = count.inner_text()
    row.locator(".reset").click()
    assert field(page, "seed").input_value() == "" and "changed" not in row.get_attribute("class")
    assert count.inner_text() != before


def test_the_default_typed_in_is_no_change_and_zero_is_one(page):
    page.evaluate(SET, ["lora", {"max_grad_norm": "1.0"}])
    row = page.locator("#gui-lora-form .field", has=field(page, "max_grad_norm"))
    assert "changed" not in row.get_attribute("class")
    page.evaluate(SET, ["lora", {"max_grad_norm": "0"}])
    assert "changed" in row.get_attribute("class")


def test_only_what_was_changed_is_shown_on_request(page):
    page.locator("#gui-lora-only-changed").check()
    shown = page.evaluate(SHOWN, "lora")
    assert "caption_prefix" in shown and "seed" not in shown and field(page, "caption_prefix").is_visible()
    page.locator("#gui-lora-only-changed").uncheck()
    assert not field(page, "caption_prefix").is_visible()


def test_the_switch_for_experts_is_remembered(page):
    open_section(page, "Saving")
    expert = next(n for n, s in LORA.specs.items() if s.group == "Saving" and s.level == "expert" and s.available)
    assert not field(page, expert).is_visible()
    page.locator("#gui-lora-expert").check()
    assert field(page, expert).is_visible()
    page.reload()
    page.locator("#gui-lora-plan .verdict").wait_for()
    assert page.locator("#gui-lora-expert").is_checked()
    open_section(page, "Saving")
    assert field(page, expert).is_visible()


def test_the_family_is_read_from_the_model_and_asked_only_without_one(page):
    assert not field(page, FAMILY).is_visible()
    assert "guidance_scale" not in page.evaluate(SHOWN, "lora")
    page.evaluate(SET, ["lora", {"guidance_scale": "2"}])
    row = page.locator("#gui-lora-form .field", has=field(page, "guidance_scale"))
    assert "idle" in row.get_attribute("class") and row.locator(".reason").text_content()
    field(page, "pretrained_model_name_or_path").fill("")
    field(page, FAMILY).wait_for()
    field(page, FAMILY).select_option("flux")
    assert "idle" not in row.get_attribute("class") or "not yet" in row.locator(".reason").text_content()


def test_defaults_follow_the_family(page):
    field(page, "pretrained_model_name_or_path").fill("")
    field(page, FAMILY).wait_for()
    for name, spec in LORA.specs.items():
        for family in spec.defaults:
            field(page, FAMILY).select_option(family)
            control = field(page, name)
            usual = to_state(LORA, {name: spec.defaults[family]})[name]
            offered = control.get_attribute("placeholder") or control.locator("option").first.text_content()
            assert str(usual) in offered, (name, family)


def idle_in_python(form, state, family):
    """Names of options that have no effect, by the program's own rules."""
    values, _ = from_state(form, state)
    typed = {name: spec.default_for(family) for name, spec in form.specs.items()}
    for part in form.models:
        options = part(**form.part(part, values))
        typed |= {name: getattr(options, name) for name in options.model_fields_set}
    idle = set()
    for name, spec in form.specs.items():
        if not spec.available or not FAMILIES[family].has(spec.only_for) or unmet_condition(spec, typed):
            idle.add(name)
    return idle


def test_page_and_program_agree_on_what_acts(page):
    draw = random.Random(7)
    field(page, "pretrained_model_name_or_path").fill("")
    field(page, FAMILY).wait_for()
    asked = {other for spec in LORA.specs.values() for other in spec.only_with if other in LORA.specs}
    for _ in range(12):
        page.locator("#gui-lora-defaults").click()
        said(page, "All fields have their defaults")
        page.wait_for_function("document.querySelectorAll('#gui-lora-form .field.changed').length === 0")
        family = draw.choice(LORA.families)
        chosen = draw.sample(sorted(asked), k=min(6, len(asked)))
        state = to_state(LORA, {name: another_value(LORA.specs[name]) for name in chosen})
        if "network_module" in LORA.specs:
            state["network_module"] = draw.choice(
                ["networks.lora", "networks.lora_flux", "lycoris.kohya", "networks.LoKr"]
            )
        page.evaluate(SET, ["lora", {**state, FAMILY: family}])
        shown = set(page.evaluate(SHOWN, "lora")) - {FAMILY}
        idle = idle_in_python(LORA, state, family)
        assert {name for name in LORA.specs if name not in idle} <= shown
        assert {name for name in idle if name not in state} & shown <= problems_shown(page)


def problems_shown(page):
    """Fields that are shown because something is wrong with them."""
    return set(
        page.evaluate(
            """[...document.querySelectorAll("#gui-lora-form .field[data-level]:not([data-level=''])")]
              .map((f) => f.querySelector("[data-option]").dataset.option)"""
        )
    )


HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script>",
    "${1+1} {{value}}",
    "\\",
    "'\"`",
    "a" * 20_000,
    "桌面\u202e",
    "-0",
    "1e999",
    "NaN",
]


@pytest.mark.parametrize("form", [LORA, FORMS["textual_inversion"]], ids=lambda form: form.name)
def test_hostile_values_stay_what_they_are(page, form):
    open_tab(page, form)
    texts = [
        n
        for n in page.evaluate(STATE, form.name)
        if n != FAMILY and not isinstance(page.evaluate(STATE, form.name)[n], bool)
    ][:60]
    for value in HOSTILE:
        page.evaluate(SET, [form.name, dict.fromkeys(texts, value)])
    page.locator(f"#gui-{form.name}-print").click()
    page.locator(f"#gui-{form.name}-said .bad").wait_for()
    page.reload()
    open_tab(page, form)
    shown = page.evaluate(STATE, form.name)
    kept = {name: value for name, value in shown.items() if name in texts and not form.specs[name].secret}
    assert set(kept.values()) == {HOSTILE[-1]}
    assert page.locator("#gui-tabs img[src=x]").count() == 0


def test_the_search_and_the_plan_stay_in_sight(page):
    page.mouse.move(400, 500)
    page.mouse.wheel(0, 700)
    page.wait_for_function("window.scrollY > 300")
    for part in ("#gui-lora-filter", "#gui-lora-start"):
        assert 0 <= page.locator(part).bounding_box()["y"] < 60


def test_prompts_may_be_several_lines(page):
    page.evaluate(SET, ["lora", {"sample_prompts": "a cat --w 64\na dog"}])
    assert field(page, "sample_prompts").evaluate("e => e.tagName") == "TEXTAREA"
    page.locator("#gui-lora-print").click()
    page.locator("#gui-lora-command").get_by_text("a dog").wait_for()


def test_a_form_is_light(page):
    """One HTML component a tab: the page itself knows no field."""
    config = page.evaluate("JSON.stringify(window.gradio_config).length")
    assert config < 1_000_000
    assert json.loads(page.evaluate("JSON.stringify(window.gradio_config.components.length)")) < 250
