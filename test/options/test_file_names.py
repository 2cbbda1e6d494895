"""Names that a file can have on every system pass; all others are refused with what to do."""

import pytest

from sd_scripts.options.file_names import LONGEST, why_no_file_name


@pytest.mark.parametrize(
    "name", ["cat", "my model v1.0", "桌面 🎨", "it's", "-rf", "%41", "a.b.c", "ä" * (LONGEST // 2)]
)
@pytest.mark.parametrize("on_windows", [True, False])
def test_a_usable_name_passes(name, on_windows):
    assert why_no_file_name(name, on_windows=on_windows) is None


@pytest.mark.parametrize("name", [*'/\\:*?"<>|', "a\nb", "a\0b", ".", "..", "x" * 201, "桌" * 67])
def test_a_name_that_no_file_can_have_is_refused(name):
    message, remedy = why_no_file_name(f"{name}", on_windows=False)
    assert message and remedy


@pytest.mark.parametrize("name", ["CON", "nul.txt", "Com1", "lpt9.tar.gz", "aux "])
def test_devices_of_windows_are_refused_there(name):
    assert why_no_file_name(name, on_windows=True) is not None
    assert why_no_file_name(name, on_windows=False) is None


def test_a_name_that_only_begins_like_a_device_passes():
    assert why_no_file_name("console", on_windows=True) is None
