"""`request -o FILE --continue`: a download that breaks off is resumed, and the file is always the server's."""

import json
import os
import random
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

from tests.commands.api import TOKEN, bearing, response
from tests.program import Outcome, Xapi
from tests.servers import Server, Step, close, forever, hang, request, send

BODY = random.Random(1).randbytes(3_000_000)
HALF = 1_500_000
LAST_MODIFIED = (("Date", "Sun, 22 Nov 2026 12:00:00 GMT"), ("Last-Modified", "Sun, 22 Nov 2026 11:59:59 GMT"))
ETAG = (("ETag", '"v1"'),)


class Files(ThreadingHTTPServer):
    """Serves `body` with ranges; *cuts* are the numbers of bytes after which the first connections are closed."""

    daemon_threads = True

    def __init__(self, *cuts: int, validators: tuple[tuple[str, str], ...] = ETAG) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.body, self.validators, self.cuts = BODY, validators, list(cuts)
        self.ignores_ranges = False
        self.block = 256 * 1024  # bytes sent at once
        self.before_block: Callable[[int], object] = lambda sent: None
        self.requests: list[dict[str, str]] = []
        self.valid_token = TOKEN
        self.redirect = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def settings(self) -> dict[str, str]:
        return {"XAPI_BASE_URL": self.url, "XAPI_TOKEN": TOKEN}

    @property
    def ranges(self) -> list[str | None]:
        """The Range header of each request."""
        return [each.get("range") for each in self.requests]

    def __enter__(self) -> Self:
        threading.Thread(target=lambda: self.serve_forever(0.05), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of connections whose client was killed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Files

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.valid_token = "new"
        self._reply(200, b'{"access_token":"new","token_type":"bearer"}', ())

    def do_GET(self) -> None:
        fields = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(fields)
        if self.server.redirect:
            self._reply(302, b"", (("Location", self.server.redirect),))
        elif fields.get("authorization", f"Bearer {self.server.valid_token}") != f"Bearer {self.server.valid_token}":
            self._reply(401, b"", ())
        else:
            self._send_file(fields)

    def _send_file(self, fields: dict[str, str]) -> None:
        body, validators = self.server.body, self.server.validators
        wanted = re.fullmatch(r"bytes=(\d+)-", fields.get("range", ""))
        is_same = fields.get("if-range") in [value for name, value in validators if name != "Date"]
        if wanted is None or not is_same or self.server.ignores_ranges:
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
        for start in range(0, cut, self.server.block):
            self.server.before_block(start)
            self.wfile.write(body[start : min(start + self.server.block, cut)])
        if cut < len(body):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_WR)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "downloads").mkdir()
    return tmp_path / "downloads" / "out"


def _part(out: Path) -> Path:
    return out.with_name(f"{out.name}.part")


def _record(out: Path) -> Path:
    return out.with_name(f"{out.name}.part.json")


def _download(xapi: Xapi, files: Files | Server, out: Path, *more: str) -> Outcome:
    env = files.settings if isinstance(files, Files) else bearing(files)
    return xapi("request", "/data", "-o", str(out), "--continue", *more, env=env)


def _start(xapi: Xapi, files: Files, out: Path) -> None:
    """Leave the first half of the file in the part."""
    files.cuts = [HALF]
    assert _download(xapi, files, out).code == 11
    assert _part(out).read_bytes() == BODY[:HALF]
    files.requests.clear()


def _assert_complete(out: Path, body: bytes = BODY) -> None:
    assert out.read_bytes() == body
    assert sorted(os.listdir(out.parent)) == [out.name]


@pytest.mark.parametrize("validators", [ETAG, LAST_MODIFIED], ids=["ETag", "Last-Modified"])
def test_a_download_that_broke_off_is_resumed(xapi: Xapi, out: Path, validators: tuple[tuple[str, str], ...]) -> None:
    with Files(HALF, validators=validators) as files:
        broken = _download(xapi, files, out)
        kept = f"1.4 MiB of 2.9 MiB kept in {out}.part; run the same command again to resume\n"
        assert broken.code == 11
        assert broken.err.endswith(kept)
        assert _part(out).read_bytes() == BODY[:HALF]
        assert [each.stat().st_mode & 0o777 for each in (_part(out), _record(out))] == [0o600, 0o600]
        assert not out.exists()

        assert _download(xapi, files, out) == Outcome(0)

    _assert_complete(out)
    assert files.ranges == [None, f"bytes={HALF}-"]
    assert files.requests[1]["if-range"] == validators[-1][1]
    assert {each["accept-encoding"] for each in files.requests} == {"identity"}


