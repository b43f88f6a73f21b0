"""`--log`: one line of JSON for each request that is sent, by any command, shared by many processes."""

import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import httpx
import pytest

from tests.commands.api import bearing, response
from tests.support.program import Environ, Outcome, Xapi, in_deleted_directory
from tests.support.servers import OK, Server, close, free_port, hang, request, send, serve
from xapi_cli.http.messages import build_request
from xapi_cli.http.request_log import RequestLog
from xapi_cli.http.transport import open_transport
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


def test_the_line_of_a_401_has_the_status_if_its_body_is_truncated(xapi: Xapi, log: Path) -> None:
    rejected = [request(), send(b"HTTP/1.1 401 No\r\nContent-Length: 9\r\n\r\nno"), close()]
    granted = [request(), send(response(body=b'{"access_token": "new", "token_type": "bearer", "expires_in": 60}'))]
    with Server(granted, rejected, granted, [request(), send(response(body=b"{}"))]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "secret", "XAPI_STORAGE": "file"}
        xapi("login", env=env)
        assert xapi("request", "/a", env=logging(log, env)).code == 0

    assert [(each.get("status"), each.get("error"), each["login"]) for each in lines(log)] == [
        (401, None, False),
        (200, None, True),
        (200, None, False),
    ]


def test_the_process_is_the_one_that_the_user_started(xapi: Xapi, log: Path) -> None:
    with Server([request(), send(response(body=b"{}"))]) as server:
        process = xapi.start("request", "/a", env=logging(log, bearing(server)))
        assert process.wait(20) == 0

    assert [line["pid"] for line in lines(log)] == [process.pid]


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


def test_the_407_of_a_proxy_is_logged_as_a_failure_and_is_not_retried(xapi: Xapi, log: Path) -> None:
    with Server([request(), send(response("407 No"))]) as proxy:
        env = {"XAPI_TOKEN": "t", "XAPI_BASE_URL": "http://api.test", "HTTP_PROXY": proxy.url}
        assert xapi("request", "/a", "--retry", "3", env=logging(log, env)).code == 11

    assert [(line["status"], line["error"]) for line in lines(log)] == [(407, "network")]


def test_an_interrupted_request_is_logged(xapi: Xapi, log: Path) -> None:
    arrived = threading.Event()
    with Server([request(), lambda peer: arrived.set(), hang()]) as server:
        process = xapi.start("request", "/a", env=logging(log, bearing(server)))
        assert arrived.wait(20)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143

    assert [line["error"] for line in lines(log)] == ["interrupted"]


@pytest.mark.parametrize("rate", [(), ("--rate", "1/m")], ids=["", "the second is held"])
def test_the_requests_of_an_interrupted_batch_are_logged_if_they_were_sent(
    xapi: Xapi, log: Path, rate: tuple[str, ...]
) -> None:
    arrived = threading.Semaphore(0)
    with Server([request(), lambda peer: arrived.release(), hang()]) as server:
        process = xapi.start("batch", *rate, stdin=subprocess.PIPE, env=logging(log, bearing(server)))
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b'{"path": "/a"}\n' * 2)
        process.stdin.flush()
        for _ in range(1 if rate else 2):
            assert arrived.acquire(timeout=20)
        process.send_signal(signal.SIGINT)
        assert b"finishing" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130

    assert [line["error"] for line in lines(log)] == ["interrupted"] * (1 if rate else 2)


def test_a_request_that_was_not_sent_is_not_logged(xapi: Xapi, log: Path) -> None:
    env = {"XAPI_BASE_URL": f"http://127.0.0.1:{free_port()}", "XAPI_TOKEN": "abc"}

    assert xapi("request", "/a", env=logging(log, env)).code == 11
    assert lines(log) == []


@pytest.mark.parametrize("command", ["request", "batch", "proxy", "login"])
@pytest.mark.parametrize("name", ["nowhere/log", ".", "pipe"])
def test_nothing_is_sent_if_the_file_cannot_be_opened(xapi: Xapi, sandbox: Sandbox, name: str, command: str) -> None:
    os.mkfifo(xapi.home / "pipe")
    rest = {"request": ["/x-api/me"], "batch": [], "proxy": ["--", "true"], "login": []}[command]
    requests = sandbox.requests

    outcome = xapi(command, "--log", name, *rest, env=sandbox.settings, cwd=xapi.home, input=b'{"path": "/x-api/me"}\n')

    assert (outcome.code, outcome.out) == (14, "")
    assert re.fullmatch(r"xapi: error: the log \S+ cannot be opened: .*; choose another file\n", outcome.err)
    assert sandbox.requests == requests


@pytest.mark.parametrize("command", ["request", "batch"])
def test_the_null_device_turns_off_the_log_of_the_profile(
    xapi: Xapi, sandbox: Sandbox, log: Path, command: str
) -> None:
    assert xapi("profile", "set", "log", str(log)).code == 0
    rest = {"request": ["/x-api/me"], "batch": []}[command]

    for args in ([], ["--log", os.devnull], []):
        outcome = xapi(command, *args, *rest, env=bearing(sandbox), input=b'{"path": "/x-api/me"}\n')
        assert outcome.code == 0, outcome.err
    assert len(lines(log)) == 2


