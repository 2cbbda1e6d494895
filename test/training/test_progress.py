"""One line about a run: what it says, how a terminal draws it, and that files get only some."""

from __future__ import annotations

import io
import logging

import pytest

from sd_scripts.training import progress
from sd_scripts.training.progress import FIELD, BarHandler, NowAndThen, Progress, duration, speed


def at(step: int, total: int = 100) -> Progress:
    return Progress(step, total, 1, 4, 0.125, 0.5, 0.01, {"unet": 1e-4})


def record(told: object, **fields) -> logging.LogRecord:
    made = logging.LogRecord("sd_scripts", logging.INFO, "", 0, str(told), (), None)
    made.__dict__.update(fields)
    return made


def test_what_the_line_says():
    assert str(at(25)) == "step 25/100 (25%), epoch 1/4, loss 0.1250, 2.00 it/s, 0:00:37 left, lr unet 0.0001"
    assert str(at(100)).endswith("2.00 it/s, lr unet 0.0001")
    assert "waits for data 40%" in str(Progress(1, 2, 1, 1, 1.0, 3.0, 0.4, {}))
    assert at(25).bar() == "#####---------------"


@pytest.mark.parametrize(("seconds", "text"), [(0.25, "4.00 it/s"), (2.5, "2.50 s/it")])
def test_speed(seconds, text):
    assert speed(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(59, "0:00:59"), (3661, "1:01:01"), (90000, "1 d 1:00:00")])
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_files_get_a_line_now_and_then_and_the_last(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    seldom = NowAndThen()
    passed = []
    for step in range(1, 21):
        clock[0] += 1
        if seldom.filter(record(at(step, 20), **{FIELD: at(step, 20)})):
            passed.append(step)
    assert passed == [1, 6, 11, 16, 20]
    assert seldom.filter(record("a message"))


def test_a_terminal_draws_over_the_line_and_keeps_messages_above_it():
    stream = io.StringIO()
    handler = BarHandler(stream)
    handler.handle(record("begin"))
    handler.handle(record(at(1), **{FIELD: at(1)}))
    handler.handle(record("saved"))
    handler.handle(record(at(100), **{FIELD: at(100)}))
    handler.close()
    shown = [line.rsplit("\r", 1)[-1] for line in stream.getvalue().split("\n")]
    assert shown[:2] == ["begin", "saved"] and shown[2].startswith("#" * 20 + " step 100/100") and shown[3] == ""
