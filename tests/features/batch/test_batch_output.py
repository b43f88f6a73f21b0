"""`xapi batch`: output lines and the exit code."""

import gzip
import re
from typing import Any

from tests.features.batch.server import Api, ReceivedRequest, Reply, batch, jsonl, out_lines, paths
from tests.support.program import Xapi
from tests.support.servers import Server, hang, request, send


def test_an_output_line_has_all_documented_keys(xapi: Xapi) -> None:
    headers = (("Content-Type", "application/json; charset=utf-8"), ("X-Two", "a"), ("X-Two", "b"))
    with Api(lambda received: Reply(b'{"n":\r\n 1.10, "s": "a b"}\n', 201, headers)) as api:
        outcome = xapi("batch", input='{"id": "x", "path": "/"}', env=api.settings)
    [line] = out_lines(outcome.out)

    assert list(line) == ["id", "line", "status", "headers", "json", "elapsed_ms"]
    assert (line["id"], line["line"], line["status"], line["json"]) == ("x", 1, 201, {"n": 1.1, "s": "a b"})
    assert '"n":   1.10,' in outcome.out
    assert line["headers"] == {
        "content-type": "application/json; charset=utf-8",
        "x-two": "a, b",
        "content-length": "26",
    }
    assert isinstance(line["elapsed_ms"], int)
    login, summary = outcome.err.splitlines()
    assert login.startswith("xapi: logged in as ")
    assert re.fullmatch(r"xapi: 1 line in \d+\.\d s \([\d,]+/s\)", summary)


BODIES: list[tuple[str, bytes, str, Any]] = [
    ("application/json", b'{"a": 1}', "json", {"a": 1}),
    ("application/problem+json", b"[]", "json", []),
    ("application/json", b'\xef\xbb\xbf"x"', "json", "x"),
    ("application/json", b"{broken", "text", "{broken"),
    ("application/json", b"[NaN]", "text", "[NaN]"),
    ("application/json", b"", "text", ""),
    ("application/json", b'"\xff"', "base64", "Iv8i"),
    ("text/plain", "grüße".encode(), "text", "grüße"),
    ("text/plain; charset=iso-8859-1", "grüße".encode("latin-1"), "text", "grüße"),
    ('text/html; charset="windows-1251"', "привет".encode("cp1251"), "text", "привет"),
    ("text/plain; charset=shift_jis", "日本".encode("shift_jis"), "text", "日本"),
    ("text/plain; charset=no-such", b"abc", "base64", "YWJj"),
    ("text/plain; charset=hex", b"6162", "base64", "NjE2Mg=="),
    ("text/plain; charset=idna", b"abc", "base64", "YWJj"),
    ("text/plain", b"\xff\xfe\x00", "base64", "//4A"),
    ("image/png", b"\x89PNG\r\n", "base64", "iVBORw0K"),
    ("application/octet-stream", b"abc", "base64", "YWJj"),
    ("", b"plain", "text", "plain"),
    ("", b"\x80", "base64", "gA=="),
]


def test_a_body_is_printed_as_json_as_text_or_in_base64(xapi: Xapi) -> None:
    def response(received: ReceivedRequest) -> Reply:
        content_type, body, _, _ = BODIES[int(received.path[1:])]
        return Reply(body, headers=(("Content-Type", content_type),) if content_type else ())

    with Api(response) as api:
        code, lines, err = batch(xapi, api, "--ordered", input=jsonl(*({"path": f"/{n}"} for n in range(len(BODIES)))))

    assert code == 0, err
    shown = [next((key, line[key]) for key in ("json", "text", "base64") if key in line) for line in lines]
    assert shown == [(key, value) for _, _, key, value in BODIES]


def test_the_body_of_head_and_of_204_is_an_empty_text(xapi: Xapi) -> None:
    with Api(lambda received: Reply(status=204, body=b"") if received.path == "/204" else Reply()) as api:
        code, lines, _ = batch(xapi, api, input=jsonl({"path": "/", "method": "head"}, {"path": "/204"}))

    assert (code, [each["text"] for each in lines]) == (0, ["", ""])


def test_a_body_over_10_mib_is_an_error_of_kind_size(xapi: Xapi) -> None:
    most = 10 * 2**20

    def response(received: ReceivedRequest) -> Reply:
        size = {"/fits": most, "/over": most + 1, "/bomb": most + 1}[received.path]
        if received.path == "/bomb":
            return Reply(
                gzip.compress(b"x" * size), headers=(("Content-Type", "text/plain"), ("Content-Encoding", "gzip"))
            )
        return Reply(b"x" * size, headers=(("Content-Type", "text/plain"),))

    with Api(response) as api:
        code, lines, _ = batch(
            xapi, api, "--ordered", input=jsonl(*({"path": each} for each in ("/fits", "/over", "/bomb")))
        )

    assert code == 11
    assert len(lines[0]["text"]) == most
    assert [each["error"]["kind"] for each in lines[1:]] == ["size", "size"]
    assert "xapi request -o" in lines[1]["error"]["message"]


def test_chunked_compressed_and_close_delimited_bodies_are_read(xapi: Xapi) -> None:
    packed = gzip.compress(b'{"a":1}')
    chunked = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b'3\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n'
    zipped = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        % len(packed)
        + packed
    )
    early = (
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n"
        b'{"a":1}'
    )
    to_the_end = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + b'{"a":1}'
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"
    half = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 12\r\n\r\n" + packed[:12]
    with Server(
        [request(), send(chunked), request(), send(zipped), request(), send(early), request(), send(to_the_end)],
        [request(), send(cut)],
        [request(), send(half)],
    ) as server:
        outcome = xapi("batch", "-j", "1", input=paths(6), env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"})
    lines = out_lines(outcome.out)

    assert [each.get("json") for each in lines[:4]] == [{"a": 1}] * 4
    assert [each["error"]["kind"] for each in lines[4:]] == ["network", "network"]
    assert "truncated after 5 bytes" in lines[4]["error"]["message"]
    assert outcome.code == 11


def test_the_exit_code_is_the_highest_of_all_lines(xapi: Xapi) -> None:
    with Api(lambda received: Reply(status=int(received.path[1:]))) as api:
        codes = [
            batch(xapi, api, input=jsonl(*({"path": f"/{status}"} for status in statuses)))[0]
            for statuses in ([200, 304, 204], [200, 404], [404, 503, 200])
        ]
        bad = batch(xapi, api, input=jsonl({"path": "/200"}, {"path": "/404"}, {"pth": 1}))[0]

    assert (codes, bad) == ([0, 4, 5], 4)


def test_a_refused_connection_is_a_network_error_and_no_response_is_a_timeout(xapi: Xapi) -> None:
    with Server([request(), hang()]) as server:
        quiet = xapi(
            "batch", input=paths(2), env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t", "XAPI_TIMEOUT": "1.5"}
        )
        url = server.url
    gone = xapi("batch", input=paths(2), env={"XAPI_BASE_URL": url, "XAPI_TOKEN": "t"})

    assert (quiet.code, gone.code) == (12, 11)
    assert {each["error"]["kind"] for each in out_lines(quiet.out)} == {"timeout"}
    assert "no response from 127.0.0.1" in quiet.out
    assert "within 1.5 s" in quiet.out
    assert {each["error"]["kind"] for each in out_lines(gone.out)} == {"network"}
    assert "connection refused" in gone.out
