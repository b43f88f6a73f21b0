"""Programs that exist, and a client that is generated from the description of the API, use `xapi proxy` unchanged."""

import concurrent.futures
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from tests.commands.api import TOKEN, bearing, response
from tests.proxy.running import proxy
from tests.support.program import Outcome, Xapi
from tests.support.servers import OK, Peer, Server, request, send, wait_for
from xapi_cli.sandbox import MASTER, Sandbox

CLIENTS = 32


def require(program: str) -> None:
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")


def run_with(settings: Mapping[str, str], *command: str, cwd: Path | None = None) -> str:
    """Run *command* with the variables that the proxy prints; return its stdout."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("XAPI_")}
    done = subprocess.run(
        command, env=environ | dict(settings), cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_under_proxy(xapi: Xapi, env: Mapping[str, str], *command: str) -> Outcome:
    """Run *command* with `xapi proxy`."""
    return xapi("proxy", "--", *command, env=env, timeout=60)


def test_curl_uses_the_port_and_the_socket(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    require("curl")
    body = tmp_path / "body"
    body.write_bytes(os.urandom(2**20))  # above 1 MiB, curl sends Expect: 100-continue
    by_port = 'curl -sS -H "Authorization: Bearer $XAPI_TOKEN" "$XAPI_BASE_URL$@"'
    by_socket = 'curl -sS --unix-socket "$XAPI_PROXY_SOCKET" "http://localhost$@"'
    script = f"""
        set -- /x-api/me; {by_port}; {by_socket}
        set -- /x-api/echo --data-binary @{body} -H "Expect: 100-continue"; {by_port}; {by_socket}
    """.replace('$@"', '$1" "${@:2}"')

    outcome = run_under_proxy(xapi, sandbox.settings, "bash", "-c", script)

    decoder, values, text = json.JSONDecoder(), [], outcome.out
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        values.append(value)
        text = text[end:]
    assert [value["email"] for value in values[:2]] == [MASTER.email] * 2
    assert [value["length"] for value in values[2:]] == [2**20] * 2
    assert outcome.code == 0


def test_requests_uses_one_connection_for_many_calls(xapi: Xapi, sandbox: Sandbox) -> None:
    with proxy(xapi, sandbox.settings) as running, requests.Session() as session:
        session.trust_env = False
        session.headers.update(running.headers)
        session.get(f"{running.url}/x-api/me", timeout=60).raise_for_status()
        sandbox.revoke_tokens()
        echo = session.post(f"{running.url}/x-api/echo", files={"file": b"content"}, timeout=60)
        parts = session.post(f"{running.url}/x-api/echo", data=iter([b"a", b"b"]), timeout=60)
        with session.put(f"{running.url}/x-api/echo", json={"a": 1}, timeout=60, stream=True) as streamed:
            lines = list(streamed.iter_lines())

    assert "content" in echo.json()["text"]
    assert parts.json()["text"] == "ab"
    assert json.loads(lines[0])["json"] == {"a": 1}
    assert sandbox.logins == 2


def test_a_get_is_resent_only_once_even_if_other_connections_are_open(xapi: Xapi) -> None:
    all_connected = threading.Barrier(3)

    def wait_for_all(peer: Peer) -> None:
        all_connected.wait(60)

    served = [request(), wait_for_all, send(OK)]
    with (
        Server(*[[*served, request()]] * 3, [request()]) as server,
        proxy(xapi, bearing(server)) as running,
        concurrent.futures.ThreadPoolExecutor(3) as threads,
    ):
        calls = [threads.submit(requests.get, running.url, headers=running.headers, timeout=60) for _ in range(3)]
        assert [each.result().status_code for each in calls] == [200, 200, 200]
        lost = requests.get(f"{running.url}/last", headers=running.headers, timeout=60)

    assert lost.status_code == 502
    assert b"".join(server.received).count(b"GET /last ") == 2


NODE = """
const headers = { Authorization: `Bearer ${process.env.XAPI_TOKEN}` }
const url = process.env.XAPI_BASE_URL
const me = await fetch(`${url}/x-api/me`, { headers })
await fetch(`${url}/sandbox/kill-tokens`, { method: "POST", headers })
const calls = Array.from({ length: 8 }, (_, n) => fetch(`${url}/x-api/echo`, { method: "POST", headers, body: `${n}` }))
const echoes = await Promise.all(calls.map(async call => (await (await call).json()).text))
const stream = new ReadableStream({ start(c) { c.enqueue(new TextEncoder().encode("part")); c.close() } })
const sent = await fetch(`${url}/x-api/echo`, { method: "POST", headers, body: stream, duplex: "half" })
const head = await fetch(`${url}/x-api/me`, { method: "HEAD", headers })
const email = (await me.json()).email
console.log(JSON.stringify([email, echoes, (await sent.json()).text, head.status]))
"""


def test_fetch_of_node(xapi: Xapi, sandbox: Sandbox) -> None:
    require("node")

    outcome = run_under_proxy(xapi, sandbox.settings, "node", "--input-type=module", "-e", NODE)

    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out) == [MASTER.email, [str(n) for n in range(8)], "part", 200]
    assert sandbox.logins == 2


def test_a_go_program_with_many_connections(xapi: Xapi, sandbox: Sandbox) -> None:
    """The load generator hey is net/http of Go; it reports the statuses of the responses."""
    require("hey")
    with proxy(xapi, sandbox.settings) as running, running.client() as client:
        client.get("/x-api/me")
        key = f"Authorization: Bearer {running.settings['XAPI_TOKEN']}"
        sandbox.revoke_tokens()
        out = run_with({}, "hey", "-n", "960", "-c", str(CLIENTS), "-H", key, f"{running.url}/x-api/me")

    assert "[200]\t960 responses" in out
    assert "Error distribution" not in out
    assert sandbox.logins == 2


def test_long_polls_of_many_clients_are_answered_when_there_is_something(xapi: Xapi) -> None:
    """One poll per connection to the API; other calls go on meanwhile."""
    event = threading.Event()
    polls = [[request(), wait_for(event), send(response(body=b"%d" % number))] for number in range(CLIENTS)]
    with (
        Server(*polls, [request(), send(OK)]) as server,
        proxy(xapi, bearing(server)) as running,
        concurrent.futures.ThreadPoolExecutor(CLIENTS) as threads,
        running.client() as client,
    ):
        found = [threads.submit(requests.get, f"{running.url}/poll", headers=running.headers) for _ in range(CLIENTS)]
        while sum(b"\r\n\r\n" in each for each in server.received) < CLIENTS:
            assert not any(each.done() for each in found)
        assert client.get("/").text == "ok"
        event.set()
        texts = {each.result().text for each in found}

    assert texts == {str(number) for number in range(CLIENTS)}


class _GitServer(BaseHTTPRequestHandler):
    """Smart HTTP of git, for a client that sends the token."""

    protocol_version = "HTTP/1.1"
    root: Path

    def do_GET(self) -> None:
        self._respond(b"")

    def do_POST(self) -> None:
        if (length := self.headers.get("Content-Length")) is not None:
            body = self.rfile.read(int(length))
        else:
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        self._respond(body)

    def _respond(self, body: bytes) -> None:
        assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        path, _, query = self.path.partition("?")
        variables = {
            "GIT_PROJECT_ROOT": str(self.root), "GIT_HTTP_EXPORT_ALL": "1", "REQUEST_METHOD": self.command,
            "PATH_INFO": path, "QUERY_STRING": query, "REMOTE_USER": "user", "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }  # fmt: skip
        done = subprocess.run(
            ["git", "http-backend"], input=body, env={**os.environ, **variables}, capture_output=True, check=True
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for start in range(0, len(content), 4096):
            part = content[start : start + 4096]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def git_server(root: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_GitServer,), {"root": root})) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


GIT = """
set -e
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=http.extraHeader
export GIT_CONFIG_VALUE_0="Authorization: Bearer $XAPI_TOKEN"
git clone -q "$XAPI_BASE_URL/a.git" "$1/clone"
cd "$1/clone"
head -c 3000000 /dev/urandom > large
git add large
git -c user.name=a -c user.email=a@example.com commit -qm second
git -c http.postBuffer=65536 push -q origin HEAD:main
"""


def test_git_clones_and_pushes(xapi: Xapi, tmp_path: Path) -> None:
    """A push that is larger than http.postBuffer has a chunked body, after a request to see whether it is allowed."""
    require("git")
    origin = tmp_path / "a.git"
    git = ["git", "-C", str(origin)]
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(origin)], check=True)
    subprocess.run([*git, "config", "http.receivepack", "true"], check=True)
    tree = subprocess.run([*git, "mktree"], input=b"", capture_output=True, check=True).stdout.strip()
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    commit = subprocess.run([*git, *author, "commit-tree", "-m", "first", tree], capture_output=True, check=True).stdout
    subprocess.run([*git, "update-ref", "refs/heads/main", commit.strip()], check=True)

    with git_server(tmp_path) as url:
        env = {"XAPI_BASE_URL": url, "XAPI_TOKEN": TOKEN}
        outcome = run_under_proxy(xapi, env, "sh", "-c", GIT, "sh", str(tmp_path))

    assert (outcome.code, outcome.err) == (0, "")
    found = subprocess.run([*git, "log", "--format=%s", "main"], capture_output=True, text=True, check=True).stdout
    assert found == "second\nfirst\n"