@pytest.mark.parametrize("by", ["flag", "variable", "profile"])
@pytest.mark.parametrize(
    ("args", "role"),
    [
        (["request", "/a", "-o"], "-o"),
        (["request", "/a", "--meta"], "--meta"),
        (["request", "/a", "--continue", "-o"], "-o"),
        (["batch", "--failed"], "--failed"),
        (["batch", "--journal"], "--journal"),
        (["batch"], "FILE"),
    ],
)
def test_the_log_cannot_be_another_file_of_the_command(
    xapi: Xapi, log: Path, tmp_path: Path, args: list[str], role: str, by: str
) -> None:
    log.write_text('{"path": "/a"}\n')
    link = tmp_path / "link"
    link.symlink_to(log)
    if by == "profile":
        assert xapi("profile", "set", "log", str(log)).code == 0
    with Server([serve(OK)]) as server:
        env = bearing(server) if by != "variable" else logging(log, bearing(server))
        flags = ["--log", str(log)] if by == "flag" else []
        outcome = xapi(*args, str(link), *flags, env=env, input=b'{"path": "/b"}\n')

    expected = f"xapi: error: {role} and the request log are the same file; use two different files\n"
    assert (outcome, server.received) == (Outcome(2, "", expected), [])
    assert log.read_text() == '{"path": "/a"}\n'


def test_the_log_can_be_the_file_of_stdout(xapi: Xapi, log: Path) -> None:
    for command in (["request", "/a"], ["batch"]):
        with Server([serve(response(body=b"{}\n"))]) as server, log.open("ab") as out:
            process = xapi.start(
                *command, env=logging(log, bearing(server)), stdout=out, stdin=subprocess.PIPE, stderr=subprocess.PIPE
            )
            _, err = process.communicate(b'{"path": "/b"}\n', timeout=30)
            assert process.returncode == 0, err

    assert [line["path"] for line in lines(log) if "method" in line] == ["/a", "/b"]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("command", ["request /x-api/me", "batch"])
def test_a_stream_that_would_overwrite_the_log_is_refused(
    xapi: Xapi, sandbox: Sandbox, log: Path, command: str, stream: str
) -> None:
    with log.open("wb") as file:
        process = xapi.start(
            *command.split(),
            env=logging(log, sandbox.settings),
            stdout=file if stream == "stdout" else subprocess.PIPE,
            stderr=file if stream == "stderr" else subprocess.PIPE,
        )
        out, err = process.communicate(timeout=30)

    message = f"xapi: error: {stream} is redirected with > to the request log, and would overwrite it; "
    assert (process.returncode, out or b"") == (2, b"")
    assert (err or log.read_bytes()).decode() == f"{message}redirect it with >>, or to another file\n"
    assert sandbox.requests == 0


@pytest.mark.parametrize(
    "args",
    [
        ("request", "/x-api/me", "-o", "x"),
        ("request", "/x-api/me", "--meta", "x"),
        ("batch", "--failed", "x", os.devnull),
        ("batch", "--journal", "x", os.devnull),
    ],
    ids=" ".join,
)
def test_relative_files_in_a_deleted_directory_are_one_error(
    xapi: Xapi, sandbox: Sandbox, args: tuple[str, ...]
) -> None:
    outcome = in_deleted_directory(xapi, *args, env=sandbox.settings)

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (14, "", 1)
    assert "No such file or directory" in outcome.err


