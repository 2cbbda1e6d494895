"""Where messages go: the console, or a file instead."""

import logging

import pytest

from sd_scripts.console import console
from sd_scripts.errors import ConfigError
from sd_scripts.options.output import Logging

log = logging.getLogger("sd_scripts.test")


def say(**options) -> None:
    """Two messages, with logging as a script finds it: nobody has set it up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger(), "handlers", [])
        with console(Logging(**options)):
            log.debug("small thing")
            log.warning("Größe 512")
        assert logging.getLogger().handlers == []


def test_messages_go_to_the_console_with_time_and_level(capsys):
    say()
    out, err = capsys.readouterr()
    assert out == "" and err.endswith(" WARNING Größe 512\n") and "small thing" not in err


def test_simple_messages_go_to_standard_output_as_they_are(capsys):
    say(console_log_simple=True, console_log_level="DEBUG")
    assert capsys.readouterr() == ("small thing\nGröße 512\n", "")


def test_a_file_gets_them_instead_and_is_overwritten(tmp_path, capsys):
    path = tmp_path / "log.txt"
    path.write_text("old", encoding="utf-8")
    say(console_log_file=str(path), console_log_simple=True)
    assert path.read_text(encoding="utf-8") == "Größe 512\n"
    assert capsys.readouterr() == ("", "")


def test_a_file_that_cannot_be_written_is_a_readable_error(tmp_path):
    with pytest.raises(ConfigError, match="console_log_file"):
        say(console_log_file=str(tmp_path / "gone" / "log.txt"))
