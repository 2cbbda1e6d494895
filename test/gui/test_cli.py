"""The server's command line."""

import pytest

from kohya_gui.cli import login_of, make_parser


def given(*arguments):
    return make_parser().parse_args(arguments)


def test_it_serves_this_machine_only_and_shares_nothing_by_default():
    defaults = given()
    assert defaults.listen == "127.0.0.1"
    assert not defaults.share and not defaults.inbrowser
    assert login_of(defaults) is None


def test_flags_that_users_know_are_accepted():
    flags = ["--listen", "0.0.0.0", "--server_port", "7000", "--headless", "--inbrowser", "--do_not_use_shell"]
    flags += ["--root_path", "/gui", "--language", "zh-CN", "--noverify", "--use-ipex", "--use-rocm", "--debug"]
    flags += ["--requirements", "r.txt", "--config", "c.toml", "--runs_dir", "r", "--username", "a", "--password", "b"]
    assert given(*flags).server_port == 7000


def test_a_public_link_has_a_login():
    name, password = login_of(given("--share"))
    assert name and len(password) >= 12
    assert login_of(given("--share"))[1] != password
    assert login_of(given("--share", "--username", "a", "--password", "b")) == ("a", "b")
    assert login_of(given("--share", "--do_not_share")) is None


@pytest.mark.parametrize("half", [["--username", "a"], ["--password", "b"]])
def test_half_a_login_is_refused(half):
    with pytest.raises(ValueError, match="together"):
        login_of(given(*half))
