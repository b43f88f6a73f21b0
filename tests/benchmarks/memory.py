"""Measure the memory that large bodies need in both directions, and print a table: `make bench-memory`.

Each row is one process of `xapi request` with a server on loopback. Its peak is the value that the operating system
recorded (ru_maxrss). A child process inherits the peak of its parent, so this program keeps its own memory small.
"""

import argparse
import gzip
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

CHUNK = bytes(range(256)) * 256
MIB = 1024 * 1024


class _Server(ThreadingHTTPServer):
    """The server for all rows; records the bodies that it receives."""

    daemon_threads = True

    def __init__(self, size: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.size = size
        self.rejected = 0  # number of requests to reject with 401
        self.received: list[tuple[int, str]] = []  # length and digest of each body
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        pass

    def do_POST(self) -> None:
        digest, left = hashlib.sha256(), int(self.headers["Content-Length"])
        while left and (data := self.rfile.read(min(left, MIB))):
            digest.update(data)
            left -= len(data)
        if self.path == "/x-api/token":
            return self._respond(200, b'{"access_token":"t%d","token_type":"bearer"}' % time.monotonic_ns())
        self.server.received.append((int(self.headers["Content-Length"]) - left, digest.hexdigest()))
        if self.server.rejected:
            self.server.rejected -= 1
            return self._respond(401, b"{}")
        return self._respond(200, b"{}")

    def do_GET(self) -> None:
        self.send_response(200)
        if self.path == "/plain":
            self.send_header("Content-Length", str(self.server.size))
            self.end_headers()
            for data in _content(self.server.size):
                self.wfile.write(data)
        else:
            member = gzip.compress(bytes(MIB))  # one member; others may follow it
            count = self.server.size // MIB
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(member) * count))
            self.end_headers()
            for _ in range(count):
                self.wfile.write(member)

    def _respond(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _content(size: int) -> Iterator[bytes]:
    for _ in range(size // len(CHUNK)):
        yield CHUNK


def _run(server: _Server, args: list[str], *, stdin: IO[bytes] | int = subprocess.DEVNULL) -> tuple[int, float, float]:
    """Run `xapi request` with *args* and a stored token; return the exit code, the peak in MiB and the seconds."""
    program = os.environ.get("XAPI_TESTS_PROGRAM") or str(Path(sys.executable).with_name("xapi"))
    with tempfile.TemporaryDirectory() as home:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "TMPDIR": tempfile.gettempdir(),
            "XAPI_BASE_URL": server.url,
            "XAPI_USERNAME": "me@example.com",
            "XAPI_PASSWORD": "secret",
            "XAPI_STORAGE": "file",
        }
        subprocess.run([program, "login"], env=environ, check=True, capture_output=True)
        start = time.monotonic()
        process = subprocess.Popen([program, "request", *args], env=environ, stdin=stdin, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode, usage.ru_maxrss / 1024, time.monotonic() - start


def _rows(server: _Server, directory: Path) -> Iterator[tuple[str, tuple[int, float, float]]]:
    big, saved = directory / "big", directory / "saved"
    with big.open("wb") as file:
        for data in _content(server.size):
            file.write(data)
    yield "download to a pipe", _run(server, ["/plain"])
    yield "download to a file", _run(server, ["/plain", "-o", str(saved)])
    saved.unlink()
    yield "download of a gzip body", _run(server, ["/gzip"])
    yield "upload from a file", _run(server, ["POST", "/echo", "-d", f"@{big}"])
    server.rejected = 1
    yield "upload from a file, replayed after a 401", _run(server, ["POST", "/echo", "-d", f"@{big}"])
    server.rejected = 1
    yield "multipart upload, replayed after a 401", _run(server, ["POST", "/echo", f"file@{big}"])
    server.rejected = 1
    with subprocess.Popen(["cat", str(big)], stdout=subprocess.PIPE) as pipe:
        assert pipe.stdout is not None
        yield "upload from a pipe, replayed after a 401", _run(server, ["POST", "/echo", "-d", "@-"], stdin=pipe.stdout)


def main() -> int:
    """Print the table; return 1 if a call failed, a body arrived incomplete, or a peak exceeded 100 MiB."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=2048, help="size of each body in MiB")
    size = parser.parse_args().mib * MIB
    server, good = _Server(size), True
    digest = hashlib.sha256()
    for data in _content(size):
        digest.update(data)
    print(f"bodies of {size // MIB} MiB\n\n| operation | exit code | peak MiB | seconds |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as directory:
        for operation, (code, peak, seconds) in _rows(server, Path(directory)):
            print(f"| {operation} | {code} | {peak:.0f} | {seconds:.1f} |", flush=True)
            good = good and code == 0 and peak < 100
    complete = [entry for entry in server.received if entry == (size, digest.hexdigest())]
    print(f"\n{len(complete)} of {len(server.received)} bodies equal the file; a multipart body is longer")
    return 0 if good and len(complete) == 5 else 1


if __name__ == "__main__":
    sys.exit(main())
