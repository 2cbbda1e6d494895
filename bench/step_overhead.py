"""What a whole trainer takes for a step, against a bare torch loop doing the same forward, backward and optimizer step.

    python bench/step_overhead.py [--steps 30] [--resolution 256] [--batch 2]

Both do their steps by turns, in one process, with the same model, optimizer and tensors: what else the machine does meets both
alike. Trainer: the next batch of the loader, draws, loss, gradients, clipping, optimizer, schedule, report, looks for requests.
The median of the pairs' ratios counts, in computing time, and by the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]
GOAL = 1.03
SHORTEST = 0.25  # seconds of a bare step for which the goal is meant


def measure(settings: dict, steps: int) -> tuple[list[float], list[float], list[float]]:
    """Ratios in computing time and by the clock, and seconds of the bare steps."""
    import torch

    from sd_scripts.options.build import build
    from sd_scripts.options.recipes import RECIPES
    from sd_scripts.plan import make_plan
    from sd_scripts.training import loop, session
    from sd_scripts.training.devices import make_accelerator
    from sd_scripts.training.processes import Processes
    from sd_scripts.training.setup import build_run

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    recipe = RECIPES["train_network"]
    options = build(recipe.options, settings)
    accelerator = make_accelerator(options)
    plan = make_plan(recipe, options)
    plan.require_no_errors()
    plan = session.with_seed(plan, accelerator)
    folder = session.open_run_folder(plan.options, plan)
    report = session.make_report(plan.options, folder)
    run = build_run(recipe, plan.options, plan, accelerator, Processes(accelerator), folder, report)
    report.started(0)
    run.method.set_training()
    bare = bare_step(run)
    computing, clock, seconds = [], [], []
    while len(clock) < steps + 2:
        groups = loop.grouped(run.loader.epoch(run.steps.epoch_of(run.step)), 1)
        while len(clock) < steps + 2:
            started = time.perf_counter(), time.process_time()
            group = next(groups, None)
            if group is None:
                break
            loop.optimizer_step(run, run.steps.epoch_of(run.step), group)
            between = time.perf_counter(), time.process_time()
            bare(group[0])
            ended = time.perf_counter(), time.process_time()
            clock.append((between[0] - started[0]) / (ended[0] - between[0]))
            computing.append((between[1] - started[1]) / (ended[1] - between[1]))
            seconds.append(ended[1] - between[1])
    run.loader.close()
    report.ended("done")
    return computing[2:], clock[2:], seconds[2:]  # the first ones make the optimizer's state


def bare_step(run):
    """A step on ready tensors, as the shortest script would do it."""
    import torch

    optimizer = run.optimizer.optimizer

    def step(batch) -> None:
        noisy, target = torch.randn_like(batch.latents), torch.randn_like(batch.latents)
        timesteps = torch.full((len(batch),), 500)
        loss = torch.nn.functional.mse_loss(run.trainee(noisy, timesteps, batch.tokens, batch.text).float(), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--resolution", type=int, default=256)
    parser.add_argument("--batch", type=int, default=2)
    chosen = parser.parse_args()
    from first_step import make_pictures

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {
            "pretrained_model_name_or_path": str(ROOT / "models" / "demo" / "demo.safetensors"),
            "train_data_dir": str(make_pictures(folder / "pictures", chosen.resolution)), "output_dir": str(folder / "out"),
            "resolution": str(chosen.resolution), "train_batch_size": chosen.batch, "max_train_steps": 100_000,
            "network_dim": 8, "cache_latents": True, "min_bucket_reso": 64, "seed": 1, "log_with": "tensorboard",
        }  # fmt: skip
        computing, clock, seconds = measure(settings, chosen.steps)
    bare = statistics.median(seconds)
    goal = GOAL if bare >= SHORTEST else None
    for name, value, unit, wanted in (
        ("step_bare_seconds", bare, "s", None),
        ("step_overhead_computing", statistics.median(computing), "x", goal),
        ("step_overhead_wall", statistics.median(clock), "x", goal),
    ):
        print(json.dumps({"name": name, "value": round(value, 4), "unit": unit, "goal": wanted, "better": "lower"}))


if __name__ == "__main__":
    main()
