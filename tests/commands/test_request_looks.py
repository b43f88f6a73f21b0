"""How JSON looks: indented, colored and decoded on a terminal with every option, and as it was sent elsewhere."""

import re
import threading

import pytest

from tests.commands.api import bearing, response
from tests.commands.page_server import PageServer, numbered, page
from tests.support.program import OnTerminal, Xapi
from tests.support.servers import Server, request, send, wait_for

BODY = rb'{"b":1.10,"a":["\u00dc\/\u001b",null]}'
COLORED = (
    '{\n  \x1b[1;34m"b"\x1b[0m: \x1b[36m1.10\x1b[0m,\n  \x1b[1;34m"a"\x1b[0m: [\n    \x1b[32m"Ü/\\u001b"\x1b[0m,\n'
    "    \x1b[35mnull\x1b[0m\n  ]\n}\n"
)


def _screen(terminal: OnTerminal) -> str:
    """Return what is on the screen at the end, with its colors."""
    return re.sub("(?m)^.*\r[^\n]*\x1b\\[K", "", terminal.seen.decode().replace("\r\n", "\n"))


@pytest.mark.parametrize(
    ("options", "count"),
    [([], 1), (["--jq", "."], 1), (["--jq", "., ."], 2), (["--paginate"], 1), (["--paginate", "--jq", "."], 1)],
)
def test_json_looks_the_same_with_each_option(xapi: Xapi, options: list[str], count: int) -> None:
    with (
        PageServer(lambda _: page(BODY, 'Link: </>; rel="self"')) as server,
        xapi.on_terminal("request", "/", *options, env=bearing(server), columns=60) as terminal,
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


def test_pages_show_their_progress_and_then_one_line(xapi: Xapi) -> None:
    seen, words = threading.Event(), ("request", "/items", "--paginate", "-o", "out")
    pages = numbered(3)

    def respond(target: str) -> bytes:
        assert not target.endswith("=3") or seen.wait(60), "the progress was not shown"
        return pages(target)

    with (
        PageServer(respond) as server,
        xapi.on_terminal(*words, env=bearing(server), columns=60) as terminal,
    ):
        shown = terminal.expect("2 pages, 4 items, ")
        seen.set()
        assert terminal.wait() == 0

    assert max(map(len, re.split(r"[\r\n]|\x1b\[K", shown))) < 60
    last = terminal.text.rpartition("\x1b[K")[2]
    assert re.fullmatch(r"xapi: wrote out: 3 pages, 6 items, 54 bytes in \d+\.\d s\r\n", last)
    assert (xapi.home / "out").read_text() == "".join(f'{{"id":{number}}}\n' for number in range(1, 7))


@pytest.mark.parametrize("body", ["word", "two words", '{"a": [1, "tr'])
def test_a_truncated_body_is_shown_and_its_error_begins_a_line(xapi: Xapi, body: str) -> None:
    half = response("200 OK", body.encode(), "Content-Length: 20")
    with (
        Server([request(), send(half)]) as server,
        xapi.on_terminal("request", "/", env=bearing(server)) as terminal,
    ):
        assert terminal.wait() == 11

    assert terminal.text.startswith(f"{body}\r\nxapi: error: ")
