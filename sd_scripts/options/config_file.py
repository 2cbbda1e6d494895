"""The file that `--config_file` names, as option values of a trainer: TOML settings, or a preset of the known GUI (JSON)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sd_scripts.options.families import MODEL_FAMILY
from sd_scripts.options.launch import Launch
from sd_scripts.options.problems import Problem, error, note
from sd_scripts.options.schema import specs
from sd_scripts.options.small_files import is_json
from sd_scripts.options.toml_files import read_settings

if TYPE_CHECKING:
    from sd_scripts.options.preset_files import Finding, LoadedFile


def read_config_file(path: Path) -> tuple[dict[str, Any], list[Problem]]:
    """Option values, not yet checked against the schema, and what is to be said about how a preset was read.

    Raises:
        UserError: the file cannot be read, or is no settings file.
    """
    if not is_json(path):
        settings = read_settings(path)
        settings.pop(MODEL_FAMILY, None)  # a trainer reads it from the model's file
        return settings, []
    from sd_scripts.options.preset_files import load_file  # its tables are only needed for such a file

    loaded = load_file(path)
    return trainer_values(loaded), [_as_problem(finding) for finding in loaded.findings]


def trainer_values(loaded: LoadedFile) -> dict[str, Any]:
    """The values without those of the launch, and the items of `network_args` put together."""
    from sd_scripts.options.network_arguments import NetworkArguments, fold

    values = {name: value for name, value in loaded.values.items() if name not in specs(Launch)}
    items = {name: values.pop(name) for name in list(values) if name in specs(NetworkArguments)}
    arguments = fold(items, values.get("network_args") or [])
    return values | ({"network_args": arguments} if arguments else {})


def _as_problem(finding: Finding) -> Problem:
    level = error if finding.kind == "invalid" else note
    return level(finding.key or None, finding.message)
