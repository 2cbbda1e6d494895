"""TensorBoard as a process of the server."""

import time
import urllib.request

import pytest

from kohya_gui.board import Board, log_folder
from sd_scripts.errors import UserError


def test_a_run_without_logs_is_said(tmp_path):
    board = Board()
    with pytest.raises(UserError, match="no logs yet"):
        board.start(tmp_path / "tensorboard")
    assert not board.is_running
    board.stop()  # harmless


def test_a_missing_package_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="not installed"):
        Board().start(tmp_path)


def test_the_logs_are_where_the_settings_say(tmp_path):
    assert log_folder(tmp_path, None) == tmp_path / "tensorboard"
    assert str(log_folder(tmp_path, "/logs")) in ("/logs", "\\logs")


@pytest.mark.slow
def test_the_shown_address_answers_and_stop_ends_it(tmp_path):
    board = Board()
    url = board.start(tmp_path)
    assert board.start(tmp_path) == url  # a second click shows the same one
    try:
        until = time.monotonic() + 120
        while not board.answers():
            assert board.is_running and time.monotonic() < until
            time.sleep(0.2)
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert answer.status == 200
    finally:
        board.stop()
    assert not board.is_running and not board.answers()
