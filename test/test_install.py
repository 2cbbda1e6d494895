"""Which torch is chosen, when an installation is due, and that a second start does none."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kohya_gui import install
from kohya_gui.install import Machine

LINUX, WINDOWS, MAC = "linux", "windows", "darwin"


@pytest.mark.parametrize(
    ("wish", "machine", "backend"),
    [
        ("auto", Machine(LINUX), "cpu"),
        ("auto", Machine(WINDOWS), "cpu"),
        ("auto", Machine(LINUX, has_nvidia=True), "cuda"),
        ("auto", Machine(WINDOWS, has_nvidia=True), "cuda"),
        ("auto", Machine(LINUX, has_amd=True), "rocm"),
        ("auto", Machine(MAC), "mps"),
        ("cpu", Machine(LINUX, has_nvidia=True), "cpu"),
        ("cu128", Machine(LINUX), "cu128"),
        ("none", Machine(LINUX), "none"),
    ],
)
def test_the_backend_follows_the_wish_then_the_machine(wish: str, machine: Machine, backend: str) -> None:
    assert install.choose_backend(wish, machine) == backend


@pytest.mark.parametrize(
    ("backend", "machine", "ways"),
    [
        ("cpu", Machine(LINUX), ["local", "uv cpu", "pip"]),
        ("cpu", Machine(WINDOWS), ["pip"]),
        ("mps", Machine(MAC), ["pip"]),
        ("cuda", Machine(LINUX, has_nvidia=True), ["uv auto", "pip"]),
        ("cuda", Machine(LINUX), ["pip"]),  # an image built without a card: the public Linux build has CUDA
        ("cuda", Machine(WINDOWS, has_nvidia=True), ["uv auto"]),  # never the public Windows build, which is for CPUs
        ("cuda", Machine(WINDOWS), ["uv cu128"]),
        ("rocm", Machine(LINUX, has_amd=True), ["uv auto"]),
        ("rocm", Machine(LINUX), ["uv rocm6.4"]),
        ("xpu", Machine(LINUX), ["uv xpu"]),
        ("cu126", Machine(LINUX, has_nvidia=True), ["uv cu126"]),
        ("none", Machine(LINUX), []),
    ],
)
def test_the_ways_to_install_torch_never_end_in_the_wrong_kind(backend: str, machine: Machine, ways: list[str]) -> None:
    def name(attempt: install.Attempt) -> str:
        if attempt.install[0] == "/uv":
            return "uv " + attempt.install[attempt.install.index("--torch-backend") + 1]
        return "local" if "--no-index" in attempt.install else "pip"

    attempts = install.torch_attempts(backend, machine, "torch>=2.6,<2.15", "/uv")
    assert [name(attempt) for attempt in attempts] == ways
    assert all(attempt.install[-1] == "torch>=2.6,<2.15" for attempt in attempts)


def test_without_uv_only_pip_is_left() -> None:
    assert install.torch_attempts("rocm", Machine(LINUX, has_amd=True), "torch", None) == []
    assert len(install.torch_attempts("cuda", Machine(LINUX, has_nvidia=True), "torch", None)) == 1


@pytest.mark.parametrize(
    ("version", "is_inside"),
    [
        ("2.6.0", True),
        ("2.13.0+cpu", True),
        ("2.14.1+cu130", True),
        ("2.5.1", False),
        ("2.15.0", False),
        ("2.15.0.dev20260901+cu128", False),
        ("10.0", False),
    ],
)
def test_bounds_compare_release_numbers(version: str, is_inside: bool) -> None:
    assert install.fits(version, "torch>=2.6,<2.15") is is_inside


def test_the_bounds_of_torch_are_read_from_the_requirements(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("torchvision\ntorch-optimi\ntorch >= 2.6, <3  # not 1\naccelerate\n", encoding="utf-8")
    assert install.torch_requirement(file) == "torch >= 2.6, <3"
    assert install.torch_requirement(install.REQUIREMENTS).startswith("torch>=")


@pytest.mark.parametrize(
    ("present", "wish", "before", "is_kept"),
    [
        ("2.13.0+cpu", "auto", None, True),  # the user's own torch stays
        ("2.13.0+cpu", "cpu", "cpu", True),
        ("2.13.0+cpu", "none", None, True),
        ("2.13.0+cpu", "cuda", "cpu", False),
        ("2.5.0", "auto", "cpu", False),
        (None, "auto", None, False),
    ],
)
def test_a_fitting_torch_is_kept(
    monkeypatch: pytest.MonkeyPatch, present: str | None, wish: str, before: str | None, is_kept: bool
) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(install, "installed_version", lambda package: present)
    monkeypatch.setattr(install, "probe_machine", lambda: Machine(LINUX))
    monkeypatch.setattr(install, "succeeds", lambda argv, extra_env=None: commands.append(tuple(argv)) or True)
    install.install_torch(wish, "torch>=2.6,<2.15", before, "/uv")
    assert bool(commands) is not is_kept
    assert any("uninstall" in command for command in commands) is (present is not None and not is_kept)


def test_a_way_whose_trial_fails_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[str] = []

    def succeeds(argv: tuple[str, ...], extra_env: dict[str, str] | None = None) -> bool:
        if "--dry-run" in argv:
            assert extra_env == install.PROBE_LIMITS  # a trial never waits long
            return False
        installed.append(" ".join(argv))
        return True

    monkeypatch.setattr(install, "installed_version", lambda package: None)
    monkeypatch.setattr(install, "probe_machine", lambda: Machine(LINUX))
    monkeypatch.setattr(install, "succeeds", succeeds)
    assert install.install_torch("auto", "torch", None, "/uv") == "cpu"
    assert len(installed) == 1 and installed[0].endswith("pip install --disable-pip-version-check torch")


def test_a_torch_that_cannot_be_had_ends_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "installed_version", lambda package: None)
    monkeypatch.setattr(install, "probe_machine", lambda: Machine(LINUX, has_amd=True))
    monkeypatch.setattr(install, "succeeds", lambda argv, extra_env=None: False)
    with pytest.raises(install.InstallError, match="KOHYA_TORCH_BACKEND"):
        install.install_torch("auto", "torch", None, "/uv")


# --- the stamp --------------------------------------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What an installation would do, in order; nothing is really installed. The requirements files are copies."""
    done: list[str] = []
    for name in ("REQUIREMENTS", "TEST_REQUIREMENTS"):
        copy = tmp_path / f"{name}.txt"
        copy.write_text("torch>=2.6\n", encoding="utf-8")
        monkeypatch.setattr(install, name, copy)
    monkeypatch.setattr(install, "find_uv", lambda: None)
    monkeypatch.setattr(install, "report_torch", lambda backend: None)
    monkeypatch.setattr(install, "install_torch", lambda *_: done.append("torch") or "cpu")
    monkeypatch.setattr(install, "install_packages", lambda files, uv: done.append(f"{len(files)} files"))
    return done


