"""What stands in a form outlives the page and the server."""

import pytest

from kohya_gui.drafts import Drafts
from kohya_gui.forms import FORMS

LORA = FORMS["lora"]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "drafts 桌面"


def test_a_draft_is_found_by_the_next_server(folder):
    Drafts(folder, {}, {}).save(LORA, {"output_name": "桌面 <x>", "flip_aug": True, "learning_rate": "fast"})
    again = Drafts(folder, {"lora": {"seed": "1"}}, {})
    assert again.load(LORA) == {"output_name": "桌面 <x>", "flip_aug": True, "learning_rate": "fast"}
    assert again.load(FORMS["finetune"]) == {}


def test_an_empty_form_is_a_draft_too(folder):
    drafts = Drafts(folder, {"lora": {"seed": "1"}}, {})
    assert drafts.load(LORA) == {"seed": "1"}
    drafts.save(LORA, {})
    assert drafts.load(LORA) == {} and Drafts(folder, {"lora": {"seed": "1"}}, {}).load(LORA) == {}


def test_what_nobody_changed_is_no_draft(folder):
    drafts = Drafts(folder, {"lora": {"seed": "1"}}, {})
    drafts.save(LORA, {"seed": "1"})
    assert not folder.exists()


def test_what_was_asked_for_comes_before_a_draft_until_something_is_typed(folder):
    Drafts(folder, {}, {}).save(LORA, {"seed": "1"})
    drafts = Drafts(folder, {}, {"lora": {"seed": "2"}})
    assert drafts.load(LORA) == {"seed": "2"}
    drafts.save(LORA, {"seed": "2"})
    assert drafts.load(LORA) == {"seed": "2"}
    drafts.save(LORA, {"seed": "3"})
    assert drafts.load(LORA) == {"seed": "3"}


def test_secrets_stay_in_the_browser(folder):
    Drafts(folder, {}, {}).save(LORA, {"wandb_api_key": "k3y", "seed": "1"})
    assert "k3y" not in (folder / "lora.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"{", b"[1, 2]", b'{"seed": {"a": 1}}', b"null"])
def test_a_damaged_draft_is_an_empty_one(folder, content):
    folder.mkdir()
    (folder / "lora.json").write_bytes(content)
    assert Drafts(folder, {}, {}).load(LORA) == {}


def test_a_folder_that_cannot_be_written_does_not_stop_the_work(tmp_path, caplog):
    (tmp_path / "file").touch()
    Drafts(tmp_path / "file", {}, {}).save(LORA, {"seed": "1"})
    assert "cannot be kept" in caplog.text
