"""`request -o FILE --continue`: a download that is truncated is resumed, and the file is always the server's."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.commands.api import TOKEN, bearing, response
from tests.commands.downloads import (
    BODY,
    ETAG,
    HALF,
    LAST_MODIFIED,
    Files,
    assert_complete,
    download,
    edit_record,
    part_of,
    record_of,
    start_half,
)
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, hang, request, send


@pytest.mark.parametrize("validators", [ETAG, LAST_MODIFIED], ids=["ETag", "Last-Modified"])
def test_a_download_that_broke_off_is_resumed(xapi: Xapi, out: Path, validators: tuple[tuple[str, str], ...]) -> None:
    with Files(HALF, validators=validators) as files:
        broken = download(xapi, files, out)
        kept = f"; run the same command again to resume (1.4 of 2.9 MiB kept in {out}.part)\n"
        assert broken.code == 11
        assert broken.err.endswith(kept)
        assert part_of(out).read_bytes() == BODY[:HALF]
        assert [each.stat().st_mode & 0o777 for each in (part_of(out), record_of(out))] == [0o600, 0o600]
        assert not out.exists()

        assert download(xapi, files, out) == Outcome(0)

    assert_complete(out)
    assert files.ranges == [None, f"bytes={HALF}-"]
    assert files.requests[1]["if-range"] == validators[-1][1]
    assert {each["accept-encoding"] for each in files.requests} == {"identity"}


def test_the_record_contains_no_secret(xapi: Xapi, out: Path) -> None:
    with Files(HALF) as files:
        args = ("/data?access_token=secret", "-o", str(out), "--continue")
        assert xapi("request", *args, env=files.settings).code == 11

    text = record_of(out).read_text()
    assert "secret" not in text
    assert TOKEN not in text
    assert json.loads(text)["validator"] == '"v1"'


def test_a_complete_download_has_the_mode_of_the_file_that_it_replaces(xapi: Xapi, out: Path) -> None:
    out.write_text("old")
    out.chmod(0o640)
    with Files(HALF) as files:
        assert download(xapi, files, out).code == 11
        assert out.read_text() == "old"
        assert download(xapi, files, out).code == 0

    assert out.stat().st_mode & 0o777 == 0o640
    assert_complete(out)


def test_a_retry_goes_on_where_the_download_stopped(xapi: Xapi, out: Path) -> None:
    with Files(1_000_000, 500_000) as files:
        outcome = download(xapi, files, out, "--retry", "2")

    assert outcome.code == 0
    assert outcome.err.count("retrying in") == 2
    assert files.ranges == [None, "bytes=1000000-", "bytes=1500000-"]
    assert_complete(out)


def test_the_body_of_a_resumed_download_counts_in_all_responses(xapi: Xapi, out: Path) -> None:
    with Files(1_000_000, 500_000) as files:
        meta = out.parent.parent / "meta"
        outcome = download(xapi, files, out, "--retry", "2", "--meta", str(meta), "-i")

    assert outcome.code == 0
    assert json.loads(meta.read_text())["bytes"] == len(BODY)
    assert re.findall(r"^HTTP/1.1 (\d+)", outcome.out, re.MULTILINE) == ["206"]
    assert outcome.out.endswith("\r\n\r\n")


def test_the_headers_of_the_last_response_are_printed_if_it_breaks_off(xapi: Xapi, out: Path) -> None:
    with Files(1000) as files:
        outcome = download(xapi, files, out, "-i")

    assert outcome.code == 11
    assert outcome.out.startswith("HTTP/1.1 200")


def test_the_retries_are_limited(xapi: Xapi, out: Path) -> None:
    with Files(1000, 1000, 1000, 1000) as files:
        assert download(xapi, files, out, "--retry", "2").code == 11

    assert len(files.requests) == 3
    assert part_of(out).read_bytes() == BODY[:3000]


@pytest.mark.parametrize("status", ["404 Not Found", "503 Busy", "304 Not Modified", "300 Multiple Choices"])
def test_a_failure_leaves_the_part(xapi: Xapi, out: Path, status: str) -> None:
    with Files() as files:
        start_half(xapi, files, out)
        port = files.server_address[1]
    with Server([request(), send(response(status))], port=port) as server:
        for path in ("/data", "/typo"):
            xapi("request", path, "-o", str(out), "--continue", env=bearing(server))
        assert b"Range" in server.received[0]

    assert part_of(out).read_bytes() == BODY[:HALF]
    with Files() as files:  # at another port, which is another URL
        assert download(xapi, files, out).code == 0
    assert_complete(out)


def test_a_failure_of_the_first_request_leaves_no_part(xapi: Xapi, out: Path) -> None:
    with Server([request(), send(response("404 Not Found"))]) as server:
        assert download(xapi, server, out).code == 4

    assert os.listdir(out.parent) == []


def test_more_data_than_recorded_is_downloaded_again(xapi: Xapi, out: Path) -> None:
    """A killed process has written data after its last record."""
    with Files() as files:
        start_half(xapi, files, out)
        with part_of(out).open("ab") as part:
            part.write(b"surplus")
        assert download(xapi, files, out).code == 0

    assert files.ranges == [f"bytes={HALF}-"]
    assert_complete(out)


def test_a_part_that_is_complete_is_verified_with_its_last_byte(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        start_half(xapi, files, out)
        from zlib import crc32

        part_of(out).write_bytes(BODY)
        edit_record(out, length=len(BODY), crc32=crc32(BODY))
        assert download(xapi, files, out).code == 0

    assert files.ranges == [f"bytes={len(BODY) - 1}-"]
    assert_complete(out)


def test_a_401_logs_in_and_resumes(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        env = {"XAPI_BASE_URL": files.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "p"}
        assert xapi("token", "show", env=env).code == 0
        files.cuts = [HALF]
        assert xapi("request", "/data", "-o", str(out), "--continue", env=env).code == 11
        files.requests.clear()
        files.authorization = "Bearer another"
        assert xapi("request", "/data", "-o", str(out), "--continue", env=env).code == 0

    assert files.ranges == [f"bytes={HALF}-"] * 2
    assert_complete(out)


def test_a_redirect_to_another_origin_is_resumed_without_the_token(xapi: Xapi, out: Path) -> None:
    with Files() as api, Files(HALF) as storage:
        api.redirect = f"{storage.url}/object?signature=1"
        assert download(xapi, api, out).code == 11
        api.redirect = f"{storage.url}/object?signature=2"
        assert download(xapi, api, out).code == 0

        assert storage.ranges == [None, f"bytes={HALF}-"]
        assert not any("authorization" in each for each in storage.requests)
        assert_complete(out)


def test_a_redirect_to_another_file_starts_again(xapi: Xapi, out: Path) -> None:
    with Files() as api, Files(HALF) as storage:
        api.redirect = f"{storage.url}/object"
        assert download(xapi, api, out).code == 11
        api.redirect = f"{storage.url}/another"
        assert download(xapi, api, out).code == 0

        assert storage.ranges == [None, f"bytes={HALF}-", None]
        assert_complete(out)


def test_an_empty_file(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        files.body = b""
        assert download(xapi, files, out) == Outcome(0)

    assert_complete(out, b"")


def test_without_the_option_a_part_is_left_alone(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        start_half(xapi, files, out)
        assert xapi("request", "/data", "-o", str(out), env=files.settings) == Outcome(0)

    assert out.read_bytes() == BODY
    assert part_of(out).read_bytes() == BODY[:HALF]


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
def test_what_cannot_be_resumed_is_a_usage_error(xapi: Xapi, args: tuple[str, ...]) -> None:
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

    assert outcome.err.startswith("xapi: omitted from the command, because curl has no equivalent: --continue\n")