def test_a_nul_in_the_path_of_the_log_is_an_error(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text('[profiles.default]\nlog = "a\\u0000b"\n')

    outcome = xapi("request", "/x-api/me", "-o", str(xapi.home / "x"), env=sandbox.settings)

    assert outcome == Outcome(2, "", "xapi: error: profile default, log: the path contains a NUL; remove it\n")


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


@pytest.mark.parametrize("path", ["/a?hunter2", "/a?b=hunter2&hunter2", "/a;token=hunter2/b"])
def test_a_value_without_a_name_is_not_in_the_log(xapi: Xapi, log: Path, path: str) -> None:
    with Server([request(), send(response(body=b"{}"))]) as server:
        assert xapi("request", path, env=logging(log, bearing(server))).code == 0

    assert "hunter2" not in log.read_text()


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


def test_threads_share_a_client_and_its_log(
    xapi: Xapi, sandbox: Sandbox, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**xapi.environ, **sandbox.settings}.items():
        monkeypatch.setenv(name, str(value))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with open_client(log=log) as client, ThreadPoolExecutor(16) as pool:
            statuses = list(pool.map(lambda number: client.get(f"/x-api/{number}").status_code, range(400)))
    finally:
        sys.setswitchinterval(before)

    assert statuses == [404] * 400
    found = [line["path"] for line in lines(log) if not line["login"]]
    assert sorted(found) == sorted(f"/x-api/{number}" for number in range(400))


def test_a_percent_sign_in_a_method_is_logged_as_it_is(
    xapi: Xapi, sandbox: Sandbox, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in logging(log, {**xapi.environ, **sandbox.settings}).items():
        monkeypatch.setenv(name, str(value))
    with open_client() as client:
        for method in ("A%SB", "A%%B"):
            client.request(method, "/x-api/me")

    assert [line["method"] for line in lines(log) if not line["login"]] == ["A%SB", "A%%B"]


def test_a_program_may_change_its_directory(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**xapi.environ, **sandbox.settings, "XAPI_LOG": "requests.log"}.items():
        monkeypatch.setenv(name, str(value))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with open_client() as client:
        monkeypatch.chdir(tmp_path / "elsewhere")
        client.get("/x-api/me")

    assert len(lines(tmp_path / "requests.log")) == 2
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_symbolic_link_of_another_user_is_not_followed(xapi: Xapi, sandbox: Sandbox, log: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    target = xapi.home / "target"
    target.touch()
    log.symlink_to(target)
    os.chown(log, 12345, 12345, follow_symlinks=False)

    outcome = xapi("request", "/x-api/me", env=logging(log, sandbox.settings))

    assert (outcome.code, target.read_text()) == (14, "")
    assert outcome.err == (
        f"xapi: error: the log {log} cannot be opened: the symbolic link {log} belongs to another user;"
        " choose another file\n"
    )


def test_a_symbolic_link_of_the_user_is_followed(xapi: Xapi, sandbox: Sandbox, log: Path) -> None:
    target = xapi.home / "target"
    log.symlink_to(target)

    assert xapi("request", "/x-api/me", env=logging(log, sandbox.settings)).code == 0

    assert log.is_symlink()
    assert len(lines(target)) == 2


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


@pytest.mark.parametrize("how", ["rename", "remove", "truncate"])
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


@pytest.mark.parametrize("how", ["create", "copytruncate"])
def test_logrotate_loses_no_line(xapi: Xapi, log: Path, how: str) -> None:
    logrotate = shutil.which("logrotate", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if logrotate is None:
        pytest.skip("logrotate is not installed")
    config, state = xapi.home / "logrotate.conf", xapi.home / "logrotate.state"
    config.write_text(f"{log} {{\n  rotate 9\n  {how}\n}}\n")
    config.chmod(0o600)

    def rotate(peer: object) -> None:
        subprocess.run([logrotate, "-f", "-s", state, config], check=True, timeout=20)

    reply = send(response(body=b"{}"))
    with Server([request(), reply, request(), rotate, reply]) as server:
        text = '{"path": "/1"}\n{"path": "/2"}\n'
        assert xapi("batch", "--jobs", "1", input=text, env=logging(log, bearing(server))).code == 0

    assert [line["path"] for line in lines(log)] == ["/2"]
    assert [line["path"] for line in lines(log.with_name("requests.log.1"))] == ["/1"]


def test_a_line_that_does_not_fit_on_the_disk_is_a_warning_and_tears_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "requests.log"
    warnings: list[str] = []
    log = RequestLog(str(path), {"command": "x"}, ("http", "api.test", 80), str, warnings.append)
    transport = open_transport(ca_bundle=None, environ={}, log=log)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Server([request(), send(OK), request(), send(OK)]) as server, closing(transport), closing(log):
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # a part of a line
        try:
            transport.send(build_request("GET", f"{server.url}/a", [])).close()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        transport.send(build_request("GET", f"{server.url}/a", [])).close()

    torn, line = path.read_text().splitlines()
    assert len(torn) == 100
    assert json.loads(line)["path"].endswith("/a")
    assert warnings == [f"the log {path} cannot be written: the disk is full"]


@pytest.mark.parametrize("mode", [0o600, 0o200])
def test_a_part_of_a_line_that_another_process_left_tears_no_line(xapi: Xapi, log: Path, mode: int) -> None:
    part = '{"time": "2026-11-25T2'  # of a process that a full disk has stopped
    log.write_text(f"{{}}\n{part}" if mode & 0o400 else "{}\n")
    log.chmod(mode)
    reply = send(response(body=b"{}"))
    with Server([request(), reply], [request(), reply, request(), reply]) as server:
        env = logging(log, bearing(server))
        assert xapi("request", "/1", env=env).code == 0
        assert xapi("batch", "--jobs", "1", input='{"path": "/2"}\n{"path": "/3"}\n', env=env).code == 0

    log.chmod(0o600)
    found = log.read_text().splitlines()
    assert found[:-3] == (["{}", part] if mode & 0o400 else ["{}"])
    assert [json.loads(line)["path"] for line in found[-3:]] == ["/1", "/2", "/3"]


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


def test_an_empty_value_is_refused(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("request", "/x-api/me", "--log", "", env=sandbox.settings)

    assert outcome == Outcome(2, "", "xapi: error: --log is empty; give a value, or omit the option\n")
