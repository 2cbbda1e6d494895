"""Uploads and downloads, against a stand-in for the hub's client that keeps everything in a folder."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from sd_scripts.errors import ConfigError, UserError
from sd_scripts.options.output import Hub
from sd_scripts.training.hub import HubState, Uploader, fetch_state, one_line
from sd_scripts.training.report import Report
from sd_scripts.training.run_folder import Status


class Client:
    """The hub in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.calls: list[tuple] = []
        self.fails = False
        self.may_go = threading.Event()
        self.may_go.set()

    def create_repo(self, repo_id: str, repo_type: str, private: bool, exist_ok: bool) -> None:
        self.calls.append(("create", repo_id, repo_type, private, exist_ok))

    def upload_file(self, path_or_fileobj: str, path_in_repo: str, repo_id: str, repo_type: str) -> None:
        self.may_go.wait(10)
        if self.fails:
            raise ConnectionError("no network for hf_secret\nmore")
        target = self.folder / repo_id / path_in_repo
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path_or_fileobj, target)

    def upload_folder(self, folder_path: str, path_in_repo: str, repo_id: str, repo_type: str) -> None:
        shutil.copytree(folder_path, self.folder / repo_id / path_in_repo)

    def snapshot_download(self, repo_id: str, repo_type: str, revision: str | None, allow_patterns: list[str]) -> str:
        self.calls.append(("download", repo_id, repo_type, revision, allow_patterns))
        if not (self.folder / repo_id).is_dir():
            raise FileNotFoundError("Repository not found")
        return str(self.folder / repo_id)


class Heard(Report):
    """A report that remembers."""

    def __init__(self) -> None:
        super().__init__(None, Status("running"))
        self.warnings: list[str] = []
        self.sent: list[str] = []

    def warning(self, message: str) -> None:
        self.warnings.append(message)

    def uploaded(self, path: Path, repository: str) -> None:
        self.sent.append(f"{repository}/{path.name}")


@pytest.fixture
def client(tmp_path) -> Client:
    return Client(tmp_path / "hub")


def made(tmp_path: Path, name: str = "x.safetensors") -> Path:
    path = tmp_path / name
    path.write_bytes(b"weights")
    return path


def uploader(client: Client, **options) -> tuple[Uploader, Heard]:
    heard = Heard()
    given = {"huggingface_repo_id": "me/cat", "huggingface_token": "hf_secret", **options}
    return Uploader(Hub(**given), heard, client), heard


@pytest.mark.parametrize(("folder", "place"), [(None, "x.safetensors"), ("loras/v2/", "loras/v2/x.safetensors")])
def test_a_file_goes_to_its_place(client, tmp_path, folder, place):
    sender, heard = uploader(client, huggingface_path_in_repo=folder)
    sender.upload(made(tmp_path))
    sender.upload(made(tmp_path))
    sender.finish()
    assert (client.folder / "me/cat" / place).read_bytes() == b"weights"
    assert client.calls == [("create", "me/cat", "model", True, True)]
    assert heard.sent == ["me/cat/x.safetensors"] * 2


def test_a_state_goes_as_a_folder_to_a_public_data_set(client, tmp_path):
    sender, _ = uploader(client, huggingface_repo_type="dataset", huggingface_repo_visibility="public")
    (tmp_path / "x-state").mkdir()
    made(tmp_path / "x-state", "model.safetensors")
    sender.upload(tmp_path / "x-state")
    assert (client.folder / "me/cat/x-state/model.safetensors").is_file()
    assert client.calls == [("create", "me/cat", "dataset", False, True)]


def test_a_failure_is_told_without_the_token_and_training_goes_on(client, tmp_path):
    sender, heard = uploader(client)
    client.fails = True
    sender.upload(made(tmp_path))
    (message,) = heard.warnings
    assert message == "x.safetensors could not be uploaded to me/cat (no network for …); training goes on"


def test_uploads_beside_the_training_are_waited_for_at_the_end(client, tmp_path):
    sender, heard = uploader(client, async_upload=True)
    client.may_go.clear()
    sender.upload(made(tmp_path))
    assert heard.sent == []  # and the caller has not waited
    client.may_go.set()
    sender.finish()
    assert heard.sent == ["me/cat/x.safetensors"]


def test_a_file_that_is_on_its_way_can_be_waited_for(client, tmp_path):
    sender, heard = uploader(client, async_upload=True)
    path = made(tmp_path)
    sender.upload(path)
    sender.settle(path)
    path.unlink()
    sender.finish()
    assert heard.sent and not heard.warnings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("me/cat/x-state", HubState("me/cat", "x-state", None, "model")),
        ("me/cat/a/x-state:main", HubState("me/cat", "a/x-state", "main", "model")),
        ("me/cat/x-state:v1:dataset", HubState("me/cat", "x-state", "v1", "dataset")),
        ("me/cat/x-state::space", HubState("me/cat", "x-state", None, "space")),
    ],
)
def test_names_of_states(text, expected):
    assert HubState.parse(text) == expected


@pytest.mark.parametrize("text", ["me/cat", "x-state", "me/cat/x:main:modle", "a/b/c:d:model:e"])
def test_names_that_can_be_no_state(text):
    with pytest.raises(ConfigError, match="owner/name/folder:revision:kind"):
        HubState.parse(text)


def test_a_state_is_fetched(client, tmp_path):
    state = client.folder / "me/cat/x-state"
    state.mkdir(parents=True)
    assert fetch_state("me/cat/x-state:main", None, client) == state
    assert client.calls == [("download", "me/cat", "model", "main", ["x-state/*"])]
    with pytest.raises(UserError, match="no folder y-state"):
        fetch_state("me/cat/y-state", None, client)
    with pytest.raises(UserError, match=r"cannot be fetched .Repository not found"):
        fetch_state("me/dog/y-state", None, client)


def test_messages_hide_the_secret(monkeypatch):
    assert one_line(ValueError("bad hf_1\nmore"), "hf_1") == "bad …"
    assert one_line(ValueError(), None) == "ValueError"
    monkeypatch.setenv("HF_TOKEN", "hf_environment")
    assert one_line(ValueError("bad hf_environment, hf_1"), "hf_1") == "bad …, …"
