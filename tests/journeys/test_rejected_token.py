"""A token that the API has rejected is shown as rejected, until a request succeeds or a login replaces it."""

import json
import os
from pathlib import Path

import pytest

from tests.support.combinations import combined
from tests.support.program import Xapi
from tests.support.servers import Server, Step, request, send
from tests.support.stores import ME, Env
from xapi_cli.features.sandbox import MASTER, Sandbox

LINE = '{"path": "/x-api/me"}\n'
CHECK = ("token", "status", "--check", "/x-api/me")
TOKEN = b'{"access_token": "abc"}'


def _respond(status: int, body: bytes = b"{}") -> list[Step]:
    head = b"HTTP/1.1 %d Status\r\nLocation: http://[\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return [request(), send(head + body)]


def _files(xapi: Xapi) -> dict[Path, int]:
    """Return the files and directories of the state directory, with the times of their last changes."""
    return {path: path.stat().st_mtime_ns for path in xapi.state.rglob("*") if "locks" not in path.parts}


def _shown(xapi: Xapi, env: Env) -> tuple[int, str, str, str]:
    """Return the exit code of `token status`, and the state that it, `profile list` and `doctor` show."""
    status = xapi("token", "status", env=env)
    (profile,) = json.loads(xapi("profile", "list", "--json", env=env).out)
    checks = json.loads(xapi("doctor", "--json", env=env).out)["checks"]
    (token,) = (check for check in checks if check["name"] == "token")
    assert token["status"] == ("warn" if status.code else "pass")
    return status.code, json.loads(status.out)["state"], profile["state"], token["message"].partition(",")[0]


REJECTED = (10, "rejected", "rejected", "rejected")


@pytest.fixture(params=["file"])
def logged_in(request: pytest.FixtureRequest, xapi: Xapi, sandbox: Sandbox) -> Env:
    """Return the environment of one storage, after a login without a password source for another one."""
    env: Env = xapi.fake_keyring() if request.param == "keyring" else {"XAPI_STORAGE": "file"}
    login = ("login", "--base-url", sandbox.base_url, "-u", MASTER.email)
    assert xapi(*login, env={**env, "XAPI_PASSWORD": MASTER.password}).code == 0
    return env


def _rejections(xapi: Xapi) -> list[str]:
    directory = xapi.state / "rejected"
    return os.listdir(directory) if directory.exists() else []


@pytest.mark.parametrize(
    ("logged_in", "command"),
    combined(["file", "keyring"], [(ME,), ((*ME, "--no-login"),), (("batch",),), (CHECK,)]),
    indirect=["logged_in"],
)
def test_a_final_401_is_shown_until_a_login(
    xapi: Xapi, sandbox: Sandbox, logged_in: Env, command: tuple[str, ...]
) -> None:
    sandbox.revoke_tokens()

    assert xapi(*command, input=LINE, env=logged_in).code == 10
    assert _shown(xapi, logged_in) == REJECTED

    assert xapi("login", env={**logged_in, "XAPI_PASSWORD": MASTER.password}).code == 0
    assert xapi("token", "status", env=logged_in).code == 0
    assert _rejections(xapi) == []


@pytest.mark.parametrize(
    "command",
    [("token", "show"), ("exec", "--", "sh", "-c", "echo $XAPI_TOKEN")],
    ids=["token show", "exec"],
)
def test_a_rejected_token_is_not_passed_to_another_program(
    xapi: Xapi, sandbox: Sandbox, logged_in: Env, command: tuple[str, ...]
) -> None:
    sandbox.revoke_tokens()
    assert xapi(*ME, env=logged_in).code == 10

    without_password = xapi(*command, env=logged_in)
    assert (without_password.code, without_password.out) == (10, "")
    assert "the API rejected the stored token (401), and no password source is available" in without_password.err

    stored = xapi("token", "show", "--no-login", env=logged_in)
    assert (stored.code, stored.err) == (0, "")

    outcome = xapi(*command, env={**logged_in, "XAPI_PASSWORD": MASTER.password})
    assert outcome.code == 0, outcome
    assert stored.out.strip() not in outcome.out
    assert outcome.err.endswith(": the API rejected the stored token (401)\n")
    assert xapi("token", "show", "--no-login", env=logged_in).out.strip() in outcome.out


def test_a_request_sends_a_rejected_token_because_another_path_may_accept_it(xapi: Xapi) -> None:
    with Server([*_respond(200, TOKEN), *_respond(401), *_respond(200)]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": MASTER.email, "XAPI_PASSWORD": "any"}
        assert xapi(*ME, env=env).code == 10
        shown = xapi("token", "show", env=env)
        assert (shown.code, shown.out) == (10, "")
        assert "the API rejected a new token less than a minute ago" in shown.err

        assert xapi(*ME, env=env).code == 0
        assert xapi("token", "show", env=env).out == "abc\n"


@pytest.mark.parametrize(
    ("command", "status", "expected"),
    [
        (ME, 200, (0, "valid")),
        (ME, 404, (0, "valid")),
        (ME, 503, (10, "rejected")),
        (("batch",), 200, (0, "valid")),
        (("batch",), 503, (10, "rejected")),
        (CHECK, 200, (0, "valid")),
        (CHECK, 403, (0, "valid")),
        (CHECK, 503, (10, "rejected")),
        (CHECK, 302, (10, "rejected")),
    ],
)
def test_a_request_that_succeeds_ends_the_rejection(
    xapi: Xapi, command: tuple[str, ...], status: int, expected: tuple[int, str]
) -> None:
    """Neither a server error nor, with --check, a redirect that is not followed shows whether the token is valid."""
    with Server(_respond(200, TOKEN), _respond(401), _respond(status)) as server:
        env = {"XAPI_PASSWORD": "any"}
        assert xapi("login", "--base-url", server.url, "-u", MASTER.email, env=env).code == 0
        assert xapi(*ME).code == 10
        xapi(*command, input=LINE)
        assert len(server.received) == 3

    shown = xapi("token", "status")
    assert (shown.code, json.loads(shown.out)["state"]) == expected


def test_a_request_that_succeeds_writes_nothing(xapi: Xapi, sandbox: Sandbox, logged_in: Env) -> None:
    sandbox.revoke_tokens()
    assert xapi(*ME, env=logged_in).code == 10
    assert xapi("login", env={**logged_in, "XAPI_PASSWORD": MASTER.password}).code == 0
    before = _files(xapi)

    assert xapi(*ME, env=logged_in).code == 0

    assert _files(xapi) == before
