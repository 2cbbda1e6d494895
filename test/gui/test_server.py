"""The server as users start it: how fast, how large, how it is reached. Each test looks at a process of its own."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from kohya_gui.paths import PROJECT_ROOT

MOST_CONFIG_BYTES = 1_000_000
MOST_RSS_MIB = 300
SECONDS_BEYOND_GRADIO = 2.0


class Server:
    """`python kohya_gui.py` on a free port."""

    def __init__(self, tmp_path: Path, *flags: str):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        command = [sys.executable, str(PROJECT_ROOT / "kohya_gui.py"), "--server_port", str(self.port)]
        command += ["--runs_dir", str(tmp_path / "runs"), *flags]
        env = {key: value for key, value in os.environ.items() if key != "DISPLAY"} | {"LC_ALL": "C"}
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
        )

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate(timeout=30)

    def get(self, path: str = "", seconds: float = 90.0) -> bytes:
        """The first answer, however long the server needs to come up."""
        until = time.monotonic() + seconds
        while True:
            try:
                with urllib.request.urlopen(self.url + path, timeout=30) as answer:
                    return answer.read()
            except urllib.error.HTTPError:
                raise
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise
                time.sleep(0.02)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server that has just given its first answer."""
    with Server(tmp_path_factory.mktemp("server")) as server:
        server.page = server.get()
        server.cpu_seconds = cpu_seconds(psutil.Process(server.process.pid))
        yield server


def cpu_seconds(process: psutil.Process) -> float:
    """Seconds of work: on an idle machine the time that passes, on a busy one still the same."""
    times = process.cpu_times()
    return times.user + times.system


def test_the_page_is_small(server):
    config = server.get("config")
    assert len(config) <= MOST_CONFIG_BYTES
    assert len(json.loads(config)["dependencies"]) < 80
    assert not re.search(rb'(?:src|href)="https?://(?!127)', server.page)


def test_the_process_is_light_and_without_torch(server):
    for _ in range(3):
        server.get()
    process = psutil.Process(server.process.pid)
    assert process.memory_info().rss / 2**20 <= MOST_RSS_MIB
    if sys.platform == "linux":
        assert not [m.path for m in process.memory_maps() if "libtorch" in m.path]


def test_the_first_answer_comes_soon_after_gradio_is_imported(server):
    code = "import gradio, psutil; t = psutil.Process().cpu_times(); print(t.user + t.system)"
    gradio = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert server.cpu_seconds - float(gradio) <= SECONDS_BEYOND_GRADIO


def test_only_shown_files_are_given_out(server, tmp_path):
    (tmp_path / "secret.txt").write_text("x", encoding="utf-8")
    for path in (tmp_path / "secret.txt", PROJECT_ROOT / "pyproject.toml", Path("/etc/passwd")):
        with pytest.raises(urllib.error.HTTPError) as refused:
            server.get(f"gradio_api/file={quote(str(path))}")
        assert refused.value.code == 403


def test_modules_of_the_page_do_not_import_torch():
    code = "import sys; import kohya_gui.app, kohya_gui.tabs.runs, sd_scripts.plan; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_login_keeps_strangers_out(tmp_path):
    with Server(tmp_path, "--username", "ann", "--password", "secret") as server:
        server.get()
        for path in ("config", f"gradio_api/file={tmp_path}/runs"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                server.get(path)
            assert refused.value.code in (401, 403)


def test_a_busy_port_is_said_in_one_line(tmp_path):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        command = [sys.executable, str(PROJECT_ROOT / "kohya_gui.py"), "--server_port", str(busy.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "--server_port" in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_the_users_config_is_read_and_what_it_says_in_vain_is_named(tmp_path):
    config = tmp_path / "mine.toml"
    config.write_text("[basic]\nseed = 77\nsede = 1\n", encoding="utf-8")
    with Server(tmp_path, "--config", str(config)) as server:
        page = server.get().decode("utf-8")
        assert "basic.sede is not known" in page
        server.process.terminate()
        said, _ = server.process.communicate(timeout=30)
    assert "basic.sede is not known" in said


def test_a_settings_file_that_is_missing_is_said_in_one_line(tmp_path):
    command = [sys.executable, str(PROJECT_ROOT / "kohya_gui.py"), "--config", str(tmp_path / "none.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "none.toml" in done.stderr and "Traceback" not in done.stderr
