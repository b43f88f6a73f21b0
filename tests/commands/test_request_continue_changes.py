"""`request -o FILE --continue`: files that have changed, and responses that do not continue the part."""

import os
from pathlib import Path

import pytest

from tests.commands.api import response
from tests.commands.downloads import (
    BODY,
    ETAG,
    HALF,
    LAST_MODIFIED,
    REST,
    SPAN,
    Files,
    assert_complete,
    download,
    part_of,
    record_of,
    start_half,
)
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, close, request, send


def test_a_changed_file_is_downloaded_again(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        start_half(xapi, files, out)
        files.body, files.validators = BODY[::-1], (("ETag", '"v2"'),)
        outcome = download(xapi, files, out)

    assert outcome == Outcome(
        0, "", "xapi: the file on the server has changed; restarting the download, 1.4 MiB discarded\n"
    )
    assert_complete(out, BODY[::-1])


def test_a_server_without_ranges_sends_the_whole_file_again(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        start_half(xapi, files, out)
        files.ignores_ranges = True
        outcome = download(xapi, files, out)
    assert outcome == Outcome(
        0,
        "",
        "xapi: the server sent the whole file, because it does not support ranges;"
        " restarting the download, 1.4 MiB discarded\n",
    )

    assert_complete(out)
    assert len(files.requests) == 1


def test_a_file_that_became_shorter_is_downloaded_again(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        start_half(xapi, files, out)
        files.body = BODY[:1000]
        assert download(xapi, files, out).code == 0

    assert files.ranges == [f"bytes={HALF}-", None]
    assert_complete(out, BODY[:1000])


@pytest.mark.parametrize(
    "headers, body",
    [
        ([f"Content-Range: bytes {HALF - 1}-{len(BODY) - 1}/{len(BODY)}", 'ETag: "v1"'], REST),
        ([f"Content-Range: bytes {HALF + 1}-{len(BODY) - 1}/{len(BODY)}", 'ETag: "v1"'], REST),
        ([f"Content-Range: bytes {HALF}-{len(BODY) - 2}/{len(BODY)}", 'ETag: "v1"'], REST[:-1]),
        ([f"Content-Range: bytes {HALF}-{len(BODY) - 1}/{len(BODY) + 1}", 'ETag: "v1"'], REST),
        ([f"Content-Range: bytes {HALF}-{len(BODY)}/{len(BODY) + 1}", 'ETag: "v1"'], REST + b"x"),
        ([f"Content-Range: bytes {HALF}-{len(BODY) - 1}/*", 'ETag: "v1"'], REST),
        ([f"Content-Range: bytes */{len(BODY)}", 'ETag: "v1"'], REST),
        ([f"Content-Range: items {HALF}-{len(BODY) - 1}/{len(BODY)}", 'ETag: "v1"'], REST),
        (["Content-Range: bytes -1--1/-1", 'ETag: "v1"'], REST),
        ([SPAN, SPAN.replace("1500000", "0"), 'ETag: "v1"'], REST),
        (['ETag: "v1"'], REST),
        ([SPAN, 'ETag: "v1"'], REST[:-1]),
        ([SPAN], REST),  # without the ETag
        ([SPAN, 'ETag: "v2"'], REST),
        ([SPAN, 'ETag: W/"v1"'], REST),
        ([SPAN, 'ETag: "v1"', "Content-Encoding: gzip"], REST),
        (["Content-Type: multipart/byteranges; boundary=x"], b"--x--"),
    ],
)
def test_a_part_that_does_not_continue_the_file_starts_the_download_again(
    xapi: Xapi, out: Path, headers: list[str], body: bytes
) -> None:
    with Files() as files:
        start_half(xapi, files, out)
        port = files.server_address[1]
    wrong = response("206 Partial Content", body, *headers)
    whole = response("200 OK", BODY, 'ETag: "v1"')
    with Server([request(), send(wrong), close()], [request(), send(whole)], port=port) as server:
        outcome = download(xapi, server, out)
        second = server.received[1]

    assert outcome.code == 0
    assert outcome.err.endswith("; restarting the download, 1.4 MiB discarded\n")
    assert b"Range" not in second
    assert_complete(out)


def test_a_part_that_was_not_requested_is_rejected(xapi: Xapi, out: Path) -> None:
    with Server([request(), send(response("206 Partial Content", REST, SPAN, 'ETag: "v1"'))]) as server:
        outcome = download(xapi, server, out)

    assert outcome == Outcome(
        11,
        "",
        "xapi: error: the server sent a part of the file, which was not requested;"
        " run `xapi doctor` to check the connection\n",
    )
    assert os.listdir(out.parent) == []


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)


def test_a_part_with_another_date_starts_the_download_again(xapi: Xapi, out: Path) -> None:
    with Files(validators=LAST_MODIFIED) as files:
        start_half(xapi, files, out)
        port = files.server_address[1]
    wrong = response("206 Partial Content", REST, SPAN, "Last-Modified: Sun, 22 Nov 2026 11:59:58 GMT")
    with Server([request(), send(wrong), close()], [request(), send(response("200 OK", BODY))], port=port) as server:
        assert download(xapi, server, out).code == 0

    assert_complete(out)


def test_a_download_that_started_again_can_be_resumed(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        start_half(xapi, files, out)
        files.body, files.validators, files.cuts = BODY[::-1], (("ETag", '"v2"'),), [HALF]
        assert download(xapi, files, out).code == 11
        assert download(xapi, files, out) == Outcome(0)

    assert files.ranges == [f"bytes={HALF}-"] * 2
    assert_complete(out, BODY[::-1])


@pytest.mark.parametrize("body, is_kept", [(REST + b"x", False), (REST[:-1], True)], ids=["more", "less"])
def test_a_part_of_another_length_than_declared_is_an_error(xapi: Xapi, out: Path, body: bytes, is_kept: bool) -> None:
    with Files() as files:
        start_half(xapi, files, out)
        port = files.server_address[1]
    head = response("206 Partial Content", b"", SPAN, 'ETag: "v1"', "Transfer-Encoding: chunked")
    with Server([request(), send(head + _chunked(body))], port=port) as server:
        assert download(xapi, server, out).code == 11

    assert not out.exists()
    assert (part_of(out).exists(), record_of(out).exists()) == (is_kept, is_kept)


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
        outcome = download(xapi, files, out)
        assert outcome.code == 11
        assert "kept" not in outcome.err
        remedy = "run the command again, because the server cannot resume it"
        assert outcome.err.endswith(f"; {remedy} (1.4 MiB discarded)\n")
        assert os.listdir(out.parent) == []

        assert download(xapi, files, out).code == 0

    assert files.ranges == [None, None]
    assert_complete(out)


def test_a_body_with_a_content_coding_is_decoded_but_not_kept(xapi: Xapi, out: Path) -> None:
    import gzip

    packed = gzip.compress(BODY)
    coded = ('ETag: "v1"', "Content-Encoding: gzip")
    with Server(
        [request(), send(response("200 OK", packed[:-1], *coded, f"Content-Length: {len(packed)}")), close()],
        [request(), send(response("200 OK", packed, *coded))],
    ) as server:
        assert download(xapi, server, out).code == 11
        assert os.listdir(out.parent) == []
        assert download(xapi, server, out).code == 0

    assert_complete(out)
