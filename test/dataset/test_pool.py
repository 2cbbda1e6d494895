import os
import threading
import time

import pytest

from sd_scripts.data.pool import MOST_DEATHS, Pool, WorkerDeath


def square(number, note):
    time.sleep(0.001 * (number % 3))  # so that results arrive out of order
    return number * number


def make(function, workers=2, **options):
    return Pool(function, workers, **options)


@pytest.fixture
def pool():
    made = make(square)
    yield made
    made.close()


@pytest.mark.parametrize("count", [0, 1, 5, 100])
def test_results_come_in_the_order_of_the_keys(pool, count):
    assert list(pool.results(range(count))) == [number * number for number in range(count)]


def test_a_second_call_ends_the_first(pool):
    first = pool.results(range(50))
    assert [next(first) for _ in range(3)] == [0, 1, 4]
    assert list(pool.results(range(100, 110))) == [number * number for number in range(100, 110)]


def test_it_starts_again_after_closing(pool):
    assert list(pool.results([2])) == [4]
    pool.close()
    assert list(pool.results([3])) == [9]


def fails_at_three(number, note):
    if number == 3:
        raise ValueError("three is not for me")
    return number


def test_a_failure_is_told_with_its_place():
    pool = make(fails_at_three)
    with pytest.raises(RuntimeError, match=r"(?s)fails_at_three.*three is not for me"):
        list(pool.results(range(6)))
    pool.close()


def dies_at_three(number, note):
    if note is not None:
        note(f"number {number}")
    if number == 3:
        os._exit(7)
    return number


def test_deaths_at_one_key_end_it_with_what_was_being_read():
    told = []
    pool = make(dies_at_three, on_death=told.append)
    results = pool.results(range(6))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(WorkerDeath, match="ended by itself \\(code 7\\)") as death:
        next(results)
    assert death.value.note == "number 3"
    assert len(told) == MOST_DEATHS - 1
    pool.close()


def dies_once(arguments, note):
    number, mark = arguments
    if number == 3 and not mark.exists():
        mark.touch()
        os._exit(1)
    return number


def test_one_death_changes_nothing(tmp_path):
    told = []
    pool = make(dies_once, on_death=told.append)
    assert list(pool.results([(number, tmp_path / "died") for number in range(20)])) == list(range(20))
    assert told == ["ended by itself (code 1)"]
    pool.close()


def test_results_are_finished_as_they_arrive():
    names = set()

    def finish(result):
        names.add(threading.current_thread() is threading.main_thread())
        return -result

    pool = make(square, finish=finish)
    assert list(pool.results(range(5))) == [0, -1, -4, -9, -16]
    assert names == {False}
    pool.close()


def test_a_failure_while_finishing_is_told():
    def finish(result):
        raise ValueError("not this one")

    pool = make(square, finish=finish)
    with pytest.raises(RuntimeError, match="not this one"):
        next(pool.results(range(5)))
    pool.close()


def counts(number, note):
    return number, os.getpid()


def test_no_more_is_made_ahead_than_said():
    pool = make(counts, workers=1, ahead=2)
    results = pool.results(range(100))
    next(results)
    time.sleep(0.2)
    assert len(pool._workers[0].tasks) <= 2
    assert pool._arrived.qsize() <= 2
    pool.close()


def large(number, note):
    return bytes(3_000_000)


def test_large_results_and_closing_in_the_middle():
    pool = make(large)
    results = pool.results(range(20))
    assert len(next(results)) == 3_000_000
    begin = time.monotonic()
    pool.close()
    assert time.monotonic() - begin < 5
