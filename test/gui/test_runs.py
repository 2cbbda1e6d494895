"""States, queue and stopping of runs, with real processes."""

import os
import time
from dataclasses import replace

import psutil
import pytest

from kohya_gui.processes import ProcessMark
from kohya_gui.runs import RunManager, marks, read_run
from sd_scripts.errors import UserError
from sd_scripts.training.run_folder import RunFolder, Status
from test.gui.conftest import submit, wait_for


def state_is(state):
    return lambda run: run.status.state == state


def test_a_run_goes_from_its_start_to_done(manager, stub):
    run = submit(manager)
    done = wait_for(manager, run.name, state_is("done"))
    assert done.status.step == 3
    assert "the stub runs" in done.folder.log.read_text(encoding="utf-8")
    for name in ("config.toml", "command.txt", "versions.txt", "launch.json"):
        assert (done.folder.path / name).stat().st_size > 0


def test_the_same_settings_start_once_however_often_start_is_pressed(manager, stub):
    stub("wait")
    submit(manager)
    with pytest.raises(UserError, match="already"):
        submit(manager)
    assert len(manager.runs()) == 1


def test_a_second_run_waits_for_the_first(manager, stub):
    stub("wait")
    first = submit(manager)
    second = submit(manager, learning_rate=0.5)
    wait_for(manager, first.name, state_is("running"))
    assert manager.find(second.name).status.state == "queued"
    manager.stop(first.name)
    wait_for(manager, first.name, state_is("stopped"))
    wait_for(manager, second.name, state_is("running"))


def test_a_waiting_run_can_be_taken_from_the_queue(manager, stub):
    stub("wait")
    submit(manager)
    second = submit(manager, learning_rate=0.5)
    manager.stop(second.name)
    manager.advance()
    assert manager.find(second.name).status.state == "stopped"
    assert not second.folder.launch.exists()


def test_stop_lets_the_trainer_finish_its_step(manager, stub):
    stub("wait")
    run = submit(manager)
    wait_for(manager, run.name, state_is("running"))
    manager.stop(run.name)
    stopped = wait_for(manager, run.name, state_is("stopped"))
    assert '"end"' in stopped.folder.events.read_text(encoding="utf-8")  # it said good-bye itself


SECRETS = {"huggingface_token": "hf_sesame", "wandb_api_key": "open-5"}


def everything_in(run):
    return b"".join(path.read_bytes() for path in run.folder.path.rglob("*") if path.is_file())


def test_secrets_reach_the_trainer_and_no_file(manager, stub):
    run = submit(manager, **SECRETS)
    done = wait_for(manager, run.name, state_is("done"))
    assert "token: emases_fh" in done.folder.log.read_text(encoding="utf-8")  # the stub says it backwards
    assert not [secret for secret in SECRETS.values() if secret.encode() in everything_in(done)]


def test_secrets_of_a_waiting_run_are_kept_until_it_starts(manager, stub):
    stub("wait")
    first = submit(manager)
    second = submit(manager, learning_rate=0.5, **SECRETS)
    assert not [secret for secret in SECRETS.values() if secret.encode() in everything_in(second)]
    stub("finish")
    manager.stop(first.name)
    done = wait_for(manager, second.name, state_is("done"))
    assert "token: emases_fh" in done.folder.log.read_text(encoding="utf-8")


def test_a_waiting_run_that_lost_its_secrets_with_the_server_says_so(manager, stub):
    stub("wait")
    submit(manager)
    lost, other = submit(manager, learning_rate=0.5, **SECRETS), submit(manager, learning_rate=0.25)
    restarted = RunManager(manager.root)
    restarted.stop(restarted.active().name)
    wait_for(restarted, other.name, state_is("running"))
    failed = restarted.find(lost.name)
    assert failed.status.state == "failed"
    assert "HF_TOKEN" in failed.status.message and "again" in failed.status.message


def test_a_waiting_run_with_secrets_is_left_to_the_server_that_keeps_them(manager, stub, monkeypatch):
    stub("wait")
    first = submit(manager)
    waiting = submit(manager, learning_rate=0.5, **SECRETS)
    monkeypatch.setattr("kohya_gui.runs.os.getpid", lambda: 0)  # another server, while this one lives
    another = RunManager(manager.root)
    another.stop(first.name)
    wait_for(another, first.name, state_is("stopped"))
    another.advance()
    assert another.find(waiting.name).status.state == "queued"


