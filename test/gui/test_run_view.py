"""What is shown of a run, read from its events bit by bit."""

import re

import pytest

from kohya_gui import run_panels
from kohya_gui.charts import MOST_POINTS, Line, chart
from kohya_gui.pictures import SMALL_ENOUGH_BYTES, PictureShelf
from kohya_gui.run_view import MOST_STEPS, RunView
from kohya_gui.runs import Run
from sd_scripts.training.events import EventWriter
from sd_scripts.training.run_folder import RunFolder, Status


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder(tmp_path / "20260102-030405-cat").make()


def write_steps(writer, first, last):
    for step in range(first, last + 1):
        writer.write(
            "step",
            step=step,
            epoch=1,
            loss=1 / step,
            average_loss=2 / step,
            lr={"unet": 1e-3, "te": 5e-4},
            data_wait=0.25,
        )


def test_events_are_read_once_and_only_what_is_new(folder):
    view, writer = RunView(folder), EventWriter(folder.events)
    assert not view.update()
    write_steps(writer, 1, 3)
    assert view.update() and [step["step"] for step in view.steps] == [1, 2, 3]
    at = view.offset
    write_steps(writer, 4, 4)
    assert view.update() and len(view.steps) == 4 and view.offset > at
    assert not view.update()


def test_half_a_line_waits_for_its_rest(folder):
    view = RunView(folder)
    with folder.events.open("w", encoding="utf-8") as file:
        file.write('{"type": "warning", "mess')
        file.flush()
        assert not view.update()
        file.write('age": "hot"}\n')
    assert view.update() and view.warnings == ["hot"]


def test_the_learning_rates_are_split_by_part(folder):
    write_steps(EventWriter(folder.events), 1, 2)
    view = RunView(folder)
    view.update()
    assert view.rates() == {"unet": [(1, 1e-3), (2, 1e-3)], "te": [(1, 5e-4), (2, 5e-4)]}


def test_a_long_run_keeps_a_bounded_number_of_points(folder):
    write_steps(EventWriter(folder.events), 1, MOST_STEPS + 1001)
    view = RunView(folder)
    view.update()
    assert MOST_STEPS / 4 < len(view.steps) <= MOST_STEPS
    assert view.last["step"] == MOST_STEPS + 1001


def test_the_time_left_follows_the_recent_pace(folder):
    view = RunView(folder)
    view.steps = [{"step": s, "time": s * 10.0} for s in range(1, 11)] + [{"step": 110, "time": 200.0}]
    assert view.seconds_left(210) == pytest.approx(100 * 100 / 101, rel=0.35)
    assert view.seconds_left(0) is None
    assert RunView(folder).seconds_left(10) is None


def test_the_wall_has_a_row_for_a_prompt_and_a_column_for_a_step(folder):
    writer = EventWriter(folder.events)
    for step in (0, 10):
        for index, prompt in ((1, "b"), (0, "a")):
            writer.write(
                "sample", step=step, epoch=0, index=index, prompt=prompt, seed=1, path=f"samples/{step}-{index}.png"
            )
    view = RunView(folder)
    view.update()
    steps, rows = view.wall()
    assert steps == [0, 10]
    assert [prompt for prompt, _ in rows.values()] == ["a", "b"]
    assert rows[1][1][10] == folder.path / "samples/10-1.png"


def test_nothing_in_a_run_becomes_markup(folder):
    evil = "<img src=x onerror=alert(1)>\"'"
    folder.write_status(Status("failed", message=evil))
    folder.log.write_text(evil, encoding="utf-8")
    writer = EventWriter(folder.events)
    writer.write("sample", step=1, epoch=0, index=0, prompt=evil, seed=1, path=f"{evil}.png")
    writer.write("checkpoint", kind="model", step=1, epoch=0, path=evil, bytes=5)
    writer.write("warning", message=evil)
    writer.write("step", step=1, epoch=1, loss=1.0, average_loss=1.0, lr={evil: 0.1})
    writer.write("step", step=2, epoch=1, loss=1.0, average_loss=1.0, lr={evil: 0.1})
    view, run = RunView(folder), Run(folder, folder.read_status())
    view.update()
    shelf = PictureShelf(lambda path: None)
    pages = [
        run_panels.list_html([run], None),
        run_panels.head_html(run, view),
        run_panels.charts_html(view),
        run_panels.wall_html(view, shelf),
        run_panels.files_html(view),
        run_panels.log_html(run),
    ]
    assert not [page for page in pages if "<img src=x" in page or '>"' in re.sub(r"<[^<>]*>", "", page)]


def test_charts_leave_out_what_is_no_number():
    drawn = chart("Loss", [Line("loss", "strong", [(1, 0.5), (2, float("nan")), (3, float("inf")), (4, 0.25)])])
    (points,) = re.findall(r'points="([^"]*)"', drawn)
    assert len(points.split()) == 2
    assert "0.25" in drawn
    assert "polyline" not in chart("Loss", [Line("loss", "strong", [(1, float("nan"))])])


def test_charts_stay_small_however_long_the_run():
    drawn = chart("Loss", [Line("loss", "strong", [(step, step % 7 + 1) for step in range(100_000)])])
    (points,) = re.findall(r'points="([^"]*)"', drawn)
    assert MOST_POINTS / 2 < len(points.split()) <= MOST_POINTS + 1
    assert points.split()[-1].startswith("450.")  # the newest point is at the right end


def test_a_flat_curve_is_drawn_too():
    assert "polyline" in chart("Rate", [Line("unet", "line-0", [(1, 0.0), (2, 0.0)])])


def test_pictures_are_given_out_one_by_one_and_large_ones_as_small_copies(tmp_path):
    import random

    from PIL import Image

    small, large = tmp_path / "a #1 桌面.png", tmp_path / "large.png"
    Image.new("RGB", (64, 64)).save(small)
    Image.frombytes("RGB", (600, 400), random.Random(0).randbytes(600 * 400 * 3)).save(large)
    assert large.stat().st_size > SMALL_ENOUGH_BYTES
    given = []
    shelf = PictureShelf(given.append)
    assert shelf.thumb_url(small).endswith("a%20%231%20%E6%A1%8C%E9%9D%A2.png")
    assert given == [str(small)]
    shelf.thumb_url(large)
    with Image.open(given[-1]) as copy:
        assert copy.size == (256, 171)
    shelf.thumb_url(large)
    assert len(given) == 2  # once is enough


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "–"), (0.4, "0 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_durations_are_in_words(seconds, words):
    assert run_panels.duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"), [(999, "999 B"), (3_100_000, "3.1 MB"), (2_000_000_000, "2.0 GB"), (None, "")]
)
def test_sizes_are_in_words(count, words):
    assert run_panels.size(count) == words
