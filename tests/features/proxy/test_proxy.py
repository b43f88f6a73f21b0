"""`xapi proxy`: other programs use the API, and never see the token."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.commands.api import TOKEN, bearing, response
from tests.commands.profiles import write_config
from tests.features.proxy.running import Proxy, proxy, start
from tests.support.program import PROGRAM, PYTHON, Xapi
from tests.support.servers import OK, Peer, Server, Step, free_port, hang, head, request, send, wait_for
from xapi_cli.features.sandbox import MASTER, Sandbox

LARGE = 20 * 2**20  # bytes


def test_any_client_uses_the_api_with_the_key_and_never_sees_the_token(xapi: Xapi, sandbox: Sandbox) -> None:
    with proxy(xapi, sandbox.settings) as running, running.client() as client:
        me = client.get("/x-api/me")
        hop_by_hop = {"Connection": "keep-alive, X-Hop", "X-Hop": "d", "TE": "trailers", "Proxy-Authorization": "e"}
        own = {"Cookie": "a=b", "X-Own": "c"}
        echo = client.post("/x-api/echo", json={"a": 1}, headers=own | hop_by_hop).json()

    assert me.json()["email"] == MASTER.email
    assert echo["json"] == {"a": 1}
    assert echo["headers"]["x-own"] == "c"
    assert echo["headers"].keys().isdisjoint({"cookie", "x-hop", "te", "proxy-authorization"})
    assert sandbox.user_of(running.settings["XAPI_TOKEN"]) is None
    wrong = {**sandbox.settings, "XAPI_PASSWORD": "wrong", "XAPI_STORAGE": "none"}
    assert xapi("proxy", "--", "true", env=wrong).code == 10  # the login comes first


@pytest.mark.parametrize("args", [(), ("--port", "0")])
def test_ctrl_c_ends_the_proxy_with_exit_code_0(xapi: Xapi, sandbox: Sandbox, args: tuple[str, ...]) -> None:
    with xapi.on_terminal("proxy", *args, env={**sandbox.settings, "XAPI_TOKEN": TOKEN}) as terminal:
        terminal.expect("serving until Ctrl-C")
        terminal.interrupt()
        assert terminal.wait() == 0


def test_a_unix_socket_in_a_private_directory_needs_no_key(xapi: Xapi, sandbox: Sandbox) -> None:
    with proxy(xapi, sandbox.settings, "--read-only") as running:
        path = Path(running.settings["XAPI_PROXY_SOCKET"])
        assert list(running.settings) == ["XAPI_PROXY_SOCKET"]
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        with httpx.Client(
            transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost", timeout=60
        ) as client:
            assert client.get("/x-api/me").json()["email"] == MASTER.email

    assert not path.parent.exists()


COMMAND = "import json, os; print(json.dumps(dict(os.environ)))"


def test_a_command_gets_the_address_and_a_key_but_no_secret(xapi: Xapi, sandbox: Sandbox) -> None:
    token = sandbox.log_in(MASTER.email, MASTER.password) or ""
    env = {**sandbox.settings, "XAPI_TOKEN": token, "http_proxy": "http://127.0.0.1:9", "no_proxy": "corp.test"}
    env["XAPI_BASE_URL"] += "/v1"

    outcome = xapi("proxy", "--", str(PYTHON), "-c", COMMAND, env=env)

    environ = json.loads(outcome.out)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1", environ["XAPI_BASE_URL"])
    assert environ["no_proxy"] == environ["NO_PROXY"] == "corp.test,127.0.0.1"
    assert not Path(environ["XAPI_PROXY_SOCKET"]).exists()
    assert token not in outcome.out
    assert MASTER.password not in outcome.out
    assert (outcome.code, outcome.err) == (0, "")


def test_another_xapi_is_a_client_and_the_exit_code_is_that_of_the_command(xapi: Xapi, sandbox: Sandbox) -> None:
    script = "xapi request /x-api/me && exit 7"
    assert xapi("profile", "set", "-p", "work", "base_url", sandbox.base_url).code == 0  # not the proxy

    outcome = xapi("proxy", "--", "sh", "-c", script, env={**sandbox.settings, "XAPI_PROFILE": "work"})

    assert (outcome.code, json.loads(outcome.out)["email"]) == (7, MASTER.email)
    assert sandbox.logins == 1


@pytest.mark.parametrize(
    ("command", "code"), [(("sh", "-c", "kill -KILL $$"), 137), (("sh", "-c", "exit 255"), 255), (("not-there",), 127)]
)
def test_the_end_of_the_command_is_the_end_of_the_proxy(xapi: Xapi, command: tuple[str, ...], code: int) -> None:
    with Server([request(), send(OK)]) as server:
        outcome = xapi("proxy", "--", *command, env=bearing(server))

    assert outcome.code == code
    assert server.received == []


def test_after_its_time_every_request_is_refused_and_the_proxy_ends(xapi: Xapi, tmp_path: Path) -> None:
    (file := tmp_path / "token").write_text(TOKEN)
    with Server([request(), send(OK)]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN_FILE": str(file)}
        script = "sleep 0.3; xapi request /"
        command = xapi("proxy", "--ttl", "0.2", "--", "sh", "-c", script, env=env)
        serving = xapi("proxy", "--ttl", "0.2", "--port", "0", env=env)

    assert (command.code, serving.code, server.received) == (10, 0, [])
    assert serving.out.splitlines()[2:] == ["unset XAPI_TOKEN_FILE"]
    process, _ = start(xapi, env, "--port", "0")
    process.send_signal(signal.SIGHUP)
    assert process.wait() == 129


def test_sigterm_reaches_the_command(xapi: Xapi) -> None:
    with Server([request(), send(OK)]) as server:
        process = xapi.start(
            "proxy", "--", "sh", "-c", "trap 'exit 9' TERM; echo; sleep 60 & wait", env=bearing(server)
        )
        assert process.stdout
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)

        assert process.wait() == 9


@pytest.mark.slow
def test_after_max_time_the_command_ends_even_if_it_ignores_sigterm(xapi: Xapi) -> None:
    script = "trap 'echo ignored' TERM; echo $$; while :; do sleep 0.1; done"
    with Server([request(), send(OK)]) as server:
        outcome = xapi("proxy", "--max-time", "2.2", "--", "sh", "-c", script, env=bearing(server))

    number, reaction = outcome.out.split()
    assert outcome.code == 12
    assert outcome.err == "xapi: error: the command did not finish within 2.2 s; raise --max-time\n"
    assert reaction == "ignored"
    with pytest.raises(ProcessLookupError):
        os.kill(int(number), 0)


@pytest.mark.parametrize(
    "command",
    ['rmdir "$PWD"; exec "$@" --socket api.sock', 'exec "$@" --socket ""'],
    ids=["in a deleted directory", "without a path"],
)
def test_a_socket_without_a_usable_path_is_a_usage_error(xapi: Xapi, tmp_path: Path, command: str) -> None:
    (tmp_path / "directory").mkdir()
    env = {"XAPI_BASE_URL": "http://api.test", "XAPI_TOKEN": TOKEN}
    process = xapi.start("proxy", env=env, cwd=tmp_path / "directory", argv=("sh", "-c", command, "sh", str(PROGRAM)))
    _, err = process.communicate()

    assert process.returncode == 2
    assert err.decode() in {
        "xapi: error: --socket: the path is relative, and the current directory was deleted; give an absolute path\n",
        "xapi: error: --socket: the path is empty; give a path\n",
    }


def test_an_invalidated_token_is_renewed_once_for_all_clients(xapi: Xapi, sandbox: Sandbox) -> None:
    async def call_all(running: Proxy) -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=64)
        async with httpx.AsyncClient(
            base_url=running.url, headers=running.headers, trust_env=False, timeout=60, limits=limits
        ) as client:
            await client.get("/x-api/me")
            sandbox.revoke_tokens()
            calls = [client.post("/x-api/echo", content=b"%d" % number) for number in range(64)]
            return await asyncio.gather(*calls)

    with proxy(xapi, sandbox.settings) as running:
        responses = asyncio.run(call_all(running))

    assert [each.status_code for each in responses] == [200] * 64
    assert [each.json()["text"] for each in responses] == [str(number) for number in range(64)]
    assert sandbox.logins == 2


def test_the_same_body_is_sent_again_after_a_401(xapi: Xapi, sandbox: Sandbox) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(64):
            yield b"x" * 65_536

    with proxy(xapi, sandbox.settings) as running, running.client() as client:
        client.get("/x-api/me")
        sandbox.revoke_tokens()
        echo = client.post("/x-api/echo", content=chunks()).json()

    assert echo.get("length") == 64 * 65_536, echo


def test_a_body_is_passed_on_as_it_arrives_in_both_directions(xapi: Xapi) -> None:
    arrived, answered = threading.Event(), threading.Event()
    first = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"

    def expect_part(peer: Peer) -> None:
        while b"part" not in peer.received:
            peer.read_some()
        arrived.set()

    def parts() -> Iterator[bytes]:
        yield b"part"
        assert arrived.wait(60)
        yield b"last"

    steps: list[Step] = [
        expect_part,
        head(),
        request(),
        send(first),
        wait_for(answered),
        send(b"4\r\nrest\r\n0\r\n\r\n"),
    ]
    with (
        Server(steps) as server,
        proxy(xapi, bearing(server)) as running,
        running.client() as client,
        client.stream("POST", "/", content=parts()) as streamed,
    ):
        blocks = streamed.iter_raw()
        assert next(blocks) == b"first"
        answered.set()
        assert b"".join(blocks) == b"rest"


@pytest.mark.parametrize(
    "given",
    [
        b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: %b\r\nOrigin: http://evil.test\r\n%b\r\n",
        b"CONNECT evil.test:443 HTTP/1.1\r\nHost: %b\r\n%b\r\n",
        b"TRACE / HTTP/1.1\r\nHost: %b\r\n%b\r\n",
        b"GET http://evil.test/ HTTP/1.1\r\nHost: %b\r\n%b\r\n",
        b"POST / HTTP/1.1\r\nHost: %b\r\n%bContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /",
        b"POST / HTTP/1.1\r\nHost: %b\r\n%bTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: %b\r\n%bContent-Length : 3\r\n\r\nabc",
    ],
)
def test_what_is_refused_does_not_reach_the_api(xapi: Xapi, given: bytes) -> None:
    with Server([request(), send(OK)]) as server, proxy(xapi, bearing(server)) as running:
        host = "{}:{}".format(*running.address).encode()
        key = f"Authorization: Bearer {running.settings['XAPI_TOKEN']}\r\n".encode()
        data = given % (host, key) if given.count(b"%b") == 2 else given % host if b"%b" in given else given
        with socket.create_connection(running.address, timeout=30) as connection:
            connection.sendall(data)
            reply = connection.recv(65_536)

        status = int(reply.split()[1])
        assert status in {400, 401, 403, 421, 501}
        assert json.loads(reply.partition(b"\r\n\r\n")[2])["message"].startswith("xapi proxy: ")
        assert server.received == []


@pytest.mark.parametrize(("body", "is_complete"), [("5\r\nhello\r\n0\r\n\r\n", True), ("6\r\nhello", False)])
def test_the_end_of_the_connection_is_the_end_of_a_response_for_http_1_0(
    xapi: Xapi, body: str, is_complete: bool
) -> None:
    reply = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}".encode()
    with Server([request(), send(reply)]) as server, proxy(xapi, bearing(server)) as running:
        host, port = running.address
        curl = ["curl", "-sS", "--http1.0", f"http://{host}:{port}/a", "-H"]
        found = subprocess.run(
            [*curl, f"Authorization: Bearer {running.settings['XAPI_TOKEN']}"], capture_output=True, check=False
        )

    assert (found.returncode == 0) is is_complete
    assert found.stdout == b"hello" or not is_complete  # a reset may discard what curl has not read


def test_read_only_mode_of_a_profile_applies_unless_write_is_given(xapi: Xapi, sandbox: Sandbox) -> None:
    write_config(xapi, "[profiles.default]\nread_only = true\n")
    with proxy(xapi, sandbox.settings) as running, running.client() as client:
        refusal = client.post("/x-api/echo", content=b"x")
        assert client.get("/x-api/me").status_code == 200
    rules = ("--allow", "* /x-api/no*", "--allow", "POST /x-api/echo")
    with proxy(xapi, sandbox.settings, "--port", "0", "--write", *rules) as running, running.client() as client:
        assert client.post("/x-api/echo", content=b"x").json()["text"] == "x"
        assert client.get("/x-api/me").json()["error"] == "not-allowed"

    assert (refusal.status_code, refusal.json()["error"]) == (403, "read-only")
    assert refusal.json()["message"].endswith("; start the proxy with --write to send it")
    assert sandbox.requests == 2


def test_redirects_and_links_lead_to_the_proxy_and_cookies_are_dropped(xapi: Xapi) -> None:
    script: list[Step] = [request()]
    with Server(script) as server:
        script.append(
            send(
                response(
                    "302 Found",
                    b"",
                    f"Location: {server.url}/next?a=b",
                    f'Link: <{server.url}/2>; rel="next", <https://other.test/>; rel="help"',
                    "Set-Cookie: session=secret",
                    "Connection: €, X-Hop",
                    "X-Hop: kept?",
                    "X-Other: kept",
                )
            )
        )
        with proxy(xapi, bearing(server)) as running, running.client() as client:
            found = client.get("/old")

    assert found.headers["Location"] == f"{running.url}/next?a=b"
    assert found.headers["Link"] == f'<{running.url}/2>; rel="next", <https://other.test/>; rel="help"'
    assert found.headers["X-Other"] == "kept"
    assert found.headers.keys().isdisjoint({"set-cookie", "x-hop"})


def test_a_rejected_fresh_token_is_passed_on_as_401(xapi: Xapi) -> None:
    rejection = response("401 Unauthorized", b'{"error":"own"}', "WWW-Authenticate: Bearer")
    with (
        Server([request(), send(rejection)]) as server,
        proxy(xapi, bearing(server)) as running,
        running.client() as client,
    ):
        found = client.get("/")

    assert (found.status_code, found.content) == (401, b'{"error":"own"}')


def test_a_failed_login_is_502_until_the_password_is_corrected(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(MASTER.password)
    settings = {"base_url": sandbox.base_url, "username": MASTER.email, "password_command": ["cat", str(file)]}
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    write_config(xapi, "\n".join(['default_profile = "work"', "[profiles.work]", *lines, ""]))
    with proxy(xapi, {}) as running, running.client() as client:
        client.get("/x-api/me")
        file.write_text("")
        sandbox.revoke_tokens()
        failed = client.get("/x-api/me")
        file.write_text(MASTER.password)
        corrected = failed
        while corrected.status_code == 502:  # for two seconds, no login is tried
            time.sleep(0.05)
            corrected = client.get("/x-api/me")

    assert (failed.status_code, failed.json()["error"]) == (502, "auth")
    assert failed.json()["message"].startswith("xapi proxy: ")
    assert corrected.json()["email"] == MASTER.email


def test_an_api_that_cannot_be_reached_is_502_and_a_timeout_504(xapi: Xapi) -> None:
    env = {"XAPI_BASE_URL": f"http://127.0.0.1:{free_port()}", "XAPI_TOKEN": TOKEN}
    with proxy(xapi, env) as running, running.client() as client:
        unreachable = client.get("/")
    request_error = xapi("request", "/", env=env).err
    with (
        Server([request(), hang()], [request(), hang()]) as server,
        proxy(xapi, bearing(server), "--port", "0", "--timeout", "0.3") as running,
        running.client() as client,
    ):
        late = client.get("/")
        with pytest.raises(httpx.RemoteProtocolError):  # it may have been processed, and clients repeat a 504
            client.post("/")

    assert (unreachable.status_code, unreachable.json()["error"]) == (502, "network")
    assert unreachable.json()["message"] == request_error.strip().replace("xapi: error:", "xapi proxy:")
    assert (late.status_code, late.json()["error"]) == (504, "timeout")
    assert "within 0.3 s" in late.json()["message"]


def test_a_truncated_response_is_truncated_for_the_client_too(xapi: Xapi) -> None:
    truncated = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    with (
        Server([request(), send(truncated)]) as server,
        proxy(xapi, bearing(server)) as running,
        running.client() as client,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        client.get("/")


def test_a_client_that_leaves_ends_its_call(xapi: Xapi) -> None:
    gone = threading.Event()

    def wait_for_end(peer: Peer) -> None:
        try:
            peer.read_some()
        finally:
            gone.set()

    with Server([request(), wait_for_end]) as server, proxy(xapi, bearing(server)) as running:
        with socket.create_connection(running.address) as connection:
            key = running.settings["XAPI_TOKEN"]
            host = "{}:{}".format(*running.address)
            connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
            while not server.received or b"\r\n\r\n" not in server.received[0]:
                assert gone.wait(0.01) is False
        assert gone.wait(60)


def test_a_client_that_expects_it_gets_100_continue_before_it_sends_the_body(xapi: Xapi, sandbox: Sandbox) -> None:
    with proxy(xapi, sandbox.settings) as running, socket.create_connection(running.address, timeout=30) as connection:
        host = "{}:{}".format(*running.address)
        key = running.settings["XAPI_TOKEN"]
        start = f"POST /x-api/echo HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n"
        connection.sendall(f"{start}Expect: 100-continue\r\nContent-Length: 4\r\nConnection: close\r\n\r\n".encode())
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"body")
        received = b""
        while block := connection.recv(65_536):
            received += block

    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b'"text":"body"' in received
    assert not any(name in received for name in (b'"expect"', b'"accept-encoding"'))  # the client decodes nothing


def test_headers_that_do_not_arrive_are_408(xapi: Xapi) -> None:
    with (
        Server([request(), send(OK)]) as server,
        proxy(xapi, bearing(server), "--port", "0", "--timeout", "0.3") as running,
    ):
        reply = running.exchange(b"GET / HTTP/1.1\r\nHost: ")

    assert reply.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert server.received == []


def test_a_socket_that_is_in_use_is_kept_and_one_that_was_left_behind_is_replaced(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path
) -> None:
    path = tmp_path / "api.sock"
    with proxy(xapi, sandbox.settings, "--socket", str(path)):
        outcome = xapi("proxy", "--socket", str(path), env=sandbox.settings)
        assert (outcome.code, "ddress already in use; use another --socket" in outcome.err) == (2, True)

    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with proxy(xapi, sandbox.settings, "--socket", str(path)):
        assert os.stat(path).st_mode & 0o777 == 0o600
