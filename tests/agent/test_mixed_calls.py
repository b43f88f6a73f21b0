"""No secret of one call reaches the output, the requests, the files or the child processes of another.

Each call has secrets that contain its number, so a single pattern finds those of any other call.
"""

import json
import re
import secrets
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import FileIO
from mmap import PAGESIZE
from pathlib import Path
from threading import Thread
from typing import NamedTuple
from urllib.parse import parse_qs

import pytest

from tests.agent.conftest import PATIENT, Agent

CALLERS = 4  # at the same time
_SECRET = re.compile(rb"canary-(\d+)-")
_KINDS = 8


class _Api(BaseHTTPRequestHandler):
    """Issues tokens that contain the secret of the account, and returns the head of any other request."""

    protocol_version = "HTTP/1.1"
    received: list[tuple[str, bytes]]  # the path and everything else of each request

    def do_POST(self) -> None:  # http.server's name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._note(body)
        if self.path.endswith("/x-api/token"):
            (password,) = parse_qs(body.decode())["password"]
            token = {"access_token": f"{password}token", "token_type": "bearer", "expires_in": 3600}
            self._respond(200, json.dumps(token).encode())
        else:
            self._respond(200, body)

    def do_GET(self) -> None:  # http.server's name
        self._note(b"")
        is_missing = self.path.endswith("/missing")
        self._respond(404 if is_missing else 200, json.dumps(dict(self.headers)).encode())

    def log_message(self, *_: object) -> None:
        pass

    def _note(self, body: bytes) -> None:
        self.received.append((self.path, bytes(self.headers) + body))

    def _respond(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Found(NamedTuple):
    """What a call left behind."""

    code: int
    out: bytes
    err: bytes
    files: bytes


class _Calls:
    """Runs call number *n* with its own account, token, environment and directory."""

    def __init__(self, agent: Agent, url: str, root: tuple[str, ...]) -> None:
        self._agent, self._url, self._root = agent, url, root
        self._shared = agent.xapi.home / "shared"  # the state of all calls with a password
        self._command = agent.xapi.home / "password"
        self._command.write_text('#!/bin/sh\nenv >environment\nprintf %s "$OWN_PASSWORD"\n')
        self._command.chmod(0o700)

    def run(self, n: int) -> _Found:
        """Run call *n* and return what it left behind."""
        canary = f"canary-{n}-{secrets.token_hex(8)}"
        directory = self._agent.xapi.home / f"call-{n}"
        directory.mkdir()
        env = {"NOISE": f"{canary}-noise", f"NOISE_{n}": f"{canary}-name", "XAPI_BASE_URL": f"{self._url}/{n}"}
        with_token = {**env, "XAPI_TOKEN": f"{canary}-token"}
        with_password = {
            **env,
            "XAPI_USERNAME": f"user-{n}@example.com",
            "XAPI_PASSWORD": f"{canary}-password",
            "XAPI_STATE_DIR": str(self._shared),
            "XAPI_CONFIG_DIR": str(directory),
        }
        (directory / "attached").write_text(f"{canary}-file")
        by_command = {**with_password, "XAPI_PASSWORD": None, "OWN_PASSWORD": f"{canary}-password"}
        args, environ = (
            (("token", "show"), with_token),
            (("request", "/x-api/me"), with_token),
            (("request", "/x-api/upload", "part@attached", "--verbose"), with_token),
            (("request", "/x-api/me", "-H", f"X-Own: {canary}-header", "-o", "body"), with_token),
            (("request", "/missing"), with_token),
            (("request", "/x-api/me"), with_password),
            (("login", "--password-command", str(self._command)), by_command),
            (("request", "/x-api/me", "--curl"), with_token),
        )[n % _KINDS]
        ended = subprocess.run(
            [*self._root, *PATIENT, *args],
            env=self._agent.xapi.environment(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
            cwd=directory,
        )
        files = b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
        return _Found(ended.returncode, ended.stdout, ended.stderr, files)


@pytest.fixture
def api() -> Iterator[str]:
    """The address of a server that records what it receives."""
    _Api.received = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Api) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "count",
    [
        2 * _KINDS,
        pytest.param(240, marks=pytest.mark.slow),
        pytest.param(5000, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]),
    ],
)
def test_no_secret_of_a_call_reaches_another(open_agent: Agent, root: tuple[str, ...], api: str, count: int) -> None:
    calls = _Calls(open_agent, api, root)
    with ThreadPoolExecutor(CALLERS) as callers:
        found = list(callers.map(calls.run, range(count)))

    codes = {0: 0, 4: 0}  # the number of calls by exit code
    for n, each in enumerate(found):
        assert each.code == (4 if n % _KINDS == 4 else 0), each.err
        codes[each.code] += 1
        seen = {int(number) for number in _SECRET.findall(b"\n".join((each.out, each.err, each.files)))}
        assert seen == {n}
    for path, request in _Api.received:
        assert {int(number) for number in _SECRET.findall(request)} == {_number(path)}
    assert codes[4] == count // _KINDS
    status = open_agent.status()
    assert (status["warm"], status["cold"]) == (count, {})
    assert _secrets_in_agent(open_agent) == set()


def _number(path: str) -> int:
    return int(path.split("/")[1])


def _secrets_in_agent(agent: Agent) -> set[bytes]:
    """Return the secrets in the memory of the processes from which later commands are started."""
    return {found for pid in (agent.pid, *agent.workers()) for found in _SECRET.findall(_memory(pid))}


def _memory(pid: int) -> bytes:
    """Return the writable memory of the process *pid*; that of a process that is not dumpable needs privileges."""
    parts: list[bytes] = []
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in maps:
            addresses, mode, *_ = line.split()
            if mode.startswith("rw"):
                start, end = (int(address, 16) for address in addresses.split("-"))
                parts += _readable(memory, start, end)
    return b"".join(parts)


def _readable(memory: FileIO, start: int, end: int) -> Iterator[bytes]:
    """Yield the memory between two addresses, without guard pages, which newer C libraries have inside a mapping."""
    try:
        memory.seek(start)
        yield memory.read(end - start)
    except OSError:
        if end - start > PAGESIZE:
            middle = start + (end - start) // PAGESIZE // 2 * PAGESIZE
            yield from _readable(memory, start, middle)
            yield from _readable(memory, middle, end)
