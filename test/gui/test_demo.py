"""A newcomer's first minutes: the page opens with the demo, Start is pressed, a LoRA file lies there at the end.

The real trainer runs, on the demo model. KOHYA_TEST_DEMO_EPOCHS sets how long (default: 1 epoch).
"""

import os

import pytest

from kohya_gui.paths import PROJECT_ROOT
from test.gui.test_page import browser, field, load, open_section, said  # noqa: F401 - browser is a fixture
from test.gui.test_server import Server

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not (PROJECT_ROOT / "models/demo/demo.safetensors").exists(), reason="no demo model"),
]
RUN_MS = 280_000


def test_the_demo_becomes_a_lora(browser, tmp_path):  # noqa: F811 - the imported fixture
    with Server(tmp_path) as server:
        server.get()
        page = browser.new_page()
        page.set_default_timeout(60_000)
        page.goto(server.url)
        load(page, "demo")
        said(page, "Loaded demo.toml")
        field(page, "output_dir").fill(str(tmp_path / "out"))
        field(page, "max_train_epochs").fill(os.environ.get("KOHYA_TEST_DEMO_EPOCHS", "1"))
        open_section(page, "Samples")
        field(page, "sample_every_n_epochs").fill("1")
        page.locator("#gui-lora-start").click()
        page.locator("#gui-run-head .badge").wait_for()
        page.locator("#gui-run-head .badge.done, #gui-run-head .badge.failed").wait_for(timeout=RUN_MS)
        head = page.locator("#gui-run-head").inner_text()
        assert "done" in head, f"{head}\n{page.locator('#gui-run-log').inner_text()}"
        assert (tmp_path / "out" / "demo-lora.safetensors").stat().st_size > 10_000
        assert "demo-lora.safetensors" in page.locator("#gui-run-files").inner_text()
        pictures = page.locator("#gui-run-wall img")
        assert pictures.count() >= 3
        pictures.first.scroll_into_view_if_needed()
        assert page.wait_for_function("document.querySelector('#gui-run-wall img').naturalWidth > 0")
        page.close()
