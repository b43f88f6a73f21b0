"""What is shown only on a terminal, against every kind of response: no combination is an unexpected failure."""

import re
import zlib
from collections.abc import Callable, Sequence

import pytest

from tests.commands.api import bearing
from tests.commands.page_server import PageServer
from tests.support.program import Xapi

EMPTY_GZIP = zlib.compress(b"", wbits=31)


def _reply(head: Sequence[str], body: bytes = b"", before: str = "") -> bytes:
    return before.encode() + "\r\n".join([f"HTTP/1.1 {head[0]}", *head[1:], "", ""]).encode() + body


STATUSES = "200 OK", "201 Created", "205 Reset Content", "206 Part", "400 No", "404 Not Found", "500 Oops", "503 Busy"
BODIES: dict[str, tuple[list[str], bytes]] = {
    "length": (["Content-Length: 0"], b""),
    "json": (["Content-Length: 0", "Content-Type: application/json"], b""),
    "chunked": (["Transfer-Encoding: chunked"], b"0\r\n\r\n"),
    "trailers": (["Transfer-Encoding: chunked"], b"0\r\nX-Sum: 0\r\n\r\n"),
    "close": (["Connection: close"], b""),
    "no-gzip": (["Content-Encoding: gzip", "Content-Length: 0"], b""),
    "gzip": (["Content-Encoding: gzip", f"Content-Length: {len(EMPTY_GZIP)}"], EMPTY_GZIP),
    "deflate": (["Content-Encoding: deflate", "Content-Length: 8"], zlib.compress(b"")),
}
EMPTY = {
    f"{status[:3]}-{name}": _reply([status, *head], body)
    for status in STATUSES
    for name, (head, body) in BODIES.items()
}
OTHERS = {
    "204": _reply(["204 No Content"]),
    "204-gzip": _reply(["204 No Content", "Content-Encoding: gzip", "Content-Type: application/json"]),
    "204-close": _reply(["204 No Content", "Connection: close"]),
    "204-after-100": _reply(["204 No Content"], before="HTTP/1.1 100 Continue\r\n\r\n"),
    "304": _reply(["304 Not Modified", 'ETag: "1"']),
    "304-length": _reply(["304 Not Modified", "Content-Length: 5", "Content-Encoding: gzip"]),
    "200-after-103": _reply(["200 OK", "Content-Length: 0"], before="HTTP/1.1 103 Hints\r\nLink: </a>\r\n\r\n"),
    "206-range": _reply(["206 Part", "Content-Range: bytes 0-0/0", "Content-Length: 0"]),
    "302": _reply(["302 Found", "Content-Length: 0"]),
}
SAMPLE = {name: EMPTY[name] for name in ("200-length", "200-gzip", "201-chunked", "404-close", "500-length")} | OTHERS
HEADS = {  # of a response to HEAD, whose fields describe the body of a GET
    "200-length": _reply(["200 OK", "Content-Length: 5"]),
    "200-gzip": _reply(["200 OK", "Content-Encoding: gzip", "Content-Length: 5"]),
    "200-chunked": _reply(["200 OK", "Transfer-Encoding: chunked"]),
    "200": _reply(["200 OK"]),
    "204": OTHERS["204"],
    "304-length": OTHERS["304-length"],
    "404-length": _reply(["404 Not Found", "Content-Length: 5"]),
    "500-gzip": _reply(["500 Oops", "Content-Encoding: gzip", "Content-Length: 5"]),
}


def _of_status(name: str) -> set[int]:
    return {{"3": 0 if name.startswith("304") else 3, "4": 4, "5": 5}.get(name[0], 0)}


def _of_page(name: str) -> set[int]:
    return {6} if name[0] == "2" and not name.startswith("204") else _of_status(name)


def _of_expectation(name: str) -> set[int]:
    return {6} if name[0] == "2" else _of_status(name)


def _of_wait(name: str) -> set[int]:
    return {12} if name[0] == "2" else {12, *_of_status(name)}  # the time may be over before there is a response


def _of_part(name: str) -> set[int]:
    return {11} if name.startswith("206") else _of_status(name)


@pytest.mark.parametrize(
    "words, replies, codes",
    [
        ("GET -o out -i -v --meta -", SAMPLE, _of_status),
        ("GET --until . --every 5s --max-time 0.3", SAMPLE, _of_wait),
        ("GET --paginate", SAMPLE, _of_page),
        ("HEAD", HEADS, _of_status),
        *(
            pytest.param(*row, marks=pytest.mark.slow)
            for row in [
                ("GET --jq .", SAMPLE, _of_status),
                ("GET --expect true", SAMPLE, _of_expectation),
                ("GET", EMPTY | OTHERS, _of_status),
                ("DELETE -o out", EMPTY | OTHERS, _of_status),
                ("GET -o out --continue", SAMPLE, _of_part),
                ("GET -o out --no-check-status", SAMPLE, lambda name: {0}),
                ("GET -o out", SAMPLE, _of_status),
                ("GET --error-body stderr --meta -", SAMPLE, _of_status),
                ("GET --jq . -o out", SAMPLE, _of_status),
                ("GET --paginate --slurp -o out", SAMPLE, _of_page),
                ("GET --paginate --jq .", SAMPLE, _of_page),
                ("HEAD -iv -o out", HEADS, _of_status),
            ]
        ),
    ],
)
def test_a_response_without_a_body_is_no_unexpected_failure(
    xapi: Xapi, words: str, replies: dict[str, bytes], codes: Callable[[str], set[int]]
) -> None:
    method, *options = words.split()
    failures = {}
    current = b""
    with PageServer(lambda _: current) as server:
        for name, current in replies.items():  # noqa: B007 - the server sends it
            with xapi.on_terminal("request", method, "/", *options, env=bearing(server)) as terminal:
                code = terminal.wait()
            if code not in codes(name) or _is_unexpected(terminal.text):
                failures[name] = code, terminal.text

    assert failures == {}


def _is_unexpected(text: str) -> bool:
    return re.search(r"unexpected\s+failure|Traceback", text) is not None


@pytest.mark.parametrize("columns", [60])
@pytest.mark.parametrize(
    "reply", [EMPTY["200-length"], OTHERS["204"], _reply(["401 No", "Content-Length: 0"]), EMPTY["500-close"]]
)
@pytest.mark.parametrize("words", ["doctor", "profile list", "token status --check /"])
def test_other_commands_show_their_tables(xapi: Xapi, words: str, reply: bytes, columns: int) -> None:
    with (
        PageServer(lambda _: reply) as server,
        xapi.on_terminal(*words.split(), env=bearing(server), columns=columns) as terminal,
    ):
        assert terminal.wait() in {0, 1, 5, 10}

    assert not _is_unexpected(terminal.text)
