"""The end of a log as a terminal shows it."""

import time

import pytest

from kohya_gui.logs import LONGEST_LINE, TAIL_BYTES, last_message, tail


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"a\nb\n", "a\nb"),
        (b"a\r\nb\r\n", "a\nb"),
        (b"10%\r20%\r30%\ndone\n", "30%\ndone"),
        (b"10%\r20%\r", "20%"),
        (b"\x1b[31mred\x1b[0m\n", "red"),
        ("桌面 é\n".encode(), "桌面 é"),
        (b"bad \xff byte\n", "bad \ufffd byte"),
        (b"", ""),
    ],
)
def test_lines_are_shown_as_a_terminal_shows_them(tmp_path, content, shown):
    (tmp_path / "log.txt").write_bytes(content)
    assert tail(tmp_path / "log.txt") == shown


def test_a_missing_log_is_empty(tmp_path):
    assert tail(tmp_path / "log.txt") == ""
    assert last_message(tmp_path / "log.txt") == ""


def test_endless_lines_and_large_files_cost_little(tmp_path):
    path = tmp_path / "log.txt"
    with path.open("wb") as file:
        file.truncate(100_000_000)  # a sparse file: 100 MB of nothing
        file.seek(0, 2)
        file.write(b"\n" + b"x" * 50_000 + b"\nlast\n")
    began = time.perf_counter()
    text = tail(path)
    assert time.perf_counter() - began < 0.5
    assert len(text) < TAIL_BYTES
    lines = text.split("\n")
    assert lines[-1] == "last"
    assert len(lines[-2]) == LONGEST_LINE + 2


def test_the_last_message_is_the_last_line_that_says_something(tmp_path):
    (tmp_path / "log.txt").write_bytes(b"first\nerror: seed: no number\n\n   \n")
    assert last_message(tmp_path / "log.txt") == "error: seed: no number"