def test_the_record_contains_no_secret(xapi: Xapi, out: Path) -> None:
    with Files(HALF) as files:
        args = ("/data?access_token=secret", "-o", str(out), "--continue")
        assert xapi("request", *args, env=files.settings).code == 11

    text = _record(out).read_text()
    assert "secret" not in text
    assert TOKEN not in text
    assert json.loads(text)["validator"] == '"v1"'


def test_a_complete_download_has_the_mode_of_the_file_that_it_replaces(xapi: Xapi, out: Path) -> None:
    out.write_text("old")
    out.chmod(0o640)
    with Files(HALF) as files:
        assert _download(xapi, files, out).code == 11
        assert out.read_text() == "old"
        assert _download(xapi, files, out).code == 0

    assert out.stat().st_mode & 0o777 == 0o640
    _assert_complete(out)


def test_a_retry_goes_on_where_the_download_stopped(xapi: Xapi, out: Path) -> None:
    with Files(1_000_000, 500_000) as files:
        outcome = _download(xapi, files, out, "--retry", "2")

    assert outcome.code == 0
    assert outcome.err.count("retrying in") == 2
    assert files.ranges == [None, "bytes=1000000-", "bytes=1500000-"]
    _assert_complete(out)


def test_the_retries_are_limited(xapi: Xapi, out: Path) -> None:
    with Files(1000, 1000, 1000, 1000) as files:
        assert _download(xapi, files, out, "--retry", "2").code == 11

    assert len(files.requests) == 3
    assert _part(out).read_bytes() == BODY[:3000]


