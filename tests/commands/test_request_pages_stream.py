"""`xapi request --paginate` streams its items, in constant memory, until it ends or is terminated."""

import signal
import subprocess
import sys
import threading
import zlib

import pytest

from tests.commands.api import bearing
from tests.commands.page_server import PageServer, lines, link, numbered, page
from tests.support.program import PROGRAM, Xapi
from tests.support.servers import OK, Server, hang, request, send, serve

# Runs a program and writes its maximum resident size, in KiB, to the end of stderr.
_MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize(("options", "printed_lines"), [((), lines(1, 2, 3, 4)), (("--jq", ".id"), "1\n2\n3\n4\n")])
def test_the_items_of_a_page_are_printed_before_the_next_page_is_requested(
    xapi: Xapi, options: tuple[str, ...], printed_lines: str
) -> None:
    printed = threading.Event()
    pages = numbered(2)

    def respond(target: str) -> bytes:
        assert target == "/items" or printed.wait(30), "the second page was requested before the first was read"
        return pages(target)

    with PageServer(respond) as server:
        process = xapi.start("request", "/items", "--paginate", *options, env=bearing(server))
        assert process.stdout is not None
        first = process.stdout.readline() + process.stdout.readline()
        printed.set()
        rest, err = process.communicate(timeout=30)

    assert (process.returncode, (first + rest).decode(), err) == (0, printed_lines, b"")


@pytest.mark.parametrize("options", [[], ["--slurp"]])
def test_endless_pages_end_when_stdout_is_closed(xapi: Xapi, options: list[str]) -> None:
    pages = numbered(10**9)
    with PageServer(pages) as server:
        process = xapi.start("request", "/items", "--paginate", *options, env=bearing(server))
        assert process.stdout is not None
        process.stdout.read(9)
        process.stdout.close()
        assert process.wait(30) == 141

    assert process.stderr is not None
    assert process.stderr.read() == b""


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_pages_at_once(xapi: Xapi, number: int, code: int) -> None:
    with Server([request(), send(numbered(9)("/items")), request(), hang()]) as server:
        process = xapi.start("request", "/items", "--paginate", env=bearing(server))
        assert process.stdout is not None
        first = process.stdout.readline() + process.stdout.readline()
        process.send_signal(number)
        rest, err = process.communicate(timeout=10)

    assert (process.returncode, first.decode(), rest, err) == (code, lines(1, 2), b"", b"")


def test_ctrl_c_on_a_terminal_names_the_page_to_continue_with(xapi: Xapi) -> None:
    requested = threading.Event()
    script = [request(), send(numbered(9)("/items")), request(), lambda peer: requested.set(), hang()]
    with (
        Server(script) as server,
        xapi.on_terminal("request", "/items", "--paginate", env=bearing(server), columns=200) as terminal,
    ):
        terminal.expect('"id": 2')
        assert requested.wait(30)
        terminal.interrupt()
        terminal.expect(f"xapi: interrupted: to continue, request '{server.url}/items?page=2'")
        assert terminal.wait() == 130


def test_max_time_limits_all_pages(xapi: Xapi) -> None:
    with Server([request(), send(numbered(9)("/items")), request(), hang()]) as server:
        outcome = xapi("request", "/items", "--paginate", "--max-time", "2.5", env=bearing(server))

    assert (outcome.code, outcome.out) == (12, lines(1, 2))
    assert outcome.err.endswith(f"to continue, request '{server.url}/items?page=2'\n")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_pages(xapi: Xapi) -> None:
    """A request without pagination is the baseline; each page retained would add 100 kB."""
    body = b"[" + b'"' + b"x" * 100_000 + b'"]'

    def respond(target: str) -> bytes:
        number = len(server.targets)
        return page(body, *([link(f"?{number}")] if number < 600 else []))

    with PageServer(respond) as server:
        peak = _peak_memory(xapi, "request", "/", "--paginate", server=server)

    assert len(server.targets) == 600
    with Server([serve(OK)]) as single:
        assert peak - _peak_memory(xapi, "request", "/", server=single) < 30_000_000


@pytest.mark.parametrize("how", ["resent", pytest.param("retried", marks=pytest.mark.slow)])
def test_pages_whose_requests_were_sent_again_are_freed(xapi: Xapi, how: str) -> None:
    """The server ends each connection when the next request arrives."""
    count, body = 8, b'["' + b"x" * 9_000_000 + b'"]'
    pages = [page(body, *([link(f"?{number}")] if number < count else [])) for number in range(1, count + 1)]
    if how == "resent":
        connections = [[request(), send(each), request()] for each in pages]
    else:
        connections = [script for each in pages for script in ([request()], [request(), send(each)])]
    with Server(*connections) as server:
        peak = _peak_memory(xapi, "request", "/", "--paginate", "--retry", "1", server=server)

    assert len(server.received) == (count if how == "resent" else 2 * count)
    with Server([request(), send(page(body))]) as single:
        assert peak - _peak_memory(xapi, "request", "/", "--paginate", server=single) < 30_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "start, repeated, end",
    [(b'{"a": [1', b", 1", b"]}"), (b'{"a": ["', b"x", b'"]}'), (b'{"a": 1', b', "b": 1', b"}")],
    ids=["numbers", "a string", "names"],
)
def test_a_page_of_60_mib_that_was_compressed_takes_little_memory(
    xapi: Xapi, start: bytes, repeated: bytes, end: bytes
) -> None:
    packer = zlib.compressobj(1, wbits=31)
    middle = (packer.compress(repeated * (2**20 // len(repeated))) for _ in range(60))
    body = b"".join([packer.compress(start), *middle, packer.compress(end), packer.flush()])
    with PageServer(lambda target: page(body, "Content-Encoding: gzip")) as server:
        assert _peak_memory(xapi, "request", "/", "--paginate", server=server) < 200 * 2**20


def _peak_memory(xapi: Xapi, *args: str, server: Server) -> int:
    """Return the peak memory of a run, in bytes; a child process would inherit the peak of the process of the tests."""
    command = [sys.executable, "-c", _MEASURE, str(PROGRAM), *args]
    measured = subprocess.run(
        command, env=xapi.environment(bearing(server)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    assert measured.returncode == 0, measured.stderr
    return int(measured.stderr.splitlines()[-1]) * 1024
