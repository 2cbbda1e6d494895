"""Where curves are logged besides the run folder: TensorBoard, Weights & Biases, or both."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sd_scripts.errors import ConfigError
from sd_scripts.options.schema import specs
from sd_scripts.options.toml_files import load_toml

if TYPE_CHECKING:
    from sd_scripts.options.recipes import CommonOptions

logger = logging.getLogger(__name__)

PROJECT = "network_train"  # the name under which runs appear where none is given


class Board(Protocol):
    """Takes numbers of a step."""

    def scalars(self, values: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class Boards:
    """Several boards as one; none is one too."""

    def __init__(self, *boards: Board):
        self._boards = boards

    def __bool__(self) -> bool:
        return bool(self._boards)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for board in self._boards:
            board.scalars(values, step)

    def close(self) -> None:
        for board in self._boards:
            board.close()


class TensorBoard:
    """Curves as TensorBoard reads them."""

    def __init__(self, place: Path, settings: Mapping[str, Any], config: Mapping[str, Any]):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = _made("tensorboard", SummaryWriter, {"log_dir": str(place), **settings})
        for name, value in config.items():
            self._writer.add_text(f"settings/{name}", str(value))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WandB:
    """Curves at Weights & Biases, or beside the run when it is told to stay offline (WANDB_MODE=offline)."""

    def __init__(self, options: CommonOptions, place: Path, settings: Mapping[str, Any], config: Mapping[str, Any]):
        try:
            import wandb
        except ImportError as failure:
            reason = f"the package wandb cannot be imported ({failure}); run: pip install wandb, or set tensorboard"
            raise ConfigError("log_with", options.log_with, reason) from failure
        if options.wandb_api_key is not None:
            try:
                wandb.login(key=options.wandb_api_key)
            except Exception as failure:  # noqa: BLE001 - whatever it is, it may hold the key
                reason = f"was refused ({type(failure).__name__}); check it, or log in once with: wandb login"
                raise ConfigError("wandb_api_key", "(secret)", reason) from None
        start = {
            "project": options.log_tracker_name or PROJECT,
            "name": options.wandb_run_name or options.output_name,
            "dir": str(place),
            "config": dict(config),
            **settings,
        }
        self._run = _made("wandb", wandb.init, start)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


def make_boards(options: CommonOptions, default_place: Path) -> Boards:
    """The boards that the options name.

    Args:
        default_place: of TensorBoard's files, where no `logging_dir` is given.

    Raises:
        ConfigError: a package is missing, or refuses its settings.
    """
    settings = load_toml(Path(options.log_tracker_config)) if options.log_tracker_config else {}
    config = told_settings(options) if options.log_config else {}
    boards: list[Board] = []
    if options.log_with in ("tensorboard", "all"):
        boards.append(TensorBoard(_place(options, default_place), _table(settings, "tensorboard"), config))
    if options.log_with in ("wandb", "all"):
        folder = Path(options.logging_dir) if options.logging_dir else default_place.parent
        folder.mkdir(parents=True, exist_ok=True)
        boards.append(WandB(options, folder, _table(settings, "wandb"), config))
    return Boards(*boards)


def told_settings(options: CommonOptions) -> dict[str, Any]:
    """The settings that differ from the defaults, without secrets and without paths."""
    known = specs(type(options))
    return {
        name: value
        for name, value in options.model_dump().items()
        if (spec := known[name]).path is None and not spec.secret and value != spec.default and not _is_path(value)
    }


def _is_path(value: object) -> bool:
    return isinstance(value, str) and ("/" in value or "\\" in value)


def _place(options: CommonOptions, default: Path) -> Path:
    if options.logging_dir is None:
        return default
    name = f"{options.log_prefix or ''}{time.strftime('%Y%m%d%H%M%S')}"
    return Path(options.logging_dir) / name / (options.log_tracker_name or PROJECT)


def _table(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A tracker's own table of the settings file."""
    return dict(settings.get(name, {}))


def _made(name: str, make: Any, settings: Mapping[str, Any]) -> Any:
    try:
        return make(**settings)
    except TypeError as failure:
        raise ConfigError("log_tracker_config", name, f"refuses these settings: {failure}") from failure
