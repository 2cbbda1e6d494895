"""Makes the virtual environment, installs what is missing, and starts the GUI or the tests.

    python kohya_gui/install.py gui [GUI flags]        what gui.sh and gui.bat run
    python kohya_gui/install.py test [pytest flags]    what test.sh and test.bat run
    python kohya_gui/install.py setup | setup-tests    only installs
    python kohya_gui/install.py python [arguments]     runs the environment's Python, with what the tests need installed

Runs before anything is installed, so it uses the standard library only and is one file. A stamp in the environment
remembers what was installed: the next start reads it and installs nothing.
Environment variables: KOHYA_VENV (folder of the environment), KOHYA_PYTHON (the Python to make it with),
KOHYA_TORCH_BACKEND (auto, cpu, cuda, rocm, xpu, none, or a name that uv knows, such as cu128).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
# The files of tests side by side; more processes would be short of memory for the models. A later -n of the user's wins.
TESTS_IN_PARALLEL = ("-n", "auto", "--maxprocesses", "4", "--dist", "loadfile")
REQUIREMENTS = PROJECT / "requirements.txt"
TEST_REQUIREMENTS = PROJECT / "requirements-test.txt"
STAMP_NAME = "kohya-installed.json"
TASKS = ("gui", "test", "setup", "setup-tests", "python")
SMALLEST_PYTHON, LARGEST_PYTHON = (3, 10), (3, 13)
PROBE_LIMITS = {
    "UV_HTTP_TIMEOUT": "10",
    "UV_HTTP_CONNECT_TIMEOUT": "5",
    "UV_HTTP_RETRIES": "0",
}  # seconds, seconds, count


class InstallError(Exception):
    """Something the user has to mend; the text says what and how."""


# --- the environment --------------------------------------------------------------------------------------------------


def venv_folder() -> Path:
    """Where the virtual environment is or will be."""
    chosen = os.environ.get("KOHYA_VENV")
    return Path(chosen).absolute() if chosen else PROJECT / "venv"


def venv_python(venv: Path) -> Path:
    return venv / "Scripts" / "python.exe" if os.name == "nt" else venv / "bin" / "python"


def is_inside(venv: Path) -> bool:
    """Whether this process runs the environment's own Python."""
    return venv.is_dir() and Path(sys.prefix).samefile(venv)


def works(python: Path) -> bool:
    """Whether an environment's Python runs; it does not once the Python it was made with is gone."""
    return (
        python.exists()
        and subprocess.run([str(python), "-I", "-c", ""], capture_output=True, check=False).returncode == 0
    )


def check_python_version() -> None:
    if SMALLEST_PYTHON <= sys.version_info[:2] <= LARGEST_PYTHON:
        return
    here = f"Python {platform.python_version()} at {sys.executable} does not fit: 3.10, 3.11, 3.12 or 3.13 is needed."
    if is_inside(venv_folder()):
        raise InstallError(f"{here} Delete the folder {venv_folder()} and start again.")
    raise InstallError(f"{here} Set KOHYA_PYTHON to one of these and start again.")


def create_venv(venv: Path) -> None:
    """Makes the environment with this Python; raises InstallError with the remedy when its venv module is missing."""
    print(f"Making a virtual environment with Python {platform.python_version()} in {venv}", flush=True)
    is_ours = (venv / "pyvenv.cfg").exists()  # an environment whose Python is gone is made anew, other folders are kept
    if venv.exists() and any(venv.iterdir()) and not is_ours:
        raise InstallError(f"{venv} exists and is not a virtual environment. Move it away or set KOHYA_VENV.")
    make = [sys.executable, "-I", "-m", "venv", *(["--clear"] if is_ours else []), str(venv)]
    if subprocess.run(make, check=False).returncode != 0:
        package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        raise InstallError(
            f"{sys.executable} could not make a virtual environment. On Debian and Ubuntu run"
            f" 'sudo apt install {package}' and start again."
        )


# --- the stamp --------------------------------------------------------------------------------------------------------


def fingerprint(requirement_files: Sequence[Path], backend: str) -> str:
    """Changes when another installation is due: other requirements, another Python, another wish for torch."""
    digest = hashlib.sha256()
    for file in (*requirement_files, PROJECT / "pyproject.toml"):
        digest.update(file.read_bytes() if file.exists() else b"")
        digest.update(b"\0")
    digest.update(f"{platform.python_version()} {platform.machine()} {backend}".encode())
    return digest.hexdigest()