def test_a_second_start_does_nothing(calls: list[str], tmp_path: Path) -> None:
    install.ensure_installed(tmp_path, False, install.REQUIREMENTS, "auto")
    assert calls == ["torch", "1 files"]
    install.ensure_installed(tmp_path, False, install.REQUIREMENTS, "auto")
    assert calls == ["torch", "1 files"]


def test_the_tests_add_their_packages_once_and_the_gui_keeps_quiet_after(calls: list[str], tmp_path: Path) -> None:
    for wants_tests in (False, True, True, False):
        install.ensure_installed(tmp_path, wants_tests, install.REQUIREMENTS, "auto")
    assert calls == ["torch", "1 files", "2 files"]


def test_changed_requirements_or_another_wish_install_again(calls: list[str], tmp_path: Path) -> None:
    install.ensure_installed(tmp_path, False, install.REQUIREMENTS, "auto")
    install.REQUIREMENTS.write_text("torch>=2.7\n", encoding="utf-8")
    install.ensure_installed(tmp_path, False, install.REQUIREMENTS, "auto")
    install.ensure_installed(tmp_path, False, install.REQUIREMENTS, "cpu")
    assert calls.count("torch") == 3


@pytest.mark.parametrize("damage", ["", "{", "[1]", "null"])
def test_a_damaged_stamp_counts_as_none(tmp_path: Path, damage: str) -> None:
    (tmp_path / install.STAMP_NAME).write_text(damage, encoding="utf-8")
    assert install.read_stamp(tmp_path) == {}


