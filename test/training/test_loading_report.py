from types import SimpleNamespace

import torch

from sd_scripts.data.meters import Loading
from sd_scripts.training import report as reports
from sd_scripts.training.events import read_events
from sd_scripts.training.report import Report, StepNumbers
from sd_scripts.training.run_folder import RunFolder, Status


def test_what_loading_costs_stands_in_the_events_and_advice_is_given_once(tmp_path, monkeypatch):
    monkeypatch.setattr(reports, "SECONDS_BETWEEN_LOADINGS", 0.0)
    monkeypatch.setattr(reports, "SECONDS_BETWEEN_FETCHES", 0.0)
    told = [
        Loading(0.30, 12.0, 0.9, 5.0),
        Loading(0.34, 12.0, 0.9, 5.0, "waiting for data 34 % of the time: set cache_latents = true"),
        Loading(0.35, 12.0, 0.9, 5.0, "waiting for data 35 % of the time: set cache_latents = true"),
    ]
    folder = RunFolder(tmp_path / "run").make()
    report = Report(folder, Status("running"))
    waiting = iter(told)
    report.measures(SimpleNamespace(total=9, epochs=1, per_epoch=9), float, lambda: next(waiting))
    for step in (1, 2, 3):
        report.step(StepNumbers(step, 1, torch.tensor(0.5)))
    events, _ = read_events(folder.events)
    data = [event for event in events if event["type"] == "data"]
    assert [(event["step"], event["data_wait"], event["advice"]) for event in data] == [
        (step + 1, one.data_wait, one.advice) for step, one in enumerate(told)
    ]
    assert data[0]["images_per_second"] == 12
    assert data[0]["worker_cpu"] == 0.9
    assert data[0]["mb_per_second"] == 5
    assert [event["message"] for event in events if event["type"] == "warning"] == [told[1].advice]
