"""No command causes a Python warning: a future version of Python may turn it into an error."""

from collections.abc import Sequence

import pytest

from tests.support.program import Xapi
from xapi_cli.sandbox import Sandbox

COMMANDS = [
    ("--help",),
    ("login",),
    ("request", "/x-api/me"),
    ("request", "/x-api/me", "-v", "name==value"),
    ("batch",),
    ("token", "show"),
    ("token", "status"),
    ("profile", "list"),
    ("profile", "set", "username", "me@example.com"),
    ("doctor",),
    ("exec", "true"),
    ("logout", "--all"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_works_if_warnings_are_errors(xapi: Xapi, sandbox: Sandbox, command: Sequence[str]) -> None:
    assert xapi("login", env=sandbox.settings).code == 0
    lines = b'{"path": "/x-api/me"}\n' if command == ("batch",) else None
    strict = xapi(*command, env={**sandbox.settings, "PYTHONWARNINGS": "error"}, input=lines)

    assert (strict.code, "Warning" in strict.err) == (0, False), strict
