"""What the tests of `request -o FILE --continue` share: a server of files with ranges, and the files of a download."""

import os
import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.commands.api import TOKEN, bearing
from tests.support.program import Outcome, Xapi
from tests.support.servers import HandlerServer, Server

BODY = random.Random(1).randbytes(3_000_000)
HALF = 1_500_000
ETAG = (("ETag", '"v1"'),)
REST = BODY[HALF:]
SPAN = f"Content-Range: bytes {HALF}-{len(BODY) - 1}/{len(BODY)}"


class Files(HandlerServer):
    """Serves `body` with ranges; *cuts* are the numbers of bytes after which the first connections are closed."""

    def __init__(self, *cuts: int, validators: tuple[tuple[str, str], ...] = ETAG) -> None:
        super().__init__(_Handler)
        self.body, self.validators, self.cuts = BODY, validators, list(cuts)
        self.block = 256 * 1024  # bytes sent at once
        self.before_block: Callable[[int], object] = lambda sent: None
        self.requests: list[dict[str, str]] = []
        self.authorization = f"Bearer {TOKEN}"  # the valid one
        self.redirect = ""

    @property
    def settings(self) -> dict[str, str]:
        return {"XAPI_BASE_URL": self.url, "XAPI_TOKEN": TOKEN}

    @property
    def ranges(self) -> list[str | None]:
        """The Range header of each request."""
        return [each.get("range") for each in self.requests]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Files

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.authorization = "Bearer new"
        self._reply(200, b'{"access_token":"new","token_type":"bearer"}', ())

    def do_GET(self) -> None:
        fields = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(fields)
        if self.server.redirect:
            self._reply(302, b"", (("Location", self.server.redirect),))
        elif fields.get("authorization", self.server.authorization) != self.server.authorization:
            self._reply(401, b"", ())
        else:
            self._send_file(fields)

    def _send_file(self, fields: dict[str, str]) -> None:
        body, validators = self.server.body, self.server.validators
        wanted = re.fullmatch(r"bytes=(\d+)-", fields.get("range", ""))
        is_same = fields.get("if-range") in [value for _, value in validators]
        if wanted is None or not is_same:
            self._reply(200, body, validators)
        elif int(wanted[1]) >= len(body):
            self._reply(416, b"", (("Content-Range", f"bytes */{len(body)}"),))
        else:
            start = int(wanted[1])
            span = f"bytes {start}-{len(body) - 1}/{len(body)}"
            self._reply(206, body[start:], (*validators, ("Content-Range", span)))

    def _reply(self, status: int, body: bytes, fields: tuple[tuple[str, str], ...]) -> None:
        self.send_response_only(status)
        for name, value in (*fields, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        cut = self.server.cuts.pop(0) if self.server.cuts and status in (200, 206) else len(body)
        before_block = self.server.before_block  # not that of a later request
        for start in range(0, cut, self.server.block):
            before_block(start)
            self.wfile.write(body[start : min(start + self.server.block, cut)])
        if cut < len(body):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_WR)


def part_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.part")


def record_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.part.json")


def download(xapi: Xapi, files: Files | Server, out: Path, *more: str) -> Outcome:
    env = files.settings if isinstance(files, Files) else bearing(files)
    return xapi("request", "/data", "-o", str(out), "--continue", *more, env=env)


def start_half(xapi: Xapi, files: Files, out: Path) -> None:
    """Leave the first half of the file in the part."""
    files.cuts = [HALF]
    assert download(xapi, files, out).code == 11
    assert part_of(out).read_bytes() == BODY[:HALF]
    files.requests.clear()


def assert_complete(out: Path, body: bytes = BODY) -> None:
    assert out.read_bytes() == body
    assert sorted(os.listdir(out.parent)) == [out.name]


@contextmanager
def stopped(xapi: Xapi, files: Files, out: Path) -> Iterator[Any]:
    """Run a download that stops after half of the file until the block ends."""
    reached, resume = threading.Event(), threading.Event()

    def before_block(sent: int) -> None:
        if sent >= HALF and not resume.is_set():
            reached.set()
            resume.wait(30)

    files.block, files.before_block = 100_000, before_block
    process = xapi.start("request", "/data", "-o", str(out), "--continue", env=files.settings)
    try:
        assert reached.wait(60)
        while not part_of(out).exists() or part_of(out).stat().st_size < HALF:
            assert process.poll() is None
        yield process
    finally:
        resume.set()