def test_a_failed_installation_leaves_no_stamp(
    calls: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(files: list[Path], uv: str | None) -> None:
        raise install.InstallError("no network")

    monkeypatch.setattr(install, "install_packages", fail)
    with pytest.raises(install.InstallError):
        install.ensure_installed(tmp_path, False, install.REQUIREMENTS, "auto")
    assert install.read_stamp(tmp_path) == {}


# --- the flags and the process ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "variable", "wish"),
    [
        ([], None, "auto"),
        ([], "CUDA ", "cuda"),
        (["--headless", "--use-rocm"], None, "rocm"),
        (["--use-ipex"], "cpu", "xpu"),
    ],
)
def test_flags_and_the_variable_choose_torch(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], variable: str | None, wish: str
) -> None:
    monkeypatch.delenv("KOHYA_TORCH_BACKEND", raising=False)
    if variable is not None:
        monkeypatch.setenv("KOHYA_TORCH_BACKEND", variable)
    assert install.torch_wish(arguments) == wish


def test_an_option_value_is_found_in_both_spellings() -> None:
    assert install.option_value(["--listen", "::", "--requirements", "a b.txt"], "--requirements") == "a b.txt"
    assert install.option_value(["--requirements=c=d.txt"], "--requirements") == "c=d.txt"
    assert install.option_value(["--requirements"], "--requirements") is None


def project_with_environment(folder: Path) -> Path:
    """A project whose environment is marked as installed and whose GUI prints its arguments."""
    package = folder / "kohya_gui"
    package.mkdir(parents=True)
    for name in ("install.py", "start.sh"):
        (package / name).write_bytes((install.PROJECT / "kohya_gui" / name).read_bytes())
    (folder / "kohya_gui.py").write_text("import json, sys\nprint(json.dumps(sys.argv[1:]))", encoding="utf-8")
    (folder / "requirements.txt").write_text("no-such-package-on-earth\n", encoding="utf-8")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    code = "import install; print(install.fingerprint([install.REQUIREMENTS], 'auto'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=package, check=True, capture_output=True, text=True)
    install.write_stamp(venv, {"torch": "cpu", "runtime": done.stdout.strip()})
    return venv


def test_all_flags_reach_the_gui_in_a_folder_with_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KOHYA_VENV", "KOHYA_TORCH_BACKEND"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "my tools [a] (b) 桌面 & co"
    venv = project_with_environment(folder)
    flags = ["--password", 'a b&%"c\\', "--listen", "0.0.0.0", "--language", "中文", ""]
    argv = [str(install.venv_python(venv)), "-I", str(folder / "kohya_gui" / "install.py"), "gui", *flags]
    if sys.platform != "win32":
        argv = ["sh", str(folder / "kohya_gui" / "start.sh"), "gui", *flags]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    assert json.loads(done.stdout) == flags


def test_a_folder_that_is_no_environment_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(install.InstallError, match="not a virtual environment"):
        install.create_venv(tmp_path)
    assert (tmp_path / "letters.txt").exists()


def test_a_browser_named_by_the_user_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOHYA_TEST_BROWSER", "/opt/my browser")
    assert install.find_browser() == "/opt/my browser"
