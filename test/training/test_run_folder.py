"""What trainer and GUI tell each other through files."""

import json

import pytest

from sd_scripts.training.events import EventWriter, read_events
from sd_scripts.training.run_folder import RunFolder, Status, new_run_path


def test_status_reads_back_and_ignores_what_a_newer_program_adds(tmp_path):
    folder = RunFolder(tmp_path).make()
    assert folder.read_status() is None
    folder.write_status(Status("running", "training", pid=7, created=1.5, step=3, total_steps=9))
    content = json.loads(folder.status_file.read_text(encoding="utf-8"))
    folder.status_file.write_text(json.dumps(content | {"later": 1}), encoding="utf-8")
    status = folder.read_status()
    assert (status.state, status.pid, status.created, status.step, status.total_steps) == ("running", 7, 1.5, 3, 9)
    assert status.updated > 1e9
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []


def test_a_request_is_taken_once(tmp_path):
    folder = RunFolder(tmp_path).make()
    assert not folder.take_request("stop")
    folder.request("stop")
    assert folder.take_request("stop")
    assert not folder.take_request("stop")


@pytest.mark.parametrize("name", ["a/b", 'x:"y"', "..", "桌面 [1]", "con\n", "n" * 300])
def test_run_folders_have_legal_names_and_are_never_shared(tmp_path, name):
    first = new_run_path(tmp_path, name)
    first.mkdir()
    second = new_run_path(tmp_path, name)
    second.mkdir()
    assert first != second and first.parent == second.parent == tmp_path
    assert not set(first.name) & set('/\\:*?"<>|\n')


def test_events_are_followed_line_by_line(tmp_path):
    path = tmp_path / "events.jsonl"
    assert read_events(path) == ([], 0)
    writer = EventWriter(path)
    writer.write("step", step=1, loss=0.5)
    events, offset = read_events(path)
    assert [(event["type"], event["step"]) for event in events] == [("step", 1)]
    writer.write("sample", prompt="日本 \n x", path="a b.png")
    writer.close()
    with path.open("ab") as file:
        file.write(b'{"type": "st')  # still being written
    events, offset = read_events(path, offset)
    assert [event["prompt"] for event in events] == ["日本 \n x"]
    with path.open("ab") as file:
        file.write(b'ep", "step": 2}\nrubbish\n')
    events, offset = read_events(path, offset)
    assert events == [{"type": "step", "step": 2}]
    assert offset == path.stat().st_size
