"""Lengths: the arithmetic that users see in the plan is that of the loop."""

from types import SimpleNamespace

import pytest

from sd_scripts.training.steps import count_steps, save_interval_epochs


def length(**changes):
    return SimpleNamespace(
        **{"max_train_epochs": None, "max_train_steps": 1600, "gradient_accumulation_steps": 1} | changes
    )


@pytest.mark.parametrize(
    ("options", "batches", "per_epoch", "total", "epochs"),
    [
        (length(max_train_epochs=10), 20, 20, 200, 10),
        (length(max_train_steps=100), 20, 20, 100, 5),
        (length(max_train_steps=101), 20, 20, 101, 6),
        (
            length(max_train_epochs=3, gradient_accumulation_steps=4),
            10,
            3,
            9,
            3,
        ),  # 4 + 4 + 2 batches: the rest is not lost
        (length(max_train_epochs=2, max_train_steps=5), 7, 7, 14, 2),  # epochs decide
        (length(max_train_steps=1), 7, 7, 1, 1),
    ],
)
def test_steps(options, batches, per_epoch, total, epochs):
    steps = count_steps(options, batches)
    assert (steps.per_epoch, steps.total, steps.epochs) == (per_epoch, total, epochs)


def test_position_within_the_run():
    steps = count_steps(length(max_train_epochs=3, gradient_accumulation_steps=4), 10)
    assert [steps.epoch_of(step) for step in range(9)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [steps.batches_before(step) for step in range(4)] == [0, 4, 8, 0]


@pytest.mark.parametrize(
    ("ratio", "every", "epochs", "result"), [(None, 2, 10, 2), (None, None, 10, None), (5, 1, 10, 2), (30, None, 10, 1)]
)
def test_save_interval(ratio, every, epochs, result):
    assert save_interval_epochs(SimpleNamespace(save_n_epoch_ratio=ratio, save_every_n_epochs=every), epochs) == result
