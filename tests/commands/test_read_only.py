"""Read-only mode sends GET, HEAD and OPTIONS; `--write` allows one command to write."""

import json

import pytest

from tests.commands.api import bearing
from tests.support.program import Xapi
from tests.support.servers import OK, Server, request, send
from xapi_cli import open_client
from xapi_cli.errors import UsageError
from xapi_cli.features.sandbox import Sandbox

ON = {"XAPI_READ_ONLY": "1"}
PROBLEM = "was not sent: read-only mode allows only GET, HEAD and OPTIONS"
REFUSED = f"{PROBLEM}; add --write to send it\n"


@pytest.mark.parametrize("method", ["DELETE", "PROPFIND"])
def test_a_method_that_may_write_is_not_sent(xapi: Xapi, method: str) -> None:
    with Server() as server:
        outcome = xapi("request", method, "/a", env={**bearing(server), **ON})

        assert (outcome.code, outcome.out, outcome.err) == (2, "", f"xapi: error: {method} {REFUSED}")
        assert server.received == []


@pytest.mark.parametrize("args", [["a=1"], ["-d", "@-"]])
def test_a_body_makes_the_method_post(xapi: Xapi, args: list[str]) -> None:
    with Server() as server:
        outcome = xapi("request", "/a", *args, "--read-only", env=bearing(server))

        assert (outcome.code, outcome.err) == (2, f"xapi: error: POST {REFUSED}")
        assert server.received == []


@pytest.mark.parametrize("method", ["head", "OPTIONS"])
def test_a_method_that_only_reads_is_sent(xapi: Xapi, method: str) -> None:
    with Server([request(), send(OK)]) as server:
        assert xapi("request", method, "/a", env={**bearing(server), **ON}).code == 0


def test_the_flag_precedes_the_variable_and_the_variable_the_profile(xapi: Xapi, sandbox: Sandbox) -> None:
    env = sandbox.settings
    assert xapi("profile", "set", "read_only", "true", env=env).code == 0
    post = ("request", "POST", "/x-api/echo", "a=1")

    assert xapi(*post, env=env).code == 2
    assert xapi(*post, "--write", env=env).code == 0
    assert xapi(*post, env={**env, "XAPI_READ_ONLY": "0"}).code == 0
    assert xapi(*post, "--write", env={**env, **ON}).code == 0
    assert xapi(*post, "--read-only", env={**env, "XAPI_READ_ONLY": "0"}).code == 2
    assert xapi("request", "/x-api/me", env=env).code == 0  # and its login, which is a POST


def test_a_curl_command_is_printed_because_nothing_is_sent(xapi: Xapi) -> None:
    env = {"XAPI_BASE_URL": "https://api.test", "XAPI_TOKEN": "abc"}
    outcome = xapi("request", "DELETE", "/a", "--curl", "--read-only", env=env)

    assert outcome.code == 0
    assert "--read-only" not in outcome.out + outcome.err


@pytest.mark.parametrize("args", [[], ["--read-only"]])
def test_a_batch_sends_only_the_lines_that_read(xapi: Xapi, args: list[str]) -> None:
    lines = ('{"path": "/a"}', '{"method": "DELETE", "path": "/b"}', '{"path": "/c", "json": 1}')
    override = '{"path": "/d", "headers": {"X-HTTP-Method-Override": "PUT"}}'
    with Server([request(), send(OK)]) as server:
        outcome = xapi(
            *("batch", "-j1", "--ordered", *args),
            input="\n".join([*lines, override]),
            env={**bearing(server), **({} if args else ON)},
        )

        results = [json.loads(line) for line in outcome.out.splitlines()]
        assert [each.get("status") for each in results] == [200, None, None, None]
        assert {each["error"]["kind"] for each in results[1:]} == {"input"}
        remedy = "add --write"
        assert results[1]["error"]["message"] == f"DELETE {PROBLEM}; {remedy} to send it"
        assert results[3]["error"]["message"].endswith(f"; remove the header, or {remedy}")
        assert (outcome.code, len(server.received)) == (2, 1)


def test_the_library_sends_only_what_reads(monkeypatch: pytest.MonkeyPatch, xapi: Xapi, sandbox: Sandbox) -> None:
    for name, value in {**xapi.environ, **sandbox.settings}.items():
        monkeypatch.setenv(name, str(value))
    with open_client(storage="none", read_only=True) as client:
        assert client.get("/x-api/me").status_code == 200
        with pytest.raises(UsageError, match=r"POST was not sent: .*; open the client with read_only=False to send it"):
            client.post("/x-api/echo", json=1)
    monkeypatch.setenv("XAPI_READ_ONLY", "1")
    with open_client(storage="none") as client, pytest.raises(UsageError):
        client.delete("/x-api/me")
    with open_client(storage="none") as client, pytest.raises(UsageError):
        client.get("/x-api/me", headers={"X-HTTP-Method-Override": "DELETE"})
    with open_client(storage="none", read_only=False) as client:
        assert client.post("/x-api/echo", json=1).status_code == 200