def test_a_changed_file_is_downloaded_again(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        _start(xapi, files, out)
        files.body, files.validators = BODY[::-1], (("ETag", '"v2"'),)
        outcome = _download(xapi, files, out)

    assert outcome == Outcome(
        0, "", "xapi: the server sent the whole file: the download starts again, and 1.4 MiB are dropped\n"
    )
    _assert_complete(out, BODY[::-1])


def test_a_server_without_ranges_sends_the_whole_file_again(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        _start(xapi, files, out)
        files.ignores_ranges = True
        assert _download(xapi, files, out).code == 0

    _assert_complete(out)
    assert len(files.requests) == 1


def test_a_file_that_became_shorter_is_downloaded_again(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        _start(xapi, files, out)
        files.body = BODY[:1000]
        assert _download(xapi, files, out).code == 0

    assert files.ranges == [f"bytes={HALF}-", None]
    _assert_complete(out, BODY[:1000])


REST = BODY[HALF:]
SPAN = f"Content-Range: bytes {HALF}-{len(BODY) - 1}/{len(BODY)}"


@pytest.mark.parametrize(
    "headers, body",
    [
        ([f"Content-Range: bytes {HALF - 1}-{len(BODY) - 1}/{len(BODY)}"], REST),
        ([f"Content-Range: bytes {HALF + 1}-{len(BODY) - 1}/{len(BODY)}"], REST),
        ([f"Content-Range: bytes {HALF}-{len(BODY) - 2}/{len(BODY)}"], REST[:-1]),
        ([f"Content-Range: bytes {HALF}-{len(BODY) - 1}/{len(BODY) + 1}"], REST),
        ([f"Content-Range: bytes {HALF}-{len(BODY)}/{len(BODY) + 1}"], REST + b"x"),
        ([f"Content-Range: bytes {HALF}-{len(BODY) - 1}/*"], REST),
        ([f"Content-Range: bytes */{len(BODY)}"], REST),
        ([f"Content-Range: items {HALF}-{len(BODY) - 1}/{len(BODY)}"], REST),
        (["Content-Range: bytes -1--1/-1"], REST),
        ([SPAN, SPAN.replace("1500000", "0")], REST),
        ([], REST),
        ([SPAN], REST[:-1]),
        ([SPAN, 'ETag: "v2"'], REST),
        ([SPAN, 'ETag: W/"v1"'], REST),
        ([SPAN, "Content-Encoding: gzip"], REST),
        (["Content-Type: multipart/byteranges; boundary=x"], b"--x--"),
    ],
)
def test_a_part_that_does_not_continue_the_file_starts_the_download_again(
    xapi: Xapi, out: Path, headers: list[str], body: bytes
) -> None:
    with Files() as files:
        _start(xapi, files, out)
        port = files.server_address[1]
    wrong = response("206 Partial Content", body, *headers)
    whole = response("200 OK", BODY, 'ETag: "v1"')
    with Server([request(), send(wrong), close()], [request(), send(whole)], port=port) as server:
        outcome = _download(xapi, server, out)
        second = server.received[1]

    assert outcome.code == 0
    assert outcome.err.endswith("the download starts again, and 1.4 MiB are dropped\n")
    assert b"Range" not in second
    _assert_complete(out)


def test_a_part_that_was_not_requested_is_rejected(xapi: Xapi, out: Path) -> None:
    with Server([request(), send(response("206 Partial Content", REST, SPAN, 'ETag: "v1"'))]) as server:
        outcome = _download(xapi, server, out)

    assert outcome == Outcome(11, "", "xapi: error: the server sent a part of the file, which was not requested\n")
    assert os.listdir(out.parent) == []


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)


def test_a_part_with_another_date_starts_the_download_again(xapi: Xapi, out: Path) -> None:
    with Files(validators=LAST_MODIFIED) as files:
        _start(xapi, files, out)
        port = files.server_address[1]
    wrong = response("206 Partial Content", REST, SPAN, "Last-Modified: Sun, 22 Nov 2026 11:59:58 GMT")
    with Server([request(), send(wrong), close()], [request(), send(response("200 OK", BODY))], port=port) as server:
        assert _download(xapi, server, out).code == 0

    _assert_complete(out)


def test_a_download_that_started_again_can_be_resumed(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        _start(xapi, files, out)
        files.body, files.validators, files.cuts = BODY[::-1], (("ETag", '"v2"'),), [HALF]
        assert _download(xapi, files, out).code == 11
        assert _download(xapi, files, out) == Outcome(0)

    assert files.ranges == [f"bytes={HALF}-"] * 2
    _assert_complete(out, BODY[::-1])


@pytest.mark.parametrize("body, is_kept", [(REST + b"x", False), (REST[:-1], True)], ids=["more", "less"])
def test_a_part_of_another_length_than_declared_is_an_error(xapi: Xapi, out: Path, body: bytes, is_kept: bool) -> None:
    with Files() as files:
        _start(xapi, files, out)
        port = files.server_address[1]
    head = response("206 Partial Content", b"", SPAN, "Transfer-Encoding: chunked")
    with Server([request(), send(head + _chunked(body))], port=port) as server:
        assert _download(xapi, server, out).code == 11

    assert not out.exists()
    assert (_part(out).exists(), _record(out).exists()) == (is_kept, is_kept)


@pytest.mark.parametrize(
    "validators",
    [
        (),
        (("ETag", 'W/"v1"'),),
        (("ETag", "v1"),),
        (("ETag", '"' + "x" * 2000 + '"'),),
        LAST_MODIFIED[1:],  # without Date
        (LAST_MODIFIED[0], ("Last-Modified", LAST_MODIFIED[0][1])),
        (LAST_MODIFIED[0], ("Last-Modified", "yesterday")),
        (*ETAG, ("Accept-Ranges", "none")),
    ],
)
def test_a_download_without_a_strong_validator_is_not_kept(
    xapi: Xapi, out: Path, validators: tuple[tuple[str, str], ...]
) -> None:
    with Files(HALF, validators=validators) as files:
        outcome = _download(xapi, files, out)
        assert outcome.code == 11
        assert "kept" not in outcome.err
        assert os.listdir(out.parent) == []

        assert _download(xapi, files, out).code == 0

    assert files.ranges == [None, None]
    _assert_complete(out)


def test_a_body_with_a_content_coding_is_decoded_but_not_kept(xapi: Xapi, out: Path) -> None:
    import gzip

    packed = gzip.compress(BODY)
    coded = ('ETag: "v1"', "Content-Encoding: gzip")
    with Server(
        [request(), send(response("200 OK", packed[:-1], *coded, f"Content-Length: {len(packed)}")), close()],
        [request(), send(response("200 OK", packed, *coded))],
    ) as server:
        assert _download(xapi, server, out).code == 11
        assert os.listdir(out.parent) == []
        assert _download(xapi, server, out).code == 0

    _assert_complete(out)


def _flip(out: Path) -> None:
    data = bytearray(_part(out).read_bytes())
    data[1000] ^= 1
    _part(out).write_bytes(data)


def _edit(out: Path, **changes: object) -> None:
    _record(out).write_text(json.dumps(json.loads(_record(out).read_text()) | changes))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a changed byte": _flip,
    "a truncated part": lambda out: os.truncate(_part(out), HALF - 1),
    "no record": lambda out: _record(out).unlink(),
    "a truncated record": lambda out: os.truncate(_record(out), 30),
    "an empty record": lambda out: os.truncate(_record(out), 0),
    "a record in another encoding": lambda out: _record(out).write_bytes(b"\xff\xfe"),
    "a deeply nested record": lambda out: _record(out).write_text("[" * 60_000),
    "a record that is a list": lambda out: _record(out).write_text("[]"),
    "a negative length": lambda out: _edit(out, length=-1),
    "more than the total": lambda out: _edit(out, total=1),
    "another type": lambda out: _edit(out, length=True),
    "another request": lambda out: _edit(out, key="x"),
    "a header injection": lambda out: _edit(out, validator='"v1"\r\nX: y'),
    "no part": lambda out: _part(out).unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_part_is_downloaded_again(xapi: Xapi, out: Path, damage: str) -> None:
    with Files() as files:
        _start(xapi, files, out)
        DAMAGE[damage](out)
        assert _download(xapi, files, out).code == 0

    assert files.ranges == [None]
    _assert_complete(out)


def test_the_part_of_another_url_is_not_continued(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        _start(xapi, files, out)
        assert xapi("request", "/other", "-o", str(out), "--continue", env=files.settings).code == 0

    assert files.ranges == [None]
    _assert_complete(out)


@pytest.mark.parametrize("status", ["404 Not Found", "503 Busy", "304 Not Modified", "300 Multiple Choices"])
def test_a_failure_leaves_the_part(xapi: Xapi, out: Path, status: str) -> None:
    with Files() as files:
        _start(xapi, files, out)
        port = files.server_address[1]
    with Server([request(), send(response(status))], port=port) as server:
        for path in ("/data", "/typo"):
            xapi("request", path, "-o", str(out), "--continue", env=bearing(server))
        assert b"Range" in server.received[0]

    assert _part(out).read_bytes() == BODY[:HALF]
    with Files() as files:  # at another port, which is another URL
        assert _download(xapi, files, out).code == 0
    _assert_complete(out)


def test_a_failure_of_the_first_request_leaves_no_part(xapi: Xapi, out: Path) -> None:
    with Server([request(), send(response("404 Not Found"))]) as server:
        assert _download(xapi, server, out).code == 4

    assert os.listdir(out.parent) == []


def test_more_data_than_recorded_is_downloaded_again(xapi: Xapi, out: Path) -> None:
    """A killed process has written data after its last record."""
    with Files() as files:
        _start(xapi, files, out)
        with _part(out).open("ab") as part:
            part.write(b"surplus")
        assert _download(xapi, files, out).code == 0

    assert files.ranges == [f"bytes={HALF}-"]
    _assert_complete(out)


def test_a_part_that_is_complete_is_verified_with_its_last_byte(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        _start(xapi, files, out)
        from zlib import crc32

        _part(out).write_bytes(BODY)
        _edit(out, length=len(BODY), crc32=crc32(BODY))
        assert _download(xapi, files, out).code == 0

    assert files.ranges == [f"bytes={len(BODY) - 1}-"]
    _assert_complete(out)


def test_a_401_logs_in_and_resumes(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        _start(xapi, files, out)
        env = {"XAPI_BASE_URL": files.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "p"}
        assert xapi("token", "show", env=env).code == 0
        files.valid_token = "another"
        assert xapi("request", "/data", "-o", str(out), "--continue", env=env).code == 0

    assert files.ranges == [f"bytes={HALF}-"] * 2
    _assert_complete(out)


def test_a_redirect_to_another_origin_is_resumed_without_the_token(xapi: Xapi, out: Path) -> None:
    with Files() as api, Files(HALF) as storage:
        api.redirect = f"{storage.url}/object?signature=1"
        assert _download(xapi, api, out).code == 11
        api.redirect = f"{storage.url}/object?signature=2"
        assert _download(xapi, api, out).code == 0

        assert storage.ranges == [None, f"bytes={HALF}-"]
        assert not any("authorization" in each for each in storage.requests)
        _assert_complete(out)


def test_a_redirect_to_another_file_starts_again(xapi: Xapi, out: Path) -> None:
    with Files() as api, Files(HALF) as storage:
        api.redirect = f"{storage.url}/object"
        assert _download(xapi, api, out).code == 11
        api.redirect = f"{storage.url}/another"
        assert _download(xapi, api, out).code == 0

        assert storage.ranges == [None, f"bytes={HALF}-", None]
        _assert_complete(out)


def test_an_empty_file(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        files.body = b""
        assert _download(xapi, files, out) == Outcome(0)

    _assert_complete(out, b"")


def test_without_the_option_a_part_is_left_alone(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        _start(xapi, files, out)
        assert xapi("request", "/data", "-o", str(out), env=files.settings) == Outcome(0)

    assert out.read_bytes() == BODY
    assert _part(out).read_bytes() == BODY[:HALF]


# other processes and users


@contextmanager
def _stopped(xapi: Xapi, files: Files, out: Path) -> Iterator[Any]:
    """Run a download that stops after half of the file until the block ends."""
    reached, resume = threading.Event(), threading.Event()

    def before_block(sent: int) -> None:
        if sent >= HALF and not resume.is_set():
            reached.set()
            resume.wait(30)

    files.block, files.before_block = 100_000, before_block
    process = xapi.start("request", "/data", "-o", str(out), "--continue", env=files.settings)
    try:
        assert reached.wait(10)
        while not _part(out).exists() or _part(out).stat().st_size < HALF:
            assert process.poll() is None
        yield process
    finally:
        resume.set()


def test_two_processes_do_not_write_the_same_part(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        with _stopped(xapi, files, out) as process:
            outcome = _download(xapi, files, out)
        assert process.wait(30) == 0

    assert outcome == Outcome(
        2, "", f"xapi: error: another process is downloading {out}; wait for it, or choose another file\n"
    )
    _assert_complete(out)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_download_states_what_is_kept(xapi: Xapi, out: Path, number: int, code: int) -> None:
    with Files() as files:
        with _stopped(xapi, files, out) as process:
            process.send_signal(number)
            _, err = process.communicate(timeout=30)
        assert process.returncode == code
        assert err.decode() == (
            f"xapi: interrupted: 1.4 MiB of 2.9 MiB kept in {out}.part; run the same command again to resume\n"
        )
        assert _download(xapi, files, out) == Outcome(0)

    assert files.ranges[1] == f"bytes={HALF}-"
    _assert_complete(out)


def test_an_interrupted_download_states_on_a_terminal_what_is_dropped(xapi: Xapi, out: Path) -> None:
    sent = threading.Event()
    steps: list[Step] = [request(), send(response("200 OK", BODY[:1024], "Content-Length: 9999")), hang()]
    with (
        Server(steps) as server,
        xapi.on_terminal("request", "/", "-o", str(out), env=bearing(server)) as terminal,
    ):
        terminal.expect("received 1.0 KiB")
        terminal.interrupt()
        assert terminal.wait() == 130
        sent.set()

    assert re.search(r"\^C.*\r\x1b\[Kxapi: interrupted: 1\.0 KiB dropped; --continue would keep it", terminal.text)
    assert os.listdir(out.parent) == []


def test_a_time_limit_states_what_is_kept(xapi: Xapi, out: Path) -> None:
    steps: list[Step] = [request(), send(response("200 OK", b"x" * 1024, "Content-Length: 9999", 'ETag: "a"')), hang()]
    with Server(steps) as server:
        outcome = _download(xapi, server, out, "--timeout", "1")

    assert outcome.code == 12
    assert outcome.err.endswith(f"kept in {out}.part; run the same command again to resume\n")


def test_an_endless_body_is_kept_until_it_is_interrupted(xapi: Xapi, out: Path) -> None:
    endless: list[Step] = [request(), send(b'HTTP/1.1 200 OK\r\nETag: "v1"\r\n\r\n'), forever(b"x" * 65536)]
    with Server(endless) as server:
        process = xapi.start("request", "/data", "-o", str(out), "--continue", env=bearing(server))
        while not _part(out).exists() or _part(out).stat().st_size < 10_000_000:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)

    assert process.returncode == 130
    assert re.fullmatch(rf"xapi: interrupted: [\d.]+ MiB kept in {out}\.part; run .* to resume\n", err.decode())


def test_a_download_that_is_killed_at_random_moments_is_resumed(xapi: Xapi, out: Path) -> None:
    rng, kills = random.Random(7), 0
    with Files() as files:
        files.body = rng.randbytes(30_000_000)
        files.block = 100_000
        files.before_block = lambda sent: threading.Event().wait(0.01)
        while not out.exists():
            process = xapi.start("request", "/data", "-o", str(out), "--continue", env=files.settings)
            with suppress(Exception):
                process.wait(rng.uniform(0.3, 2.2))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                kills += 1
            process.wait(10)
            assert kills < 60
        assert _download(xapi, files, out).code == 0  # removes what a kill after the move has left

    assert kills > 0
    assert any(files.ranges)
    _assert_complete(out, files.body)


@pytest.mark.parametrize("name", ["out.part", "out.part.json"])
def test_no_symbolic_link_is_followed_to_the_part(xapi: Xapi, out: Path, tmp_path_factory: Any, name: str) -> None:
    victim = tmp_path_factory.mktemp("elsewhere") / "victim"
    victim.write_text("precious")
    (out.parent / name).symlink_to(victim)
    with Files() as files:
        outcome = _download(xapi, files, out)

    assert victim.read_text() == "precious"
    assert outcome.code == (14 if name == "out.part" else 0)


def test_a_part_with_another_name_is_not_written(xapi: Xapi, out: Path) -> None:
    (out.parent / "other").write_text("precious")
    os.link(out.parent / "other", _part(out))
    with Files() as files:
        assert _download(xapi, files, out).code == 14

    assert (out.parent / "other").read_text() == "precious"


def test_a_symbolic_link_to_the_file_is_preserved(xapi: Xapi, out: Path) -> None:
    (out.parent / "real").mkdir()
    out.symlink_to("real/data")
    with Files(HALF) as files:
        assert _download(xapi, files, out).code == 11
        assert (out.parent / "real" / "data.part").exists()
        assert _download(xapi, files, out).code == 0

    assert out.is_symlink()
    assert (out.parent / "real" / "data").read_bytes() == BODY


def test_a_full_disk_is_reported(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        process = xapi.start(
            'ulimit -f 1000 && exec "$0" "$@"',
            "xapi",
            "request",
            "/data",
            "-o",
            str(out),
            "--continue",
            argv=("sh", "-c"),
            env=files.settings,
        )
        _, err = process.communicate(timeout=30)

    assert process.returncode == 14, err
    assert b"kept in" in err


# usage


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("-o", "-"),
        ("-o", "x", "--no-check-status"),
        ("-o", "x", "Range:bytes=0-"),
        ("-o", "x", "-H", "if-range: y"),
        ("-o", "x", "Accept-Encoding:gzip"),
        ("-o", "x", "a=b"),
        ("-o", "x", "-d", "b"),
        ("-o", "x", "--meta", "x.part.json"),
        ("-o", "/dev/null"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_resumed_is_an_error_in_usage(xapi: Xapi, args: tuple[str, ...]) -> None:
    with Server([hang()]) as server:
        outcome = xapi("request", "/data", "--continue", *args, env=bearing(server))
        assert server.received == []

    assert outcome.code == 2
    assert re.fullmatch(r"xapi: error: .+; .+\n", outcome.err)


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE"])
def test_only_a_get_can_be_resumed(xapi: Xapi, method: str) -> None:
    with Server([hang()]) as server:
        assert xapi("request", method, "/data", "-o", "x", "--continue", env=bearing(server)).code == 2


def test_curl_has_no_equivalent(xapi: Xapi) -> None:
    env = {"XAPI_BASE_URL": "http://127.0.0.1:1", "XAPI_TOKEN": TOKEN}
    outcome = xapi("request", "/data", "-o", "x", "--continue", "--curl", env=env)

    assert outcome.err.startswith("xapi: omitted, because curl does not support it: --continue\n")
