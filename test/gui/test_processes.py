"""Exit codes in words."""

import pytest

from kohya_gui.processes import exit_words


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-9, "memory"),
        (137, "memory"),
        (-11, "segmentation fault"),
        (3221225477, "access violation"),
        (-15, "asked to end"),
        (2, "exit code 2"),
        (None, "ended from outside"),
    ],
)
def test_exit_codes_have_words(code, words):
    assert words in exit_words(code)


def test_the_number_stays_in_the_text():
    assert "-9" in exit_words(-9) and "SIGKILL" in exit_words(-9)
