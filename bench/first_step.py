"""From the start of the process to the first finished step on a cached set, against the least that it takes.

    python bench/first_step.py [--runs 3] [--demo] [--resolution 256]

The least: importing torch and the model classes, reading the weights, and one bare step with a LoRA's worth of gradients. Both
run in processes of their own, by turns, and the best of the runs counts: in seconds of computing, which other programs on the
machine do not change much, and in seconds by the clock. The model is a random one of the real size of SD 1.5 (2 GB in a
temporary folder), or with `--demo` the small demo model, of whose start nearly everything is imports.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
GOAL = 1.2
PICTURES = 12

TRAINER = """
import os, sys, time
from sd_scripts.entry import main
import sd_scripts.training.run as run

def first(self, numbers, after_step=run.Run.after_step):
    after_step(self, numbers)
    self.report.fetch()  # the step is finished when its loss is known
    print("finished", time.time() - float(os.environ["STARTED"]), time.process_time(), flush=True)
    os._exit(0)

run.Run.after_step = first
sys.exit(main("train_network", sys.argv[1:]))
"""

LEAST = """
import os, sys, time
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from transformers import CLIPTextModel
from sd_scripts.models.detect import inspect
from sd_scripts.models.registry import load_architecture
from sd_scripts.options.recipes import NetworkTraining
from pathlib import Path

path, side = Path(sys.argv[1]), int(sys.argv[2]) // 8
model = load_architecture(NetworkTraining(), inspect(path), torch.device("cpu"), torch.float32)
unet, text = model.denoiser, model.text_encoders[0]
for network in (unet, text):
    network.requires_grad_(False).train()
lora = torch.nn.Parameter(torch.zeros(8, unet.config.cross_attention_dim))
hidden = text(torch.zeros(1, 77, dtype=torch.long))[0] + (torch.randn(1, 77, 8) @ lora)
loss = unet(torch.randn(1, 4, side, side), torch.tensor([500]), hidden).sample.square().mean()
optimizer = torch.optim.AdamW([lora])
loss.backward()
optimizer.step()
loss.item()
print("finished", time.time() - float(os.environ["STARTED"]), time.process_time(), flush=True)
os._exit(0)
"""


def timed(script: str, arguments: list[str]) -> tuple[float, float]:
    """Seconds by the clock and of computing until the script says that it has finished."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "STARTED": str(time.time())}
    environment.setdefault("OMP_NUM_THREADS", "1")
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("finished")), None)
    if line is None:
        raise SystemExit(done.stderr)
    _, wall, computing = line.split()
    return float(wall), float(computing)


def make_pictures(folder: Path, side: int) -> Path:
    from PIL import Image

    (folder / "1_thing").mkdir(parents=True)
    for number in range(PICTURES):
        Image.effect_noise((side, side), 20 + number).convert("RGB").save(folder / "1_thing" / f"{number}.png")
        (folder / "1_thing" / f"{number}.txt").write_text(f"a thing, number {number}", encoding="utf-8")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("--resolution", type=int, default=256)
    chosen = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(HERE)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = ROOT / "models" / "demo" / "demo.safetensors"
        if not chosen.demo:
            from load_checkpoint import make_model

            model = make_model(folder)
        settings = {
            "pretrained_model_name_or_path": model, "train_data_dir": make_pictures(folder / "pictures", chosen.resolution),
            "output_dir": folder / "out", "resolution": chosen.resolution, "max_train_steps": 100, "network_dim": 8,
            "cache_latents_to_disk": "true", "max_data_loader_n_workers": 0, "seed": 1,
        }  # fmt: skip
        arguments = [text for option, value in settings.items() for text in (f"--{option}", str(value))]
        timed(TRAINER, arguments)  # fills the cache
        pairs = [
            (timed(TRAINER, arguments), timed(LEAST, [str(model), str(chosen.resolution)])) for _ in range(chosen.runs)
        ]
    for number, kind in enumerate(("wall", "computing")):
        ours = min(pair[0][number] for pair in pairs)
        least = min(pair[1][number] for pair in pairs)
        print(
            json.dumps(
                {"name": f"first_step_{kind}", "value": round(ours, 2), "unit": "s", "goal": None, "better": "lower"}
            )
        )
        print(
            json.dumps(
                {
                    "name": f"first_step_{kind}_least",
                    "value": round(least, 2),
                    "unit": "s",
                    "goal": None,
                    "better": "lower",
                }
            )
        )
        print(json.dumps({"name": f"first_step_{kind}_ratio", "value": round(ours / least, 3), "unit": "x",
                          "goal": GOAL, "better": "lower"}))  # fmt: skip


if __name__ == "__main__":
    main()
