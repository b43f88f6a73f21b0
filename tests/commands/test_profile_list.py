"""`xapi profile list` is one view of the tokens of all accounts."""

import json
import time

import pytest

from tests.support.program import Xapi
from xapi_cli.features.sandbox import MASTER, MEMBER, Sandbox


@pytest.fixture
def accounts(xapi: Xapi, sandbox: Sandbox) -> Xapi:
    """Return the program with a valid token, an expired one, no token, and a profile without an account."""
    for profile, user in (("default", MASTER), ("staging", MEMBER)):
        env = {"XAPI_PASSWORD": user.password}
        assert xapi("login", "--base-url", sandbox.base_url, "-u", user.email, "-p", profile, env=env).code == 0
    with Sandbox(expires_in=1) as other:
        env = {"XAPI_PASSWORD": MASTER.password}
        assert xapi("login", "--base-url", other.base_url, "-u", MASTER.email, "-p", "old", env=env).code == 0
        while xapi("token", "status", "-p", "old").code == 0:
            time.sleep(0.2)  # until the token has expired
    xapi("profile", "set", "timeout", "5", "-p", "empty")
    xapi("logout", "-p", "staging")
    return xapi


def test_the_state_and_the_expiry_of_each_token_are_shown(accounts: Xapi) -> None:
    rows = {row["name"]: row for row in json.loads(accounts("profile", "list", "--json").out)}

    assert {name: row["state"] for name, row in rows.items()} == {
        "default": "valid", "staging": "none", "old": "expired", "empty": None,
    }  # fmt: skip
    for name in ("default", "old"):
        status = json.loads(accounts("token", "status", "-p", name).out)
        assert rows[name]["expires_at"] == status["expires_at"]


def test_a_pipe_gets_one_line_for_each_profile_with_columns_separated_by_tabs(accounts: Xapi) -> None:
    rows = {row["name"]: row for row in json.loads(accounts("profile", "list", "--json").out)}
    lines = {line.split("\t")[0]: line.split("\t")[1:] for line in accounts("profile", "list").out.splitlines()}

    default = rows["default"]
    assert lines["default"] == ["*", MASTER.email, default["base_url"], "valid", default["expires_at"], "-"]
    assert lines["empty"] == ["-", "-", "-", "-", "-", "-"]
    assert list(lines) == list(rows)


def test_variables_that_select_another_account_do_not_change_the_list(accounts: Xapi) -> None:
    other = {"XAPI_BASE_URL": "https://api.test", "XAPI_USERNAME": "someone", "XAPI_TOKEN": "abc"}

    assert accounts("profile", "list", env=other) == accounts("profile", "list")


def test_a_terminal_gets_a_table_in_color(accounts: Xapi) -> None:
    with accounts.on_terminal("profile", "list", columns=120) as terminal:
        assert terminal.wait() == 0

    header, *rows = terminal.text.splitlines()
    assert header.split() == ["PROFILE", "USERNAME", "BASE", "URL", "TOKEN", "EXPIRES", "MODE"]
    assert {row.index("http") for row in rows[:3]} == {header.index("BASE URL")}
    assert rows[0].startswith("*  default ")
    assert rows[0].split()[-4:] == ["in", "30", "days", "-"]
    assert b"\x1b[32mvalid\x1b[0m" in terminal.seen
    assert b"\x1b[31mexpired\x1b[0m" in terminal.seen


def test_a_storage_that_fails_is_tried_once_and_is_one_warning(accounts: Xapi) -> None:
    env = {"XAPI_STORAGE": "keyring", "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}

    outcome = accounts("profile", "list", "--json", env=env)

    states = {row["name"]: row["state"] for row in json.loads(outcome.out)}
    assert states == {"default": "unknown", "staging": "unknown", "old": "unknown", "empty": None}
    assert (outcome.code, outcome.err.count("\n")) == (0, 1)
    assert outcome.err.startswith("xapi: warning: profile ")