def read_stamp(venv: Path) -> dict[str, str]:
    """What was installed before, by purpose; empty when nothing was or the file is damaged."""
    try:
        stamp = json.loads((venv / STAMP_NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(venv: Path, stamp: dict[str, str]) -> None:
    new = venv / f"{STAMP_NAME}.{os.getpid()}"
    new.write_text(json.dumps(stamp, indent=1), encoding="utf-8")
    new.replace(venv / STAMP_NAME)


# --- which torch ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """What decides which build of torch fits."""

    system: str  # linux, windows, darwin
    has_nvidia: bool = False
    has_amd: bool = False


@dataclass(frozen=True)
class Attempt:
    """One way to install torch. `trial` must succeed first, when there is one: it downloads nothing big."""

    what: str
    install: tuple[str, ...]
    trial: tuple[str, ...] = ()


def output_of(*argv: str) -> str:
    """What a short command prints, empty when it is missing, fails or hangs."""
    try:
        done = subprocess.run(argv, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def probe_machine() -> Machine:
    """Looks for graphics cards through their drivers' own tools."""
    system = platform.system().lower()
    nvidia_smi = shutil.which("nvidia-smi") or "/usr/lib/wsl/lib/nvidia-smi"
    has_nvidia = "GPU " in output_of(nvidia_smi, "-L") or Path("/proc/driver/nvidia/version").exists()
    has_amd = system == "linux" and not has_nvidia and "gfx" in output_of(*_rocminfo())
    return Machine(system, has_nvidia, has_amd)


def _rocminfo() -> tuple[str, ...]:
    return (shutil.which("rocminfo") or "/opt/rocm/bin/rocminfo",)


def choose_backend(wish: str, machine: Machine) -> str:
    """The kind of torch to install: the user's wish, or what fits the machine."""
    if wish != "auto":
        return wish
    if machine.system == "darwin":
        return "mps"
    if machine.has_nvidia:
        return "cuda"
    return "rocm" if machine.has_amd else "cpu"


def torch_attempts(backend: str, machine: Machine, requirement: str, uv: str | None) -> list[Attempt]:
    """Ways to install torch for `backend`, best first.

    uv knows where each build of torch is published, so no address is named here. pip knows only what the machine's
    configuration offers, by default the public builds: CUDA on Linux, CPU on Windows, Apple on macOS.
    """
    is_big = machine.system == "linux" and backend == "cpu"
    what = "pip's default build" + (" (with CUDA inside, about 3 GB; it runs without a card too)" if is_big else "")
    default = Attempt(what, (*pip("install"), requirement))
    if backend == "none":
        return []
    if backend == "mps" or (backend == "cpu" and machine.system != "linux"):
        return [default]

    uv_name = {
        "cuda": "auto" if machine.has_nvidia else {"windows": "cu128"}.get(machine.system),
        "rocm": "auto" if machine.has_amd else "rocm6.4",
    }.get(backend, backend)
    attempts = [_uv_attempt(uv, uv_name, requirement)] if uv and uv_name else []
    if backend == "cpu":  # a wheel that the machine's owner laid out for pip comes first: it costs no download
        local = (*pip("install"), "--no-index", "--no-deps", "--no-compile", requirement)
        attempts.insert(0, Attempt("a wheel on this machine", local, (*local, "--dry-run")))
    if machine.system == "linux" and backend in ("cpu", "cuda"):
        attempts.append(default)
    return attempts


def _uv_attempt(uv: str, name: str, requirement: str) -> Attempt:
    install = (uv, "pip", "install", "--python", sys.executable, "--torch-backend", name, requirement)
    return Attempt(f"uv's choice for '{name}'", install, (*install, "--dry-run"))


def pip(command: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-m", "pip", command, "--disable-pip-version-check")


def torch_requirement(requirements: Path) -> str:
    """The line of the requirements file that bounds torch, e.g. `torch>=2.6,<2.15`."""
    lines = requirements.read_text(encoding="utf-8").splitlines()
    found = [line.split("#")[0].strip() for line in lines if re.match(r"torch\s*([<>=!~]|$)", line)]
    return found[0] if found else "torch"


def installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def fits(version: str, requirement: str) -> bool:
    """Whether a version is inside bounds like `torch>=2.6,<2.15` (>=, <=, >, <, ==, != on release numbers)."""

    def numbers(text: str) -> tuple[int, ...]:
        release = tuple(int(n) for n in re.findall(r"\d+", text.split("+")[0])[:3])
        return release + (0,) * (3 - len(release))

    ours = numbers(version)
    compare = {
        ">=": ours.__ge__,
        "<=": ours.__le__,
        "==": ours.__eq__,
        "!=": ours.__ne__,
        ">": ours.__gt__,
        "<": ours.__lt__,
    }
    return all(
        compare[sign](numbers(bound)) for sign, bound in re.findall(r"(>=|<=|==|!=|>|<)\s*([\w.]+)", requirement)
    )


def install_torch(wish: str, requirement: str, before: str | None, uv: str | None) -> str:
    """Installs a fitting torch unless there is one; returns the kind that was chosen, now or last time (`before`)."""
    present = installed_version("torch")
    if present and fits(present, requirement) and wish in ("auto", "none", before):
        return before or wish
    if wish == "none":
        return wish
    machine = probe_machine()
    backend = choose_backend(wish, machine)
    print(f"Installing torch for: {backend}", flush=True)
    if present:
        run_or_fail([*pip("uninstall"), "--yes", "--quiet", "torch"], "remove the old torch")
    for attempt in torch_attempts(backend, machine, requirement, uv):
        if attempt.trial and not succeeds(attempt.trial, PROBE_LIMITS):
            print(f"  not to be had here: {attempt.what}", flush=True)
            continue
        print(f"  taking {attempt.what}", flush=True)
        if succeeds(attempt.install):
            return backend
    raise InstallError(
        f"torch for '{backend}' could not be installed. Set KOHYA_TORCH_BACKEND to another kind (cpu, cuda, rocm, xpu),"
        " or take the pip command that the PyTorch project's page 'Start Locally' gives for this machine, run it with"
        f" '{sys.executable} -m pip' in place of 'pip' ({requirement}), and start again."
    )


def report_torch(backend: str) -> None:
    """Prints the version and whether it sees the graphics card."""
    code = "import torch; print(torch.__version__, torch.cuda.is_available())"  # ROCm builds answer under cuda too
    version, _, sees_card = output_of(sys.executable, "-I", "-c", code).strip().partition(" ")
    print(f"  torch {version or 'does not start: see the lines above'}", flush=True)
    if backend in ("cuda", "rocm") and sees_card == "False":
        print("  It sees no graphics card: update its driver, or ignore this where the card comes later.", flush=True)


def find_uv() -> str | None:
    """uv from PATH or from the environment, where pip puts it if need be; None when it cannot be had."""
    beside = Path(sys.executable).parent / ("uv.exe" if os.name == "nt" else "uv")
    found = shutil.which("uv")
    if not found and not beside.exists():
        succeeds([*pip("install"), "--quiet", "uv>=0.8,<1"])
    return found or (str(beside) if beside.exists() else None)


# --- installing -------------------------------------------------------------------------------------------------------


def succeeds(argv: Sequence[str], extra_env: dict[str, str] | None = None) -> bool:
    """Whether a command ran to its end without error; a trial (one with `extra_env`) keeps its output to itself."""
    out = subprocess.DEVNULL if extra_env else None
    env = {"UV_SYSTEM_CERTS": "true", **os.environ, **(extra_env or {})}  # as pip: a company's own certificates count
    done = subprocess.run(argv, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def run_or_fail(argv: Sequence[str], purpose: str) -> None:
    if not succeeds(argv):
        raise InstallError(f"Could not {purpose}: the lines above say why. Mend that and start again.")


def install_packages(files: Sequence[Path], uv: str | None) -> None:
    """Installs requirement files, with uv when it is there (4 s against pip's 130 s), else with pip."""
    what = [word for file in files for word in ("-r", str(file))]
    # pip's own configuration may name a mirror, which uv would pass by
    has_mirror = any(".index-url=" in line for line in output_of(*pip("config"), "list").split())
    if uv and not has_mirror and succeeds([uv, "pip", "install", "--python", sys.executable, *what]):
        return
    run_or_fail([*pip("install"), *what], "install the packages")


def ensure_installed(venv: Path, wants_tests: bool, requirements: Path, wish: str) -> None:
    """Brings the environment up to date; does nothing when the stamp says that it is."""
    stamp = read_stamp(venv)
    files = [requirements, TEST_REQUIREMENTS]
    runtime, tests = fingerprint(files[:1], wish), fingerprint(files, wish)
    lacks_runtime = stamp.get("runtime") != runtime
    lacks_tests = wants_tests and stamp.get("tests") != tests
    if not lacks_runtime and not lacks_tests:
        return
    uv = find_uv()
    backend = stamp.get("torch")
    if lacks_runtime:
        backend = install_torch(wish, torch_requirement(requirements), backend, uv)
    print("Installing the packages" + (" and what the tests need" if wants_tests else ""), flush=True)
    install_packages(files if wants_tests else files[:1], uv)
    if lacks_runtime:
        report_torch(backend)
    # packages for the tests may move others: each stamp tells the state it was made in
    write_stamp(venv, {"torch": backend, "runtime": runtime, **({"tests": tests} if wants_tests else {})})


# --- the browser for the tests ----------------------------------------------------------------------------------------


def find_browser() -> str | None:
    """An installed Chromium, Chrome or Edge; the path in KOHYA_TEST_BROWSER wins."""
    chosen = os.environ.get("KOHYA_TEST_BROWSER")
    if chosen:
        return chosen
    for name in ("chromium", "google-chrome", "google-chrome-stable", "chrome", "msedge"):
        found = shutil.which(name)
        if found:
            return found
    folders = [os.environ.get(name, "") for name in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA")]
    programs = ["Google/Chrome/Application/chrome.exe", "Microsoft/Edge/Application/msedge.exe"]
    places = [Path(folder) / program for folder in folders if folder for program in programs]
    places += [Path(f"/Applications/{name}.app/Contents/MacOS/{name}") for name in ("Google Chrome", "Chromium")]
    return next((str(place) for place in places if place.exists()), None)


def install_browser() -> str | None:
    """Debian's Chromium where we may install it, else the one that playwright downloads; None when neither works."""
    if may_use_apt():
        print("Installing Chromium for the tests", flush=True)
        env = {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], env={**os.environ, **env}, check=False)
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
        subprocess.run(install, env={**os.environ, **env}, stdin=subprocess.DEVNULL, check=False)
        found = shutil.which("chromium")
        if found:
            return found
    if not succeeds([sys.executable, "-m", "playwright", "install", "chromium"]):
        return None
    ask = (
        "from playwright.sync_api import sync_playwright as start\nwith start() as p: print(p.chromium.executable_path)"
    )
    return output_of(sys.executable, "-c", ask).strip() or None


def may_use_apt() -> bool:
    """Whether this is Debian itself (Ubuntu's chromium package is a stub) and we are root."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    os_release = Path("/etc/os-release")
    is_debian = os_release.exists() and "ID=debian" in os_release.read_text(encoding="utf-8").splitlines()
    return is_root and is_debian and shutil.which("apt-get") is not None


# --- starting ---------------------------------------------------------------------------------------------------------


def hand_over(argv: Sequence[str]) -> int:
    """Replaces this process by `argv`; on Windows, which cannot, waits for it and returns its exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name != "nt":
        os.execv(argv[0], list(argv))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the child, which gets it too
    return subprocess.run(list(argv), check=False).returncode


def option_value(arguments: Sequence[str], name: str) -> str | None:
    """The value of `--name VALUE` or `--name=VALUE` among the GUI's flags."""
    for position, argument in enumerate(arguments):
        if argument == name and position + 1 < len(arguments):
            return arguments[position + 1]
        if argument.startswith(f"{name}="):
            return argument[len(name) + 1 :]
    return None


def torch_wish(arguments: Sequence[str]) -> str:
    """The kind of torch asked for by a flag or by the environment; auto when nobody asked."""
    flags = {"--use-rocm": "rocm", "--use-ipex": "xpu"}
    by_flag = [wish for flag, wish in flags.items() if flag in arguments]
    return (by_flag or [os.environ.get("KOHYA_TORCH_BACKEND", "").strip().lower() or "auto"])[0]


def start(task: str, arguments: Sequence[str], venv: Path) -> int:
    """Installs what `task` needs and starts it."""
    is_gui = task == "gui"
    file = option_value(arguments, "--requirements") if is_gui else None
    if not (is_gui and "--noverify" in arguments):
        wants_tests = task in ("test", "setup-tests", "python")
        requirements = Path(file).absolute() if file else REQUIREMENTS
        ensure_installed(venv, wants_tests, requirements, torch_wish(arguments if is_gui else []))
    if task in ("setup", "setup-tests"):
        return 0
    os.chdir(PROJECT)
    if is_gui:
        return hand_over([sys.executable, str(PROJECT / "kohya_gui.py"), *arguments])
    if task == "python":
        return hand_over([sys.executable, *arguments])
    browser = find_browser() or install_browser()
    if browser:
        os.environ["KOHYA_TEST_BROWSER"] = browser
    else:
        print(
            "No browser for the tests: install Chromium or Chrome, or set KOHYA_TEST_BROWSER to one.", file=sys.stderr
        )
    return hand_over([sys.executable, "-m", "pytest", *TESTS_IN_PARALLEL, *arguments])


def main(argv: Sequence[str]) -> int:
    """Runs one task; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="replace")  # a path in another script must not stop us on an old console
    if not argv or argv[0] not in TASKS:
        print(f"usage: install.py {{{','.join(TASKS)}}} [arguments]", file=sys.stderr)
        return 2
    try:
        check_python_version()
        venv = venv_folder()
        if is_inside(venv):
            return start(argv[0], argv[1:], venv)
        if Path(sys.executable) == venv_python(venv):
            raise InstallError(f"{venv} is no virtual environment: set KOHYA_VENV to another folder and start again.")
        if not works(venv_python(venv)):
            create_venv(venv)
        return hand_over([str(venv_python(venv)), "-I", str(Path(__file__).resolve()), *argv])
    except InstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. The next start goes on from here.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
