"""Where the body goes: to a pipe, unchanged and immediately, or to a file, complete or not at all."""

import gzip
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands.api import bearing, response
from tests.support.combinations import combined
from tests.support.program import PROGRAM, Outcome, Xapi
from tests.support.servers import OK, Server, Step, close, hang, request, reset, send, wait_for
from tests.support.threads import wait_until

JSON = b'{"b":1.10,"a":[1e400,"\\u00e9",null]}'


# a pipe


BODIES = [JSON, JSON + b"\n", b"", b"\0\xff\xfe", b"caf\xe9", b"\xef\xbb\xbf{}", b"\x1b[31m\r\n\x9b"]


@pytest.mark.parametrize(
    "body, charset", combined(BODIES, ["application/json", "text/plain; charset=utf-7", "image/png"])
)
def test_a_pipe_receives_the_bytes_unchanged_for_any_content_type(xapi: Xapi, body: bytes, charset: str) -> None:
    colors = {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "COLUMNS": "20", "PY_COLORS": "1", "TERM": "xterm"}
    with Server([request(), send(response("200 OK", body, f"Content-Type: {charset}"))]) as server:
        outcome = xapi("request", "/", env=bearing(server) | colors)

    assert (outcome.code, outcome.body, outcome.err) == (0, body, "")


def test_lines_appear_as_they_arrive(xapi: Xapi) -> None:
    seen = threading.Event()
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    steps = [request(), send(head + b'8\r\n{"id":1}\r\n1\r\n\n\r\n'), wait_for(seen), send(b"2\r\n[]\r\n0\r\n\r\n")]
    with Server(steps) as server:
        process = xapi.start("request", "/", env=bearing(server))
        assert process.stdout
        assert process.stdout.readline() == b'{"id":1}\n'
        seen.set()
        assert process.communicate() == (b"[]", b"")


def _chunked(data: bytes, *, whole: bool) -> bytes:
    chunk = b"%x\r\n%s\r\n" % (len(data), data)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + (b"0\r\n\r\n" if whole else b"")


TRUNCATED = {
    "by length": (response("200 OK", b"begin", "Content-Length: 100"), b"begin"),
    "by chunks": (_chunked(b"begin", whole=False), b"begin"),
    "gzip by length": (response("200 OK", gzip.compress(b"begin")[:-8], "Content-Encoding: gzip"), b"begin"),
    "an unknown coding": (response("200 OK", b"x", "Content-Encoding: br"), b""),
}


@pytest.mark.parametrize("how", TRUNCATED)
def test_a_truncated_body_exits_with_11_after_the_received_part(xapi: Xapi, tmp_path: Path, how: str) -> None:
    sent, arrived = TRUNCATED[how]
    (tmp_path / "out").write_bytes(b"old")
    with Server([request(), send(sent), close()]) as server:
        outcome = xapi("request", "/", env=bearing(server), cwd=tmp_path)
        filed = xapi("request", "/", "-o", "out", env=bearing(server), cwd=tmp_path)

    assert (outcome.code, outcome.body) == (11, arrived)
    assert outcome.err.startswith("xapi: error: ")
    assert outcome.err.count("\n") == 1
    assert filed == Outcome(11, "", outcome.err)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == {"out": b"old"}


# a file


