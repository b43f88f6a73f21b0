"""No command causes a Python warning: a future version of Python may turn it into an error."""

from tests.support.program import Xapi
from xapi_cli.features.sandbox import Sandbox

COMMANDS = [
    ("login",),
    ("request", "/x-api/me", "-v", "name==value"),
    ("batch",),
    ("token", "show"),
    ("profile", "set", "username", "me@example.com"),
    ("doctor",),
    ("exec", "true"),
    ("logout", "--all"),
]


def test_commands_work_if_warnings_are_errors(xapi: Xapi, sandbox: Sandbox) -> None:
    for command in COMMANDS:
        lines = b'{"path": "/x-api/me"}\n' if command == ("batch",) else None
        strict = xapi(*command, env={**sandbox.settings, "PYTHONWARNINGS": "error"}, input=lines)
        assert (strict.code, "Warning" in strict.err) == (0, False), strict
