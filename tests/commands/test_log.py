"""`--log`: one line of JSON for each request that is sent, by any command, shared by many processes."""

import json
import os
import re
import signal
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.commands.api import bearing, response
from tests.support.combinations import combined
from tests.support.program import PROGRAM, Environ, Outcome, Xapi
from tests.support.servers import OK, Server, close, free_port, hang, request, send, serve
from xapi_cli.features.sandbox import MASTER, Sandbox
from xapi_cli.library import open_client

MEMBERS = ["time", "command", "pid", "profile", "base_url", "username", "method", "path", "status", "elapsed_ms"]


@pytest.fixture
def log(xapi: Xapi) -> Path:
    return xapi.home / "requests.log"


def logging(log: Path, env: Environ) -> Environ:
    return {**env, "XAPI_LOG": str(log)}


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_each_request_and_login_is_a_line_with_the_documented_members(xapi: Xapi, sandbox: Sandbox, log: Path) -> None:
    env = logging(log, sandbox.settings)
    assert xapi("login", env=env).code == 0
    sandbox.revoke_tokens()
    assert xapi("request", "/x-api/echo?b=hunter2", "a=1", "c==secret", env=env).code == 0

    found = lines(log)
    assert [(each["command"], each["method"], each["path"], each["status"]) for each in found] == [
        ("login", "POST", "/x-api/token", 200),
        ("request", "POST", "/x-api/echo?b=…&c=…", 401),
        ("request", "POST", "/x-api/token", 200),
        ("request", "POST", "/x-api/echo?b=…&c=…", 200),
    ]
    assert all([*each] == MEMBERS for each in found)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found[0]["time"])
    assert (found[0]["profile"], found[0]["base_url"], found[0]["username"]) == (
        "default",
        sandbox.base_url,
        MASTER.email,
    )
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "steps, args, code, expected",
    [
        ([request(), close()], [], 11, {"error": "network"}),
        ([hang()], ["--timeout", "0.3"], 12, {"error": "timeout"}),
        ([request(), send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"), close()], [], 11,
         {"status": 200, "error": "network"}),
        ([request(), send(response("404 Not Found", b"no"))], ["--error-body", "none"], 4, {"status": 404}),
    ],
)  # fmt: skip
def test_a_failure_is_logged_too(
    xapi: Xapi, log: Path, steps: Any, args: list[str], code: int, expected: dict[str, object]
) -> None:
    with Server(steps) as server:
        assert xapi("request", "/a", *args, env=logging(log, bearing(server))).code == code
    (line,) = lines(log)
    assert {name: line[name] for name in ("status", "error") if name in line} == expected


@pytest.mark.parametrize("args", [("request", "/a"), ("batch", "lines")])
def test_an_interrupted_request_is_logged_and_one_that_was_not_sent_is_not(
    xapi: Xapi, log: Path, args: tuple[str, ...]
) -> None:
    (xapi.home / "lines").write_text('{"path": "/a"}\n')
    env = {"XAPI_BASE_URL": f"http://127.0.0.1:{free_port()}", "XAPI_TOKEN": "abc"}
    assert xapi("request", "/a", env=logging(log, env)).code == 11
    arrived = threading.Event()
    with Server([request(), lambda peer: arrived.set(), hang()]) as server:
        process = xapi.start(*args, env=logging(log, bearing(server)))
        assert arrived.wait(60)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143
    assert [line["error"] for line in lines(log)] == ["interrupted"]


@pytest.mark.parametrize(
    ("command", "name"),
    combined(["request /x-api/me", "batch", "proxy -- true", "login"], ["nowhere/log", ".", "pipe"]),
)
def test_nothing_is_sent_if_the_file_cannot_be_opened(xapi: Xapi, sandbox: Sandbox, name: str, command: str) -> None:
    os.mkfifo(xapi.home / "pipe")
    command, *rest = command.split()
    outcome = xapi(command, "--log", name, *rest, env=sandbox.settings, cwd=xapi.home, input='{"path": "/x-api/me"}\n')
    assert (outcome.code, outcome.out, sandbox.requests) == (14, "", 0)
    assert re.fullmatch(r"xapi: error: the log \S+ cannot be opened: .*; choose another file\n", outcome.err)


