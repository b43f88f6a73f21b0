"""`--error-format json`: each message on stderr is one line of JSON, and nothing else is written there."""

import json
import os
import subprocess
from typing import Any

import pytest

from tests.cli.test_error_messages import ERRORS
from tests.commands.api import bearing, response
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, free_port, hang, request, send
from xapi_cli import errors
from xapi_cli.features.sandbox import Sandbox

JSON = {"XAPI_ERROR_FORMAT": "json"}
KINDS = {each.kind for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.XapiError)}


def messages(outcome: Outcome) -> list[dict[str, Any]]:
    """Return the messages on stderr, all of which are JSON."""
    found = [json.loads(line) for line in outcome.err.splitlines()]
    assert all(each["level"] in ("error", "warning", "note") and each["kind"] and each["message"] for each in found)
    return found


@pytest.mark.parametrize("kind", list(ERRORS)[::8])
def test_an_error_has_the_same_text_and_exit_code_in_both_formats(xapi: Xapi, sandbox: Sandbox, kind: str) -> None:
    error = ERRORS[kind]
    name = sandbox.base_url.removeprefix("http://")
    real = {"base": sandbox.base_url, "name": name, "port": name.rpartition(":")[2], "free": str(free_port())}
    env = {key: value.format(**real) if value else value for key, value in error.env.items()}

    outcome = xapi(*error.args.format(**real).split(), env=env | JSON)

    (message,) = messages(outcome)
    assert (outcome.code, message["level"], message["code"]) == (error.code, "error", error.code)
    assert message["kind"] in KINDS
    assert "; ".join(filter(None, (message["message"], message.get("hint")))) == error.line.format(**real)


@pytest.mark.parametrize(
    "reply, args, code, kind, more",
    [
        (response("302 Found", b"", "Location: /b"), ["--no-follow"], 3, "redirect", {"status": 302}),
        (response("429 Too Many Requests", b"", "Retry-After: 7"), [], 4, "client", {"status": 429, "retry_after": 7}),
        (response("503 Busy"), [], 5, "server", {"status": 503}),
        (response("401 Unauthorized"), [], 10, "auth", {"status": 401}),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", [], 11, "network", {}),
        (b"nonsense\r\n\r\n", [], 11, "network", {}),
        (response(body=b'{"a":1}'), ["--expect", ".b"], 6, "expectation", {"status": 200}),
        (response(body=b'{"a":1}'), ["--jq", ".a.b"], 6, "filter", {"status": 200}),
        (response(body=b'{"a":1}'), ["--until", ".a.b"], 6, "filter", {"status": 200}),
        (response(body=b"[1"), ["--paginate"], 6, "filter", {"status": 200}),
        (b"", ["--timeout", "0.3"], 12, "timeout", {}),
    ],
)
def test_the_message_names_the_request_and_the_status(
    xapi: Xapi, reply: bytes, args: list[str], code: int, kind: str, more: dict[str, object]
) -> None:
    if {"--expect", "--jq", "--until"} & {*args}:
        pytest.importorskip("jq", reason="libjq is not installed")
    with Server([request(), send(reply)] if reply else [hang()]) as server:
        given = ("request", "/a?token=hunter2&page=2", "--error-format", "json", "--error-body", "none", *args)
        outcome = xapi(*given, env=bearing(server))

    (message,) = messages(outcome)
    assert (outcome.code, message["code"], message["kind"]) == (code, code, kind)
    assert "hint" in message or kind not in ("network", "timeout")
    names = {"level", "code", "kind", "message", "hint"}
    found = {name: value for name, value in message.items() if name not in names}
    assert found == {"method": "GET", "url": f"{server.url}/a", **more}


def test_many_processes_share_stderr_without_torn_lines(xapi: Xapi, sandbox: Sandbox) -> None:
    env = {"XAPI_BASE_URL": sandbox.base_url, "XAPI_TOKEN": "abc", **JSON}
    path = f"/{'x' * 1500}"  # a line of almost 4,096 bytes (PIPE_BUF): a longer one may be torn in a pipe
    reader, writer = os.pipe()
    processes = [
        xapi.start("request", path, "--error-body", "none", env=env, stderr=writer, stdout=subprocess.DEVNULL)
        for _ in range(8)
    ]
    os.close(writer)
    with open(reader, "rb") as stream:
        lines = stream.read().splitlines()

    assert [process.wait() for process in processes] == [4] * 8
    assert {json.loads(line)["kind"] for line in lines} == {"client"}
    assert len(lines) == 8


@pytest.mark.parametrize(
    "args, env, is_json",
    [
        (["--error-format", "json"], {}, True),
        (["--error-format=json"], {}, True),
        ([], JSON, True),
        (["--error-format", "text"], JSON, False),
        (["--error-format=text"], JSON, False),
        (["--error-format", "text", "--error-format", "json"], {}, True),
        (["--", "--error-format", "json"], {}, False),  # as of the command of `exec`
    ],
)
def test_the_flag_wins_over_the_variable(xapi: Xapi, args: list[str], env: dict[str, str], is_json: bool) -> None:
    for wrong in ("--missing-option", "--timeout"):  # found while the command line is parsed
        outcome = xapi("request", "/a", *args, wrong, env=env)
        assert (outcome.code, outcome.err.startswith("{")) == (2, is_json)

    outcome = xapi("token", "status", *args, env=env)  # found later
    assert (outcome.code, outcome.err.startswith("{")) == (2, is_json)


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_an_unknown_format_is_reported_as_text(xapi: Xapi, how: str) -> None:
    given = ["--error-format", "xml"] if how == "flag" else []
    name = "--error-format" if how == "flag" else "XAPI_ERROR_FORMAT"

    outcome = xapi("token", "status", *given, env={"XAPI_ERROR_FORMAT": "xml"} if how == "variable" else JSON)

    line = f"xapi: error: {name}: 'xml' is not a valid format; use text or json\n"
    assert outcome == Outcome(2, "", line)


def test_the_message_names_the_line_of_a_file(xapi: Xapi) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("# comment\n[profiles.default\n")

    assert messages(xapi("token", "status", env=JSON))[0]["line"] == 2


def test_warnings_and_notes_are_json_too(xapi: Xapi, sandbox: Sandbox) -> None:
    login = xapi("login", env=sandbox.settings | JSON)
    status = xapi("token", "status", env={**sandbox.settings, **JSON, "XAPI_TOKEN": "abc"})

    assert [(each["level"], each["kind"]) for each in messages(login)] == [("note", "note")]
    assert next((each["level"], each["kind"]) for each in messages(status)) == ("warning", "warning")
    assert not any("code" in each for each in messages(login))
    assert messages(xapi("token", "show", "--quiet", env=sandbox.settings | JSON)) == []


def test_secrets_are_redacted_before_the_message_is_encoded(xapi: Xapi) -> None:
    password = 'a"b\\c\u00fc'  # JSON writes two of these characters differently
    reply = response("401 Unauthorized", b"{}", f"Location: {password}").replace(b"Unauthorized", password.encode())
    with Server([request(), send(reply)], [request(), send(reply)]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "abc", "XAPI_PASSWORD": password}
        outcome = xapi("request", "/a", "-v", "--error-body", "none", env=env | JSON)

    assert "401 ***" in messages(outcome)[-1]["message"]
    assert password not in outcome.err
    assert json.dumps(password)[1:-1] not in outcome.err
    assert json.dumps(password, ensure_ascii=False)[1:-1] not in outcome.err
