"""The Hugging Face hub: finished files and states go there, and a state to resume can come from there."""

from __future__ import annotations

import logging
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sd_scripts.errors import ConfigError, UserError
from sd_scripts.options.output import Hub

if TYPE_CHECKING:
    from sd_scripts.training.report import Report

logger = logging.getLogger(__name__)

KINDS = ("model", "dataset", "space")


def make_client(token: str | None) -> Any:
    """The hub's client. Without a token it takes the one of the environment (HF_TOKEN), or of an earlier login.

    Raises:
        ConfigError: the package is missing.
    """
    try:
        from huggingface_hub import HfApi
    except ImportError as failure:
        reason = f"needs the package huggingface_hub ({failure}); run: pip install huggingface_hub"
        raise ConfigError("huggingface_repo_id", "…", reason) from failure
    return HfApi(token=token)


class Uploader:
    """Uploads files and folders, at once or beside the training. A failure is reported and training goes on.

    Args:
        client: of the hub; it has `create_repo`, `upload_file` and `upload_folder`.
    """

    def __init__(self, options: Hub, report: Report, client: Any):
        assert options.huggingface_repo_id is not None
        self._options = options
        self._report = report
        self._client = client
        self._repository = options.huggingface_repo_id
        self._kind = options.huggingface_repo_type or "model"
        self._is_made = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="upload") if options.async_upload else None
        self._running: dict[Path, Future[None]] = {}

    def upload(self, path: Path) -> None:
        """Upload a file or a folder under its own name."""
        self.collect()
        if self._thread is None:
            self._done(path, _tried(self._send, path))
        else:
            self.settle(path)  # one of that name may still be on its way
            self._running[path] = self._thread.submit(self._send, path)

    def collect(self) -> None:
        """Report the uploads that have ended since."""
        for path in [path for path, future in self._running.items() if future.done()]:
            self.settle(path)

    def settle(self, path: Path) -> None:
        """Wait for the upload of a file, if there is one: it may then be removed or replaced."""
        if (future := self._running.pop(path, None)) is not None:
            self._done(path, future.exception())

    def finish(self) -> None:
        """Wait for all uploads."""
        if self._running:
            self._report.phase("uploading")
        for path in list(self._running):
            self.settle(path)
        if self._thread is not None:
            self._thread.shutdown()

    def _send(self, path: Path) -> None:
        target = {"repo_id": self._repository, "repo_type": self._kind}
        if not self._is_made:
            is_private = self._options.huggingface_repo_visibility != "public"
            self._client.create_repo(**target, private=is_private, exist_ok=True)
            self._is_made = True
        folder = (self._options.huggingface_path_in_repo or "").strip("/")
        place = f"{folder}/{path.name}" if folder else path.name
        if path.is_dir():
            self._client.upload_folder(folder_path=str(path), path_in_repo=place, **target)
        else:
            self._client.upload_file(path_or_fileobj=str(path), path_in_repo=place, **target)

    def _done(self, path: Path, failure: BaseException | None) -> None:
        if failure is None:
            self._report.uploaded(path, self._repository)
            return
        reason = one_line(failure, self._options.huggingface_token)
        self._report.warning(f"{path.name} could not be uploaded to {self._repository} ({reason}); training goes on")


@dataclass(frozen=True)
class HubState:
    """A state on the hub, as `resume` names it: `owner/name/folder:revision:kind`."""

    repository: str
    folder: str
    revision: str | None
    kind: str

    @classmethod
    def parse(cls, text: str) -> HubState:
        """Raises ConfigError for a name that cannot be meant."""
        path, *rest = text.split(":")
        parts = path.strip("/").split("/")
        revision, kind = (*rest, "", "")[:2]
        if len(parts) < 3 or len(rest) > 2 or kind not in ("", *KINDS):
            reason = f"must be owner/name/folder:revision:kind, where kind is one of {', '.join(KINDS)}"
            raise ConfigError("resume", text, reason)
        return cls("/".join(parts[:2]), "/".join(parts[2:]), revision or None, kind or "model")


def fetch_state(text: str, token: str | None, client: Any) -> Path:
    """Download a state; the folder that it lies in.

    Raises:
        ConfigError: it has another form than `owner/name/folder:revision:kind`.
        UserError: there is no such state, or the hub cannot be reached.
    """
    state = HubState.parse(text)
    try:
        place = client.snapshot_download(
            repo_id=state.repository,
            repo_type=state.kind,
            revision=state.revision,
            allow_patterns=[f"{state.folder}/*"],
        )
    except Exception as failure:  # noqa: BLE001 - the client has dozens of kinds: no network, no such repository, no right to it
        raise UserError(f"resume: {text} cannot be fetched ({one_line(failure, token)})") from None
    folder = Path(place) / state.folder
    if not folder.is_dir():
        raise UserError(f"resume: {state.repository} has no folder {state.folder}; check the name and the revision")
    logger.info("fetched the state %s", text)
    return folder


def one_line(failure: BaseException, secret: str | None) -> str:
    """The first line of a complaint, without the token, be it an option's or the environment's."""
    text = (str(failure).strip() or type(failure).__name__).splitlines()[0]
    for token in filter(None, (secret, os.environ.get("HF_TOKEN"))):
        text = text.replace(token, "…")
    return text[:300]


def _tried(send: Any, path: Path) -> BaseException | None:
    try:
        send(path)
    except Exception as failure:  # noqa: BLE001 - whatever it is: training is worth more than an upload
        return failure
    return None