@pytest.mark.parametrize(
    ("args", "role"),
    [
        (["request", "/a", "--meta"], "--meta"),
        (["request", "/a", "--continue", "-o"], "-o"),
    ],
)
def test_the_log_cannot_be_another_file_of_the_command(xapi: Xapi, log: Path, args: list[str], role: str) -> None:
    log.write_text('{"path": "/a"}\n')
    (xapi.home / "link").symlink_to(log)
    with Server([serve(OK)]) as server:
        outcome = xapi(*args, str(xapi.home / "link"), env=logging(log, bearing(server)), input='{"path": "/b"}\n')
    expected = f"xapi: error: {role} and the request log are the same file; use two different files\n"
    assert (outcome, server.received) == (Outcome(2, "", expected), [])
    assert log.read_text() == '{"path": "/a"}\n'


@pytest.mark.parametrize("command", ["batch", "proxy", "library"])
def test_each_command_logs_its_requests(
    xapi: Xapi, sandbox: Sandbox, log: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = logging(log, sandbox.settings)
    if command == "batch":
        assert xapi("batch", input='{"path": "/x-api/me"}\n' * 20, env=env).code == 0
    elif command == "proxy":
        script = 'for i in $(seq 20); do curl -s -H "Authorization: Bearer $XAPI_TOKEN" "$XAPI_BASE_URL/x-api/me"; done'
        assert xapi("proxy", "--", "sh", "-c", script, env=env).code == 0
    else:
        for name, value in {**xapi.environ, **sandbox.settings}.items():
            monkeypatch.setenv(name, str(value))
        with open_client(log=log) as client:
            for _ in range(20):
                client.get("/x-api/me")
    login, *calls = [(each["command"], each["path"]) for each in lines(log)]
    assert (login, calls) == ((command, "/x-api/token"), [(command, "/x-api/me")] * 20)


SECRETS = [
    (MASTER.password, "/x-api/***"),
    (quote(MASTER.password, safe="").lower(), "/x-api/***"),
    (quote(quote(MASTER.password, safe=""), safe=""), "/x-api/***"),
    ("a?hunter2", "/x-api/a?…"),
    ("a?b=hunter2&hunter2", "/x-api/a?b=…&…"),
    ("a;token=hunter2/b", "/x-api/a;token=***"),
]


@pytest.mark.parametrize("path, shown", SECRETS)
def test_no_secret_and_no_value_of_a_query_is_in_the_log(
    xapi: Xapi, sandbox: Sandbox, log: Path, path: str, shown: str
) -> None:
    xapi("request", f"/x-api/{path}", "X-Api-Key:hunter2", env=logging(log, sandbox.settings))
    assert lines(log)[-1]["path"] == shown
    assert not re.search(f"hunter2|{re.escape(MASTER.password)}|Bearer", log.read_text())


def test_processes_share_the_file_without_torn_lines_while_it_is_rotated(
    xapi: Xapi, sandbox: Sandbox, log: Path
) -> None:
    token = xapi("token", "show", env=sandbox.settings).out.strip()
    env = logging(log, {"XAPI_TOKEN": token, "XAPI_BASE_URL": sandbox.base_url})
    text = '{"path": "/x-api/me"}\n' * 50
    batches = [xapi.start("batch", env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(4)]
    for batch in batches:
        assert batch.stdin is not None
        batch.stdin.write(text.encode())
        batch.stdin.close()
    while not (log.exists() and log.stat().st_size):
        assert any(batch.poll() is None for batch in batches)
    log.rename(log.with_suffix(".1"))
    assert [batch.wait() for batch in batches] == [0] * 4
    found = [*lines(log.with_suffix(".1")), *(lines(log) if log.exists() else [])]
    assert sorted({each["pid"] for each in found}) == sorted(batch.pid for batch in batches)
    assert len(found) == 200


def test_a_line_that_does_not_fit_on_the_disk_is_a_warning(xapi: Xapi, log: Path) -> None:
    log.write_text("x" * 1000)
    shell = ("bash", "-c", 'ulimit -f 1; trap "" XFSZ; exec "$@"', "sh", str(PROGRAM))
    with Server([serve(OK)]) as server:
        process = xapi.start("request", "/a", env=logging(log, bearing(server)), argv=shell)
        out, err = process.communicate()
    assert (process.returncode, out) == (0, b"ok")
    assert err == f"xapi: warning: the log {log} cannot be written: the disk is full\n".encode()


def test_a_profile_can_have_a_log_relative_to_its_config_file(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text('[profiles.default]\nlog = "here.log"\n')
    assert xapi("request", "/x-api/me", env=sandbox.settings).code == 0
    assert len(lines(xapi.config / "here.log")) == 2
