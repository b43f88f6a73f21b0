"""The limit of open files: the proxy raises it for itself, and what it cannot raise delays clients but ends no call."""

import asyncio
import contextlib
import re
import select
import socket
import subprocess
import threading

import httpx
import pytest

from tests.commands.api import TOKEN, bearing
from tests.proxy.running import Proxy, proxy
from tests.support.program import PROGRAM, Xapi
from tests.support.servers import OK, Peer, Server, Step, request, send, serve, wait_for

CALLS = 130
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n2"


def limited(limit: str) -> tuple[str, ...]:
    """Return the command that starts the program with *limit*."""
    return ("sh", "-c", f'ulimit {limit}; exec "$@"', "sh", str(PROGRAM))


def statuses(running: Proxy) -> list[int]:
    """Return the statuses of concurrent calls, each over its own connection."""

    async def call_all() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=CALLS)
        async with httpx.AsyncClient(
            base_url=running.url, headers=running.headers, trust_env=False, timeout=60, limits=limits
        ) as client:
            return await asyncio.gather(*(client.get("/") for _ in range(CALLS)))

    return [each.status_code for each in asyncio.run(call_all())]


def after(count: int) -> list[Step]:
    """Return the steps of a server that responds when *count* requests have arrived."""
    have_arrived, lock, arrived = threading.Event(), threading.Lock(), []

    def arrive(peer: Peer) -> None:
        with lock:
            arrived.append(peer)
        if len(arrived) >= count:
            have_arrived.set()

    return [request(), arrive, wait_for(have_arrived), send(OK)]


def test_the_soft_limit_does_not_limit_the_calls(xapi: Xapi) -> None:
    with (
        Server(after(CALLS)) as server,
        proxy(xapi, bearing(server), argv=limited("-S -n 128")) as running,
    ):
        assert statuses(running) == [200] * CALLS


def test_the_soft_limit_does_not_limit_the_jobs_of_a_batch(xapi: Xapi) -> None:
    with Server(after(CALLS)) as server:
        process = xapi.start(
            "batch",
            "-j",
            str(CALLS),
            stdin=subprocess.PIPE,
            env=bearing(server),
            argv=limited("-S -n 64"),
        )
        out, _ = process.communicate(b'{"path": "/"}\n' * CALLS, timeout=60)

    assert (process.returncode, out.count(b'"status": 200')) == (0, CALLS), out[-300:]


@pytest.mark.parametrize(("limit", "requests", "jobs"), [(64, "32 requests", 32), (24, "one request", 1)])
def test_a_batch_sends_no_more_requests_at_a_time_than_files_can_be_open(
    xapi: Xapi, limit: int, requests: str, jobs: int
) -> None:
    with Server([serve()]) as server:
        process = xapi.start(
            "batch", "-j", "400", stdin=subprocess.PIPE, env=bearing(server), argv=limited(f"-n {limit}")
        )
        out, err = process.communicate(b'{"path": "/", "method": "POST"}\n' * CALLS, timeout=60)

    warning = f"xapi: warning: the limit of {limit} open files allows {requests} at a time, not 400; use --jobs {jobs}"
    assert err.decode().startswith(f"{warning}, or raise the hard limit (`ulimit -H -n`)\nxapi: {CALLS} lines in ")
    assert (process.returncode, out.count(b'"status": 200')) == (0, CALLS), out[-300:]


def test_a_batch_leaves_descriptors_for_the_processes_of_its_filter(xapi: Xapi) -> None:
    slow = "[range(30000)] | length"  # so that there are as many processes as possible
    with Server([serve(JSON)]) as server:
        process = xapi.start(
            "batch", "-j", "400", "--jq", slow, stdin=subprocess.PIPE, env=bearing(server), argv=limited("-n 100")
        )
        out, _ = process.communicate(b'{"path": "/"}\n' * 60, timeout=60)

    assert (process.returncode, out.count(b'"json": 30000')) == (0, 60), out[-300:]


def test_clients_wait_when_no_more_connections_can_be_opened(xapi: Xapi) -> None:
    with (
        Server(after(20)) as server,
        proxy(xapi, bearing(server), argv=limited("-n 128")) as running,
    ):
        assert statuses(running) == [200] * CALLS


def test_a_client_that_has_just_connected_is_not_closed_for_another_one(xapi: Xapi) -> None:
    with Server([serve()]) as server, proxy(xapi, bearing(server), argv=limited("-n 128")) as running:
        host, port = running.address
        call = f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: {running.headers['Authorization']}\r\n\r\n"
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(running.address, timeout=60)) for _ in range(60)]
            readable, _, _ = select.select(clients, [], [], 1.5)  # longer than a client may be idle between two calls
            assert readable == []
            for client in clients:
                client.sendall(call.encode())
            assert [client.recv(12) for client in clients] == [b"HTTP/1.1 200"] * len(clients)


def test_the_command_has_the_limit_of_the_caller(xapi: Xapi) -> None:
    with Server([request(), send(OK)]) as server:
        process = xapi.start("proxy", "--", "sh", "-c", "ulimit -S -n", env=bearing(server), argv=limited("-S -n 128"))
        out, err = process.communicate(timeout=30)

    assert (process.returncode, out, err) == (0, b"128\n", b"")


@pytest.mark.parametrize(
    ("command", "success"),
    [(("proxy", "--", "true"), rb""), (("batch", "-j", "1"), rb"xapi: 0 lines in .*\n")],
    ids=["proxy", "batch"],
)
@pytest.mark.slow
def test_too_few_descriptors_to_start_are_one_error_line(xapi: Xapi, command: tuple[str, ...], success: bytes) -> None:
    """How many are enough depends on Python: the command fails with one line below that number, and starts from it."""
    env = {"XAPI_BASE_URL": "http://127.0.0.1:9", "XAPI_TOKEN": TOKEN}
    outcomes = dict[int, tuple[int | None, bytes]]()
    for count in range(4, 18):
        process = xapi.start(*command, env=env, argv=limited(f"-n {count}"))
        _, err = process.communicate(timeout=30)
        outcomes[count] = process.returncode, err

    enough = min(count for count, (code, _) in outcomes.items() if code == 0)
    assert 4 < enough < 15, outcomes
    for count, (code, err) in outcomes.items():
        assert (code == 0) is (count >= enough), outcomes
        expected = success if code == 0 else rb"xapi: error: [^\n]+; [^\n]+\n"
        assert re.fullmatch(expected, err), (count, err)
