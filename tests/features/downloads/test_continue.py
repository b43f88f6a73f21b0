"""`request -o FILE --continue`: a download that was interrupted continues where it stopped."""

import json
import os
import random
import re
import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from tests.commands.api import TOKEN, bearing, response
from tests.features.downloads.files import (
    BODY,
    HALF,
    REST,
    SPAN,
    Files,
    assert_complete,
    download,
    part_of,
    record_of,
    start_half,
    stopped,
)
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, close, hang, request, send


@pytest.mark.parametrize("version", [("ETag", '"v1"'), ("Last-Modified", "Sat, 21 Nov 2026 08:00:00 GMT")])
def test_a_download_that_broke_off_is_resumed(xapi: Xapi, out: Path, version: tuple[str, str]) -> None:
    with Files(HALF, validators=(version,)) as files:
        broken = download(xapi, files, out)
        assert broken.code == 11
        assert broken.err.endswith(f"; run the same command again to resume (1.4 MiB kept in {out}.part)\n")
        assert part_of(out).read_bytes() == BODY[:HALF]
        assert TOKEN not in record_of(out).read_text()
        assert not out.exists()

        assert download(xapi, files, out) == Outcome(0)

    assert_complete(out)
    assert files.ranges == [None, f"bytes={HALF}-"]
    assert files.requests[1]["if-range"] == version[1]
    assert {each["accept-encoding"] for each in files.requests} == {"identity"}


def test_a_retry_goes_on_where_the_download_stopped(xapi: Xapi, out: Path) -> None:
    with Files(1_000_000, 500_000) as files:
        meta = out.parent.parent / "meta"
        outcome = download(xapi, files, out, "--retry", "2", "--meta", str(meta), "-i")

    assert outcome.code == 0
    assert outcome.err.count("retrying in") == 2
    assert files.ranges == [None, "bytes=1000000-", "bytes=1500000-"]
    assert json.loads(meta.read_text())["bytes"] == len(BODY)
    assert re.findall(r"^HTTP/1.1 (\d+)", outcome.out, re.MULTILINE) == ["206"]
    assert_complete(out)


def test_a_resumed_download_shows_the_progress_of_the_whole_file(xapi: Xapi, out: Path) -> None:
    seen, words = threading.Event(), ("request", "/data", "-o", str(out), "--continue")
    with Files() as files:
        start_half(xapi, files, out)
        files.before_block = lambda sent: sent == 0 or seen.wait(60)
        with xapi.on_terminal(*words, env=files.settings, columns=300) as terminal:
            terminal.expect("59% received 1.7 MiB of 2.9 MiB, ")
            seen.set()
            assert terminal.wait() == 0


V1, WRONG_SPAN = 'ETag: "v1"', SPAN.replace(str(HALF), str(HALF - 1), 1)
FIRST_HALF = [request(), send(response("200 OK", BODY[:HALF], V1, f"Content-Length: {len(BODY)}")), close()]
OTHERS = {
    "a new version": response("200 OK", BODY, 'ETag: "v2"'),
    "no ranges": response("200 OK", BODY, V1),
    "a shorter file": response("416 Range Not Satisfiable"),
    "a range of another version": response("206 Partial Content", REST, SPAN, 'ETag: "v2"'),
    "a range without a version": response("206 Partial Content", REST, SPAN),
    "a weak version": response("206 Partial Content", REST, SPAN, 'ETag: W/"v1"'),
    "another start": response("206 Partial Content", REST, WRONG_SPAN, V1),
    "another end": response("206 Partial Content", REST[:-1], SPAN.replace("-2999999/", "-2999998/"), V1),
    "no Content-Range": response("206 Partial Content", REST, V1),
    "a content coding": response("206 Partial Content", REST, SPAN, V1, "Content-Encoding: gzip"),
}


@pytest.mark.parametrize("received", OTHERS.values(), ids=OTHERS)
def test_a_response_that_does_not_continue_the_part_restarts_the_download(
    xapi: Xapi, out: Path, received: bytes
) -> None:
    whole = response("200 OK", BODY, 'ETag: "v3"')
    with Server(FIRST_HALF, [request(), send(received), close()], [request(), send(whole)]) as server:
        assert download(xapi, server, out).code == 11
        assert download(xapi, server, out) == Outcome(
            0,
            "",
            "xapi: the server did not send the rest of the same file; restarting the download, 1.4 MiB discarded\n",
        )

    assert_complete(out)


@pytest.mark.parametrize("etag", [(), (("ETag", 'W/"v1"'),), (("ETag", '"v1"'), ("Content-Encoding", "x"))])
def test_a_file_without_a_strong_version_is_not_kept(xapi: Xapi, out: Path, etag: tuple[tuple[str, str], ...]) -> None:
    with Files(HALF, validators=etag) as files:
        assert download(xapi, files, out).code == 11

    assert os.listdir(out.parent) == []


def test_a_retry_requests_the_whole_file_if_it_cannot_be_resumed(xapi: Xapi, out: Path) -> None:
    with Files(HALF, validators=()) as files:
        outcome = download(xapi, files, out, "--retry", "1", "--meta", "-")

    assert (outcome.code, json.loads(outcome.err.splitlines()[-1])["bytes"]) == (0, len(BODY))
    assert files.ranges == [None, None]
    assert_complete(out)


@pytest.mark.parametrize(("status", "code"), [("404 Not Found", 4), ("304 Not Modified", 0)])
def test_another_response_than_the_file_leaves_the_part(xapi: Xapi, out: Path, status: str, code: int) -> None:
    with Server(FIRST_HALF, [request(), send(response(status))]) as server:
        assert download(xapi, server, out).code == 11
        assert download(xapi, server, out).code == code

    assert part_of(out).read_bytes() == BODY[:HALF]
    assert not out.exists()