def test_a_file_is_replaced_when_the_body_is_complete(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")
    body = os.urandom(3_000_000)
    with Server([request(), send(response("200 OK", body))]) as server:
        outcome = xapi("request", "/", "-o", "out", env=bearing(server), cwd=tmp_path)

    assert outcome == Outcome(0)
    assert (tmp_path / "out").read_bytes() == body


@pytest.mark.parametrize(
    ("args", "status", "content"),
    [
        ([], "200 OK", b"body"),
        ([], "304 Not Modified", b"old"),
        ([], "404 No", b"old"),
        ([], "500 No", b"old"),
        ([], "302 Found", b"old"),
        ([], "401 No", b"old"),
        (["--no-check-status"], "404 No", b"body"),
        (["--no-check-status"], "500 No", b"body"),
        (["--no-check-status"], "302 Found", b"body"),
        (["--no-check-status"], "304 Not Modified", b"old"),
        (["--no-check-status"], "401 No", b"old"),
        (["--error-body", "none"], "404 No", b"old"),
    ],
)
def test_responses_that_are_written_to_the_file(
    xapi: Xapi, tmp_path: Path, args: list[str], status: str, content: bytes
) -> None:
    (tmp_path / "out").write_bytes(b"old")
    body = b"" if status.startswith("304") else b"body"
    with Server([request(), send(response(status, body))]) as server:
        outcome = xapi("request", "/", "-o", "out", *args, env=bearing(server), cwd=tmp_path)

    assert (tmp_path / "out").read_bytes() == content
    assert outcome.body == (b"" if content == b"body" or "none" in args else body)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out"]


@pytest.mark.parametrize(
    ("flag", "name"), [*combined(["-o", "--meta"], ["out", "/missing/out", "/", ""]), ("--continue -o", "out")]
)
def test_an_unwritable_file_exits_with_14_before_anything_is_sent(
    xapi: Xapi, tmp_path: Path, flag: str, name: str
) -> None:
    directory, argv = tmp_path / "deleted", ("sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", str(PROGRAM))
    directory.mkdir()
    with Server([request(), send(OK)]) as server:
        process = xapi.start("request", "/", *flag.split(), name, env=bearing(server), cwd=directory, argv=argv)
        out, err = process.communicate()
    assert (process.returncode, out, server.received) == (14, b"", [])
    assert err.decode().startswith(f"xapi: error: {name or 'a file without a name'} cannot be written: ")


@dataclass
class SmallDisk:
    """A directory with space for one mebibyte, for a program that is started through *argv*."""

    directory: Path
    argv: tuple[str, ...]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A file system of one mebibyte or, without the privilege to mount one, a limit on the size of files."""
    directory = tmp_path / "small"
    directory.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory], check=False).returncode == 0
    limited = ("sh", "-c", 'ulimit -f 2048; exec "$@"', "sh", str(PROGRAM))
    yield SmallDisk(directory, (str(PROGRAM),) if mounted else limited)
    if mounted:
        subprocess.run(["umount", "--lazy", directory], check=True)


_FULL = re.compile("No space left on device|File too large")


def test_a_full_disk_exits_with_14_and_leaves_the_file_unchanged(xapi: Xapi, small_disk: SmallDisk) -> None:
    (small_disk.directory / "out").write_bytes(b"old")
    with Server([request(), send(response("200 OK", b"x" * 3_000_000))]) as server:
        args = ["request", "/", "-o", str(small_disk.directory / "out")]
        process = xapi.start(*args, env=bearing(server), argv=small_disk.argv)
        out, err = process.communicate()

    assert (process.returncode, out) == (14, b"")
    assert _FULL.sub("full", err.decode()) == (
        f"xapi: error: {small_disk.directory}/out cannot be written: full; choose another file\n"
    )
    assert {path.name: path.read_bytes() for path in small_disk.directory.iterdir()} == {"out": b"old"}


def test_a_request_body_that_cannot_be_spooled_exits_with_14(xapi: Xapi, small_disk: SmallDisk) -> None:
    with Server([request(), send(OK)]) as server:
        env = bearing(server) | {"TMPDIR": str(small_disk.directory)}
        process = xapi.start("request", "/", "-d", "@-", stdin=subprocess.PIPE, env=env, argv=small_disk.argv)
        _, err = process.communicate(b"x" * 8_000_000)

    assert (process.returncode, server.received) == (14, [])
    assert _FULL.sub("full", err.decode()) == (
        "xapi: error: a body cannot be stored in a temporary file: full; set TMPDIR to a directory with free space\n"
    )


@pytest.mark.parametrize(("end", "code"), [("reset", 11), ("SIGINT", 130), ("SIGKILL", -9)])
def test_an_interrupted_download_leaves_the_old_file(xapi: Xapi, tmp_path: Path, end: str, code: int) -> None:
    (tmp_path / "out").write_bytes(b"old")
    more: Step = reset() if end == "reset" else hang()
    with Server([request(), send(response("200 OK", b"x" * 1_000_000, "Content-Length: 5000000")), more]) as server:
        process = xapi.start("request", "/", "-o", "out", env=bearing(server), cwd=tmp_path)
        if end != "reset":
            wait_until(lambda: any(path.stat().st_size for path in tmp_path.glob(".out.*.new")))
            process.send_signal(signal.Signals[end])
        out, err = process.communicate()

    assert (process.returncode, out) == (code, b"")
    assert err.count(b"\n") == (1 if end == "reset" else 0)
    assert (tmp_path / "out").read_bytes() == b"old"
    assert [path.name for path in tmp_path.glob(".out.*.new")] == [] or end == "SIGKILL"
