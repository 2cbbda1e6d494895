"""Stands in for a trainer: takes the same arguments, writes a run folder, and behaves as STUB_ACT says.

Acts: finish; wait (until asked to stop); deaf (ignores requests and signals, with a child that does too); vanish;
explode; mute.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402

from sd_scripts.training.events import EventWriter  # noqa: E402
from sd_scripts.training.run_folder import RunFolder, Status  # noqa: E402


def main() -> int:
    run = RunFolder(Path(sys.argv[sys.argv.index("--run_dir") + 1]))
    act = os.environ.get("STUB_ACT", "finish")
    print("the stub runs", flush=True)
    print("token:", os.environ.get("HF_TOKEN", "none")[::-1], flush=True)
    if act == "mute":
        print("error: lr_scheduler = 'cosin': did you mean cosine?", flush=True)
        return 1
    me = psutil.Process()
    status = Status("running", "training", me.pid, me.create_time(), 3, 10, 1, 2)
    events = EventWriter(run.events)
    events.write("start", total_steps=10, total_epochs=2, first_step=0)
    for step in range(1, 4):
        events.write("step", step=step, epoch=1, loss=1.0 / step, average_loss=1.0 / step, lr={"unet": 1e-3})
    if act == "deaf":
        ignore_signals()
        subprocess.Popen([sys.executable, __file__, "--child"])
    run.write_status(status)
    if act == "vanish":
        os._exit(9)
    if act == "explode":
        os.kill(me.pid, signal.SIGKILL)
    end = "done"
    while act in ("wait", "deaf"):
        if act == "wait" and run.take_request("stop"):
            end = "stopped"
            break
        time.sleep(0.05)
    events.write("end", state=end, message="", step=3)
    run.write_status(Status(end, "", me.pid, me.create_time(), 3, 10, 1, 2))
    return 0


def ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    if "--child" in sys.argv:
        ignore_signals()
        time.sleep(600)
    sys.exit(main())