@pytest.mark.skipif(os.name == "nt", reason="Windows ends processes without asking them")
def test_a_second_stop_ends_the_whole_tree_within_seconds(manager, stub):
    stub("deaf")
    run = submit(manager)
    running = wait_for(manager, run.name, state_is("running"))
    family = [p for m in marks(running) for p in [m.process(), *m.process().children(recursive=True)]]
    assert len({p.pid for p in family}) == 2
    manager.stop(run.name)
    began = time.monotonic()
    manager.stop(run.name)
    assert time.monotonic() - began < 8
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in family)
    assert manager.find(run.name).status.state == "stopped"
    assert manager.stop(run.name) == "This run is over already."  # once more is harmless


def test_a_run_that_does_not_obey_is_ended_after_the_grace_time(tmp_path, stub):
    stub("deaf")
    manager = RunManager(tmp_path, stop_grace_s=0.2)
    run = submit(manager)
    wait_for(manager, run.name, state_is("running"))
    manager.stop(run.name)
    wait_for(manager, run.name, state_is("stopped"), seconds=15)


def test_a_vanished_process_is_a_failure_with_words(manager, stub):
    stub("vanish")
    run = submit(manager)
    failed = wait_for(manager, run.name, state_is("failed"))
    assert "exit code 9" in failed.status.message
    assert failed.status.step == 3


@pytest.mark.skipif(os.name == "nt", reason="signals are of POSIX")
def test_a_killed_process_names_the_likely_reason(manager, stub):
    stub("explode")
    run = submit(manager)
    failed = wait_for(manager, run.name, state_is("failed"))
    assert "memory" in failed.status.message and "SIGKILL" in failed.status.message


def test_a_run_that_ends_before_its_first_status_shows_its_last_line(manager, stub):
    stub("mute")
    run = submit(manager)
    failed = wait_for(manager, run.name, state_is("failed"))
    assert failed.status.message == "error: lr_scheduler = 'cosin': did you mean cosine?"


def test_a_new_server_finds_a_running_run_and_can_stop_it(manager, stub):
    stub("wait")
    run = submit(manager)
    wait_for(manager, run.name, state_is("running"))
    restarted = RunManager(manager.root)
    assert restarted.active().name == run.name
    restarted.stop(run.name)
    wait_for(restarted, run.name, state_is("stopped"))


def test_a_new_server_continues_the_queue(manager, stub):
    stub("wait")
    first = submit(manager)
    second = submit(manager, learning_rate=0.5)
    wait_for(manager, first.name, state_is("running"))
    manager.stop(first.name)
    restarted = RunManager(manager.root)
    wait_for(restarted, second.name, state_is("running"))


def test_a_pid_that_now_belongs_to_somebody_else_is_not_the_run(tmp_path):
    folder = RunFolder(tmp_path / "20260101-000000-x").make()
    mine = psutil.Process()
    folder.write_status(Status("running", pid=mine.pid, created=mine.create_time() - 500, step=7))
    run = read_run(folder.path)
    assert run.status.state == "failed"
    assert run.status.step == 7
    folder.write_status(Status("running", pid=mine.pid, created=mine.create_time()))
    assert read_run(folder.path).status.state == "running"


def test_a_run_is_not_started_twice_by_two_servers(manager, stub):
    stub("wait")
    submit(manager)
    second = submit(manager, learning_rate=0.5)
    second.folder.launch.touch()  # another server was faster
    manager._start(manager.find(second.name))
    assert second.name not in manager._children
    second.folder.write_status(Status("done"))


@pytest.mark.parametrize("name", ["..", ".", "../runs", "", "nothing"])
def test_only_names_of_run_folders_are_runs(manager, name):
    assert manager.find(name) is None


def test_folders_that_are_no_runs_are_left_out(manager):
    (manager.root / "other").mkdir(parents=True)
    (manager.root / "file.txt").touch()
    assert manager.runs() == []


def test_a_folder_for_runs_that_cannot_be_written_is_said(tmp_path, stub):
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(UserError, match="cannot be written"):
        submit(RunManager(blocked / "runs"))


def test_marks_outlive_only_the_same_process():
    mark = ProcessMark.of(os.getpid())
    assert mark.process().pid == os.getpid()
    assert replace(mark, created=mark.created - 60).process() is None


def test_supervising_ends_with_the_server(manager, stub):
    stub("finish")
    manager.watch()
    run = submit(manager)
    for _ in range(200):
        if manager.find(run.name).is_over:
            break
        time.sleep(0.05)
    assert manager.find(run.name).status.state == "done"
    manager.close()
    assert not manager._thread.is_alive()