def test_a_part_that_was_not_requested_is_an_error(xapi: Xapi, out: Path) -> None:
    with Server([request(), send(response("206 Partial Content", REST, SPAN, 'ETag: "v1"'))]) as server:
        outcome = download(xapi, server, out)

    assert outcome.code == 11
    assert outcome.err.startswith("xapi: error: the server sent a part of the file, which was not requested")
    assert os.listdir(out.parent) == []


@pytest.mark.parametrize("body", [REST + b"x", REST[:-1]], ids=["more", "less"])
def test_a_part_of_another_length_than_declared_is_an_error(xapi: Xapi, out: Path, body: bytes) -> None:
    head = response("206 Partial Content", b"", SPAN, 'ETag: "v1"', "Transfer-Encoding: chunked")
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with Server(FIRST_HALF, [request(), send(head + chunked)]) as server:
        assert download(xapi, server, out).code == 11
        assert part_of(out).exists()
        assert download(xapi, server, out).code == 11

    assert os.listdir(out.parent) == []


@pytest.mark.parametrize(
    ("env", "args", "authorization"),
    [
        ({"XAPI_TOKEN": "0ther-t0ken"}, (), "Bearer 0ther-t0ken"),
        ({"XAPI_TOKEN": "", "XAPI_USERNAME": "me@example.com", "XAPI_PASSWORD": "p"}, (), "Bearer new"),
        ({}, ("Accept:text/csv",), f"Bearer {TOKEN}"),
        ({}, ("version==2",), f"Bearer {TOKEN}"),
    ],
)
def test_the_part_of_another_account_or_representation_is_discarded(
    xapi: Xapi, out: Path, env: dict[str, str], args: tuple[str, ...], authorization: str
) -> None:
    with Files() as files:
        start_half(xapi, files, out)
        files.authorization, files.body = authorization, BODY[::-1]  # with the same ETag
        outcome = xapi("request", "/data", "-o", str(out), "--continue", *args, env=files.settings | env)

    assert outcome.code == 0
    assert f"{out}.part cannot be continued; 1.4 MiB discarded\n" in outcome.err
    assert files.ranges == [None]
    assert_complete(out, BODY[::-1])


def test_a_401_logs_in_and_resumes(xapi: Xapi, out: Path) -> None:
    env = {"XAPI_USERNAME": "me@example.com", "XAPI_PASSWORD": "p", "XAPI_STORAGE": "file"}
    with Files(len(BODY), HALF) as files:  # the first response is that of the login
        files.authorization = "Bearer new"
        env["XAPI_BASE_URL"] = files.url
        arguments = ("request", "/data", "-o", str(out), "--continue")
        assert xapi(*arguments, env=env).code == 11
        files.authorization = "Bearer revoked"
        assert xapi(*arguments, env=env).code == 0

    assert files.ranges == [None, f"bytes={HALF}-", f"bytes={HALF}-"]
    assert_complete(out)


def test_a_redirect_to_another_origin_is_resumed_without_the_token(xapi: Xapi, out: Path) -> None:
    with Files() as api, Files(HALF) as other:
        api.redirect = f"{other.url}/signed?key=1"
        assert download(xapi, api, out).code == 11
        assert download(xapi, api, out).code == 0

    assert other.ranges == [None, f"bytes={HALF}-"]
    assert [each.get("authorization") for each in other.requests] == [None, None]
    assert_complete(out)


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("-o", "-"),
        ("-o", "out", "X:y", "Range:bytes=1-"),
        ("-o", "out", "--jq", "."),
        ("-o", "out", "--paginate"),
        ("-o", "out", "a=1"),
        ("-o", "out", "--no-check-status"),
        ("-o", "out", "--csv"),
        ("-o", "/dev/stdout"),
    ],
)
def test_what_cannot_be_resumed_is_a_usage_error(xapi: Xapi, args: tuple[str, ...]) -> None:
    with Server([hang()]) as server:
        outcome = xapi("request", "/data", *args, "--continue", env=bearing(server))
        assert server.received == []

    assert (outcome.code, outcome.out) == (2, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_download_is_kept(xapi: Xapi, out: Path, number: int, code: int) -> None:
    with Files() as files:
        with stopped(xapi, files, out) as process:
            process.send_signal(number)
            _, err = process.communicate()
        assert (process.returncode, err) == (code, b"")
        assert download(xapi, files, out) == Outcome(0)

    assert files.ranges[1]
    assert_complete(out)


@pytest.mark.slow
def test_a_download_that_is_killed_at_random_moments_is_resumed(xapi: Xapi, out: Path) -> None:
    rng = random.Random(7)
    with Files() as files:
        files.body = rng.randbytes(30_000_000)
        files.block = 100_000
        for _ in range(8):
            is_reached, is_killed, limit = threading.Event(), threading.Event(), rng.randrange(3_000_000)
            files.before_block = partial(_hold, limit, is_reached, is_killed)
            process = xapi.start("request", "/data", "-o", str(out), "--continue", env=files.settings)
            assert is_reached.wait(60)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
            is_killed.set()
        files.before_block = lambda sent: None
        assert download(xapi, files, out).code == 0

    assert_complete(out, files.body)


def _hold(limit: int, is_reached: threading.Event, is_killed: threading.Event, sent: int) -> None:
    """Send no more than about *limit* bytes before the program is killed, at any moment."""
    if sent >= limit:
        is_reached.set()
        is_killed.wait(30)
