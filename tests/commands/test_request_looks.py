"""How JSON looks: indented, colored and decoded on a terminal with every option, and as it was sent elsewhere."""

import re
import threading
from pathlib import Path

import pytest

from tests.commands.api import bearing, response
from tests.commands.page_server import PageServer, numbered, page
from tests.support.program import OnTerminal, Xapi
from tests.support.servers import Server, hang, request, send, wait_for

BODY = rb'{"b":1.10,"a":["\u00dc\/\u001b",null]}'
COLORED = (
    '{\n  \x1b[1;34m"b"\x1b[0m: \x1b[36m1.10\x1b[0m,\n  \x1b[1;34m"a"\x1b[0m: [\n    \x1b[32m"Ü/\\u001b"\x1b[0m,\n'
    "    \x1b[35mnull\x1b[0m\n  ]\n}\n"
)


def _screen(terminal: OnTerminal) -> str:
    """Return what is on the screen at the end, with its colors."""
    return re.sub("(?m)^.*\r[^\n]*\x1b\\[K", "", terminal.seen.decode().replace("\r\n", "\n"))


def _text(terminal: OnTerminal) -> str:
    """Return what is on the screen at the end, without its colors."""
    return re.sub("\x1b\\[[0-9;]*m", "", _screen(terminal))


@pytest.mark.parametrize("columns", [60])
@pytest.mark.parametrize(
    ("options", "count"),
    [([], 1), (["--jq", "."], 1), (["--jq", "., ."], 2), (["--paginate"], 1), (["--paginate", "--jq", "."], 1)],
)
def test_json_looks_the_same_with_each_option(xapi: Xapi, options: list[str], count: int, columns: int) -> None:
    with (
        PageServer(lambda _: page(BODY, 'Link: </>; rel="self"')) as server,
        xapi.on_terminal("request", "/", *options, env=bearing(server), columns=columns) as terminal,
    ):
        assert terminal.wait() == 0

    assert _screen(terminal) == COLORED * count


def test_results_and_items_appear_on_a_terminal_as_they_arrive(xapi: Xapi) -> None:
    seen = threading.Event()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"
    with (
        Server([request(), send(head + b'{"id":1}\n'), wait_for(seen), send(b'{"id":2}\n')]) as server,
        xapi.on_terminal("request", "/", "--jq", "{n:.id}", env=bearing(server)) as terminal,
    ):
        terminal.expect('{\r\n  "n": 1\r\n}\r\n')
        seen.set()
        terminal.expect('{\r\n  "n": 2\r\n}\r\n')
        assert terminal.wait() == 0


@pytest.mark.parametrize("columns", [60])
def test_pages_show_their_progress_and_then_one_line(xapi: Xapi, columns: int) -> None:
    seen, words = threading.Event(), ("request", "/items", "--paginate", "-o", "out")
    pages = numbered(3)

    def respond(target: str) -> bytes:
        assert not target.endswith("=3") or seen.wait(30), "the progress was not shown"
        return pages(target)

    with (
        PageServer(respond) as server,
        xapi.on_terminal(*words, env=bearing(server), columns=columns) as terminal,
    ):
        shown = terminal.expect("2 pages, 4 items, ")
        seen.set()
        assert terminal.wait() == 0

    assert max(map(len, re.split(r"[\r\n]|\x1b\[K", shown))) < columns
    last = terminal.text.rpartition("\x1b[K")[2]
    assert re.fullmatch(r"xapi: wrote out: 3 pages, 6 items, 54 bytes in \d+\.\d s\r\n", last)
    assert (xapi.home / "out").read_text() == "".join(f'{{"id":{number}}}\n' for number in range(1, 7))


UP = b"x" * 50_000_000  # more than the buffers of a connection


@pytest.mark.parametrize("columns", [60])
def test_ctrl_c_in_an_upload_says_how_much_was_sent(xapi: Xapi, tmp_path: Path, columns: int) -> None:
    (tmp_path / "in").write_bytes(UP)
    with (
        Server([hang()]) as server,
        xapi.on_terminal("request", "/", "-d", f"@{tmp_path / 'in'}", env=bearing(server), columns=columns) as terminal,
    ):
        terminal.expect(" of 47.7 MiB, ")
        terminal.interrupt()
        assert terminal.wait() == 130

    assert re.search(r"\^C.*\r\x1b\[Kxapi: interrupted: [\d.]+ [KM]iB of 47\.7 MiB sent\r\n", terminal.text)


@pytest.mark.parametrize(
    ("method", "text"), [("POST", "xapi: interrupted: the request was sent, and may have been processed"), ("PUT", "")]
)
def test_ctrl_c_after_a_request_says_whether_it_may_have_been_processed(xapi: Xapi, method: str, text: str) -> None:
    sent = threading.Event()
    with (
        Server([request(), lambda _: sent.set(), hang()]) as server,
        xapi.on_terminal("request", method, "/", "a=1", env=bearing(server)) as terminal,
    ):
        assert sent.wait(30)
        terminal.expect("waiting for ")  # what was sent has been counted by then
        terminal.interrupt()
        assert terminal.wait() == 130

    assert _text(terminal).strip() == text


@pytest.mark.parametrize("body", ["word", "two words", '{"a": [1, "tr'])
def test_a_truncated_body_is_shown_and_its_error_begins_a_line(xapi: Xapi, body: str) -> None:
    half = response("200 OK", body.encode(), "Content-Length: 20")
    with (
        Server([request(), send(half)]) as server,
        xapi.on_terminal("request", "/", env=bearing(server)) as terminal,
    ):
        assert terminal.wait() == 11

    assert terminal.text.startswith(f"{body}\r\nxapi: error: ")
