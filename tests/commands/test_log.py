"""`--log`: one line of JSON for each request that is sent, by any command, shared by many processes."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import httpx
import pytest

from tests.commands.api import bearing, response
from tests.support.combinations import combined
from tests.support.program import Environ, Xapi
from tests.support.servers import Server, close, free_port, hang, request, send
from xapi_cli.library import open_client
from xapi_cli.sandbox import MASTER, Sandbox

MEMBERS = [
    "time", "command", "pid", "profile", "base_url", "username", "method", "path", "status", "elapsed_ms", "attempts",
    "login", "request_bytes", "response_bytes",
]  # fmt: skip


@pytest.fixture
def log(xapi: Xapi) -> Path:
    return xapi.home / "requests.log"


def logging(log: Path, env: Environ) -> Environ:
    return {**env, "XAPI_LOG": str(log)}


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_each_request_and_login_is_a_line_with_the_documented_members(xapi: Xapi, sandbox: Sandbox, log: Path) -> None:
    env = logging(log, sandbox.settings)
    assert xapi("request", "/x-api/echo?b=hunter2", "a=1", "c==secret", env=env).code == 0

    login, call = lines(log)
    assert [*login] == [*call] == MEMBERS
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", call["time"])
    assert (login["method"], login["path"], login["status"], login["login"]) == ("POST", "/x-api/token", 200, True)
    assert (call["method"], call["path"], call["status"], call["login"]) == ("POST", "/x-api/echo?b=…&c=…", 200, False)
    assert (call["command"], call["profile"], call["attempts"]) == ("request", "default", 1)
    assert (call["base_url"], call["username"]) == (sandbox.base_url, MASTER.email)
    assert call["request_bytes"] == len(b'{"a": "1"}')
    assert call["response_bytes"] > 0
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_replay_and_a_retry_are_lines_of_their_own(xapi: Xapi, sandbox: Sandbox, log: Path) -> None:
    env = logging(log, sandbox.settings)
    xapi("login", env=env)
    sandbox.revoke_tokens()

    assert xapi("request", "/x-api/me", env=env).code == 0

    found = [(each["path"], each["status"], each["attempts"], each["command"]) for each in lines(log)]
    assert found == [
        ("/x-api/token", 200, 1, "login"),
        ("/x-api/me", 401, 1, "request"),
        ("/x-api/token", 200, 1, "request"),
        ("/x-api/me", 200, 2, "request"),
    ]


@pytest.mark.parametrize(
    "steps, args, code, expected",
    [
        ([request(), close()], [], 11, {"error": "network"}),
        ([hang()], ["--timeout", "0.3"], 12, {"error": "timeout"}),
        ([request(), send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"), close()], [], 11,
         {"status": 200, "error": "network"}),
        ([request(), send(response("404 Not Found", b"no"))], ["--error-body", "none"], 4, {"status": 404}),
        ([request(), send(response("500 Broken", b"no"))], [], 5, {"status": 500}),
    ],
)  # fmt: skip
def test_a_failure_is_logged_too(
    xapi: Xapi, log: Path, steps: Any, args: list[str], code: int, expected: dict[str, object]
) -> None:
    with Server(steps) as server:
        assert xapi("request", "/a", *args, env=logging(log, bearing(server))).code == code

    (line,) = lines(log)
    assert {name: line[name] for name in ("status", "error") if name in line} == expected


def test_an_interrupted_request_is_logged(xapi: Xapi, log: Path) -> None:
    arrived = threading.Event()
    with Server([request(), lambda peer: arrived.set(), hang()]) as server:
        process = xapi.start("request", "/a", env=logging(log, bearing(server)))
        assert arrived.wait(20)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143

    assert [line["error"] for line in lines(log)] == ["interrupted"]


def test_a_request_that_was_not_sent_is_not_logged(xapi: Xapi, log: Path) -> None:
    env = {"XAPI_BASE_URL": f"http://127.0.0.1:{free_port()}", "XAPI_TOKEN": "abc"}

    assert xapi("request", "/a", env=logging(log, env)).code == 11
    assert lines(log) == []


@pytest.mark.parametrize(
    ("name", "command"), combined(["nowhere/log", ".", "pipe"], ["request", "batch", "proxy", "login"])
)
def test_nothing_is_sent_if_the_file_cannot_be_opened(xapi: Xapi, sandbox: Sandbox, name: str, command: str) -> None:
    os.mkfifo(xapi.home / "pipe")
    rest = {"request": ["/x-api/me"], "batch": [], "proxy": ["--", "true"], "login": []}[command]
    requests = sandbox.requests

    outcome = xapi(command, "--log", name, *rest, env=sandbox.settings, cwd=xapi.home, input=b'{"path": "/x-api/me"}\n')

    assert (outcome.code, outcome.out) == (14, "")
    assert re.fullmatch(r"xapi: error: the log \S+ cannot be opened: .*; choose another file\n", outcome.err)
    assert sandbox.requests == requests


def test_batch_logs_each_of_its_requests(xapi: Xapi, sandbox: Sandbox, log: Path) -> None:
    env = logging(log, sandbox.settings)
    text = "".join(f'{{"path": "/x-api/echo?n={number}", "json": [1]}}\n' for number in range(50))

    assert xapi("batch", input=text, env=env).code == 0

    login, *calls = lines(log)
    assert (login["login"], login["command"], len(calls)) == (True, "batch", 50)
    assert {(each["path"], each["method"], each["request_bytes"], each["status"]) for each in calls} == {
        ("/x-api/echo?n=…", "POST", 3, 200)
    }


def test_the_proxy_logs_what_it_forwards(xapi: Xapi, sandbox: Sandbox, log: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    script = f'{curl} -s -H "Authorization: Bearer $XAPI_TOKEN" "$XAPI_BASE_URL/x-api/me?q=hunter2"'
    outcome = xapi("proxy", "--", "sh", "-c", script, env=logging(log, sandbox.settings))

    assert outcome.code == 0
    found = [(each["command"], each["path"], each["status"], each["login"]) for each in lines(log)]
    assert found == [("proxy", "/x-api/token", 200, True), ("proxy", "/x-api/me?q=…", 200, False)]


def test_the_library_logs_its_requests(
    xapi: Xapi, sandbox: Sandbox, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**xapi.environ, **sandbox.settings}.items():
        monkeypatch.setenv(name, str(value))
    with open_client(log=log) as client:
        assert client.get("/x-api/me").status_code == httpx.codes.OK

    assert [(each["command"], each["path"]) for each in lines(log)] == [
        ("library", "/x-api/token"),
        ("library", "/x-api/me"),
    ]


@pytest.mark.parametrize(
    "encode",
    [str, quote, partial(quote, safe=""), lambda text: quote(text, safe="").lower(), quote_plus,
     lambda text: quote(quote(text, safe=""), safe="")],
    ids=["as it is", "path", "percent", "lower case", "form", "twice"],
)  # fmt: skip
def test_a_password_in_a_path_is_not_in_the_log_however_it_is_encoded(
    xapi: Xapi, sandbox: Sandbox, log: Path, encode: Callable[[str], str]
) -> None:
    encoded = encode(MASTER.password)
    outcome = xapi("request", f"/x-api/{encoded}/a", env=logging(log, sandbox.settings))

    assert lines(log)[-1]["path"] == "/x-api/***/a"
    assert "/x-api/***/a responded with 404" in outcome.err


@pytest.mark.parametrize("command", ["proxy", "library"])
def test_the_stored_token_is_not_in_the_log(
    xapi: Xapi, sandbox: Sandbox, log: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {**sandbox.settings, "XAPI_STORAGE": "file"}
    token = xapi("token", "show", env=env).out.strip()
    if command == "proxy":
        script = f'curl -s -H "Authorization: Bearer $XAPI_TOKEN" "$XAPI_BASE_URL/x-api/{token}"'
        assert xapi("proxy", "--", "sh", "-c", script, env=logging(log, env)).code == 0
    else:
        for name, value in {**xapi.environ, **env}.items():
            monkeypatch.setenv(name, str(value))
        with open_client(log=log) as client:
            client.get(f"/x-api/{token}")

    assert [line["path"] for line in lines(log)] == ["/x-api/***"]


def test_no_secret_is_in_the_log(xapi: Xapi, sandbox: Sandbox, log: Path) -> None:
    env = logging(log, sandbox.settings)
    token = xapi("token", "show", env=env).out.strip()
    password = str(sandbox.settings["XAPI_PASSWORD"])
    canaries = {"token": token, "password": password, "body": "c4nary-body", "header": "c4nary-header"}
    args = [f"/x-api/echo/{token}?access_token={token}&x={password}", f"X-Key:{canaries['header']}"]
    xapi("request", *args, f"field={canaries['body']}", env=env)
    line = {"path": args[0], "headers": {"X-Key": canaries["header"]}, "json": canaries["body"]}
    xapi("batch", input=json.dumps(line) + "\n", env=env)

    text = log.read_text()
    assert len(text.splitlines()) == 3
    assert [name for name, canary in canaries.items() if canary in text] == []


@pytest.mark.slow
def test_64_processes_share_the_file_without_torn_lines(xapi: Xapi, sandbox: Sandbox, log: Path) -> None:
    env = logging(log, {"XAPI_BASE_URL": sandbox.base_url, "XAPI_TOKEN": "abc"})
    text = "".join(f'{{"path": "/{"x" * 300}/{number}"}}\n' for number in range(20)).encode()
    processes = [
        xapi.start("batch", env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(64)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.close()
    for process in processes:
        process.wait(120)

    found = lines(log)
    assert len(found) == 64 * 20
    assert {line["pid"] for line in found} == {process.pid for process in processes}


@pytest.mark.parametrize("how", ["rename"])
def test_a_rotated_file_is_found_again(xapi: Xapi, log: Path, how: str) -> None:
    old = log.with_name("requests.log.1")

    def rotate(peer: object) -> None:
        if how == "rename":
            log.rename(old)
            log.touch(0o640)  # as logrotate with `create`
        elif how == "remove":
            log.unlink()
        else:
            shutil.copy(log, old)
            os.truncate(log, 0)

    reply = send(response(body=b"{}"))
    with Server([request(), reply, request(), rotate, reply]) as server:
        text = '{"path": "/1"}\n{"path": "/2"}\n'
        assert xapi("batch", "--jobs", "1", input=text, env=logging(log, bearing(server))).code == 0

    assert [line["path"] for line in lines(log)] == ["/2"]
    if how != "remove":
        assert [line["path"] for line in lines(old)] == ["/1"]


def test_a_log_that_cannot_be_written_is_a_warning(xapi: Xapi, log: Path) -> None:
    reply = send(response(body=b"{}"))

    def block(peer: object) -> None:
        log.unlink()
        log.mkdir()

    with Server([request(), block, reply]) as server:
        outcome = xapi("request", "/a", env=logging(log, bearing(server)))

    assert (outcome.code, outcome.out) == (0, "{}")
    assert re.fullmatch(r"xapi: warning: the log \S+ cannot be written: Is a directory\n", outcome.err)


def test_a_profile_can_have_a_log_relative_to_its_config_file(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text('[profiles.default]\nlog = "requests.log"\n')

    assert xapi("login", env=sandbox.settings).code == 0
    assert len(lines(xapi.config / "requests.log")) == 1
