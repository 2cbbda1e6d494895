"""What a check found: the one type in which the trainer, the GUI and `check` speak of problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sd_scripts.errors import ConfigError, UserError

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Problem:
    """One finding. An error keeps the run from starting; a warning or note is shown and the run goes on."""

    level: Level
    option: str | None
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        where = f"{self.option}: " if self.option else ""
        remedy = f" - {self.remedy}" if self.remedy else ""
        return f"{where}{self.message}{remedy}"


def error(option: str | None, message: str, remedy: str = "") -> Problem:
    return Problem("error", option, message, remedy)


def warning(option: str | None, message: str, remedy: str = "") -> Problem:
    return Problem("warning", option, message, remedy)


def note(option: str | None, message: str, remedy: str = "") -> Problem:
    return Problem("note", option, message, remedy)


def as_problem(failure: UserError) -> Problem:
    """A failure as an error in a list of problems, with its option where it names one."""
    if isinstance(failure, ConfigError):
        return error(failure.option, f"{failure.value!r}: {failure.reason}")
    return error(None, str(failure))


class CheckFailed(UserError):
    """The checks found errors. The text is the last of them, so that a log ends with what to mend first."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        errors = [p for p in problems if p.level == "error"]
        more = f" ({len(errors) - 1} more above)" if len(errors) > 1 else ""
        super().__init__(f"{errors[0]}{more}")
