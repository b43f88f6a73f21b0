"""`xapi request --jq`: the language of the filter, its results, and where they go."""

import json
import threading
from pathlib import Path

import pytest

from tests.commands.api import bearing
from tests.commands.page_server import PageServer, numbered, page
from tests.support.program import Xapi
from tests.support.servers import Server, hang, request, send, serve, wait_for
from xapi_cli.features.sandbox import Sandbox

NUMBERS = '[1.10, 123456789012345678901234567890, 1.0, {"price": 2.50}]'


@pytest.mark.parametrize(
    "text, body, out",
    [
        (".", '{"a" : [1, "é"]}', '{"a":[1,"é"]}\n'),
        (".a, .b", '{"a": "x\\ny \\"z\\"", "b": null}', 'x\ny "z"\nnull\n'),
        (".[] | select(.n > 1) | .n", '[{"n": 1}, {"n": 2}, {"n": 3}]', "2\n3\n"),
        (".a # a comment", '{"a": true}', "true\n"),
        ("-1", "[]", "-1\n"),
        ("empty", "[]", ""),
        (".n", '{"n": 1} {"n": 2}\n{"n": 3}', "1\n2\n3\n"),
        ("keys", '{"b": 1, "a": 1}', '["a","b"]\n'),
    ],
)
def test_the_results_are_printed_one_per_line(xapi: Xapi, text: str, body: str, out: str) -> None:
    with PageServer(lambda target: page(body.encode())) as server:
        outcome = xapi("request", "/", "--jq", text, env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err) == (0, out, "")


@pytest.mark.parametrize(
    "text, out",
    [
        (".", '[1.10,123456789012345678901234567890,1.0,{"price":2.50}]\n'),
        (".[]", '1.10\n123456789012345678901234567890\n1.0\n{"price":2.50}\n'),
        (".[3].price", "2.50\n"),
        ("[.[1]]", "[123456789012345678901234567890]\n"),
    ],
)
def test_numbers_stay_as_sent(xapi: Xapi, text: str, out: str) -> None:
    with PageServer(lambda target: page(NUMBERS.encode())) as server:
        outcome = xapi("request", "/", "--jq", text, env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err) == (0, out, "")


def test_a_filter_may_be_a_negated_expression(xapi: Xapi) -> None:
    with PageServer(lambda target: page([1, 2])) as server:
        outcome = xapi("request", "/", "--jq", "-length", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, "-2\n")


@pytest.mark.parametrize("text", ["", "# a comment", "def f: 1;", 'import "m" as m {search: "MODULES"}; m::f'])
def test_filters_without_an_expression_and_with_modules_are_accepted(xapi: Xapi, tmp_path: Path, text: str) -> None:
    (tmp_path / "m.jq").write_text("def f: .;\n")
    text = text.replace("MODULES", str(tmp_path))
    with PageServer(lambda target: page([1])) as server:
        outcome = xapi("request", "/", "--jq", text, env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err) == (0, "[1]\n", "")


def test_the_output_file_is_complete_or_unchanged(xapi: Xapi, out: Path) -> None:
    out.write_text("old")
    with PageServer(lambda target: page(b'{"a": "x"} [2]')) as server:
        env = bearing(server)
        failed = xapi("request", "/", "--jq", ".a", "-o", str(out), env=env)
        assert (failed.code, failed.out, out.read_text()) == (1, "", "old")
        outcome = xapi("request", "/", "--jq", ".a?", "-o", str(out), env=env)

    assert (outcome.code, outcome.out, out.read_text()) == (0, "", "x\n")


@pytest.mark.parametrize("reply", [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
def test_without_a_body_there_are_no_results(xapi: Xapi, reply: bytes) -> None:
    with Server([serve(reply)]) as server:
        outcome = xapi("request", "/", "--jq", ".", env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


def test_the_filter_is_applied_to_each_item_of_all_pages(xapi: Xapi) -> None:
    with PageServer(numbered(3)) as server:
        outcome = xapi("request", "/items", "--paginate", "--jq", ".id", env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err) == (0, "1\n2\n3\n4\n5\n6\n", "")


def test_meta_counts_the_bytes_of_the_items_not_those_of_the_results(xapi: Xapi, tmp_path: Path) -> None:
    meta = tmp_path / "meta"
    with PageServer(numbered(2)) as server:
        plain = xapi("request", "/items", "--paginate", env=bearing(server))
        outcome = xapi("request", "/items", "--paginate", "--jq", ".id", "--meta", str(meta), env=bearing(server))

    assert (outcome.code, outcome.out) == (0, "1\n2\n3\n4\n")
    assert json.loads(meta.read_text())["bytes"] == len(plain.out)


def test_control_characters_of_results_are_shown_on_a_terminal(xapi: Xapi) -> None:
    with (
        PageServer(lambda target: page(b'["a\\u001b[31mb", "\xc3\xa9"]')) as server,
        xapi.on_terminal("request", "/", "--jq", ".[]", env=bearing(server)) as terminal,
    ):
        assert terminal.wait() == 0

    assert terminal.text == "a\\x1b[31mb\r\né\r\n"


def test_a_large_document_is_filtered_completely(xapi: Xapi) -> None:
    body = json.dumps([{"id": number, "name": f"é {number}"} for number in range(100_000)], ensure_ascii=False).encode()
    with PageServer(lambda target: page(body)) as server:
        outcome = xapi("request", "/", "--jq", ".[].id", env=bearing(server), timeout=60)

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.split() == [str(number) for number in range(100_000)]


def test_results_of_events_are_printed_as_they_arrive(xapi: Xapi) -> None:
    head, seen = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n", threading.Event()
    first, rest = b'event: add\ndata: {"id":\ndata: 1}\n\n', b': ping\n\ndata: {"id":2}\n\ndata: [DONE]\n\n'
    with Server([request(), send(head + first), wait_for(seen), send(rest)]) as server:
        process = xapi.start("request", "/", "--jq", ".id", env=bearing(server))
        assert process.stdout
        assert process.stdout.readline() == b"1\n"
        seen.set()
        assert process.communicate(timeout=30) == (b"2\n", b"")
        assert process.returncode == 0


def test_an_idle_stream_of_events_ends_after_the_timeout(xapi: Xapi) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    with Server([request(), send(head + b"data: 1\n\n"), hang()]) as server:
        outcome = xapi("request", "/", "--jq", ".", "--timeout", "2.2", env=bearing(server))

    assert (outcome.code, outcome.out) == (12, "1\n")
    assert "--timeout" in outcome.err


def stream(media_type: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nConnection: close\r\n\r\n".encode()


LONG = b'{"id":1,"text":"' + b"x" * 2**21 + b'"}'
STREAMS = {
    "events": (stream("text/event-stream"), b"data: %b\n\n"),
    "lines": (stream("application/x-ndjson"), b"%b\n"),
    "lines, other type": (stream("application/jsonl; charset=utf-8"), b"%b\r\n"),
}
each_stream = pytest.mark.parametrize("head, record", STREAMS.values(), ids=STREAMS)


@each_stream
def test_a_long_first_record_is_not_held_back(xapi: Xapi, head: bytes, record: bytes) -> None:
    seen = threading.Event()
    steps = [request(), send(head + record % LONG), wait_for(seen), send(record % b'{"id":2}')]
    with Server(steps) as server:
        process = xapi.start("request", "/", "--jq", ".id", env=bearing(server))
        assert process.stdout
        assert process.stdout.readline() == b"1\n"
        seen.set()
        assert process.communicate(timeout=30) == (b"2\n", b"")


@each_stream
@pytest.mark.parametrize("invalid", [b'{"id":', b"<html>", b'"', b"[1,"])
def test_an_invalid_record_is_an_error_when_it_arrives(xapi: Xapi, head: bytes, record: bytes, invalid: bytes) -> None:
    with Server([request(), send(head + record % b'{"id":1}' + record % invalid + record % b"2}"), hang()]) as server:
        outcome = xapi("request", "/", "--jq", ".id", "--timeout", "60", env=bearing(server))

    assert (outcome.code, outcome.out) == (1, "1\n")
    assert outcome.err.startswith("xapi: error: --jq cannot parse the body as JSON: ")


@each_stream
def test_a_filter_that_fails_ends_a_stream_that_is_idle(xapi: Xapi, head: bytes, record: bytes) -> None:
    with Server([request(), send(head + record % b'{"id":1}' + record % b"[]"), hang()]) as server:
        outcome = xapi("request", "/", "--jq", ".id", "--timeout", "60", env=bearing(server))

    assert (outcome.code, outcome.out) == (1, "1\n")
    assert "Cannot index array" in outcome.err


@each_stream
def test_a_stream_is_shown_on_a_terminal_as_it_arrives(xapi: Xapi, head: bytes, record: bytes) -> None:
    seen = threading.Event()
    with (
        Server([request(), send(head + record % b'{"id":1}'), wait_for(seen), send(record % b"2")]) as server,
        xapi.on_terminal("request", "/", env=bearing(server)) as terminal,
    ):
        terminal.expect('{"id":1}')
        seen.set()
        assert terminal.wait() == 0


def test_results_of_lines_are_printed_as_they_arrive(xapi: Xapi) -> None:
    seen = threading.Event()
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    with Server([request(), send(head + b'{"id":1}\n{"id":'), wait_for(seen), send(b"2}")]) as server:
        process = xapi.start("request", "/", "--jq", ".id", env=bearing(server))
        assert process.stdout
        assert process.stdout.readline() == b"1\n"
        seen.set()
        assert process.communicate(timeout=30) == (b"2\n", b"")


@pytest.mark.slow
def test_many_lines_are_more_than_one_document_may_be(xapi: Xapi) -> None:
    line = b'{"n": 1, "s": "' + b"x" * 2**20 + b'"}\n'
    with PageServer(lambda target: page(b'{"n": 0}\n' + line * 70)) as server:
        outcome = xapi("request", "/", "--jq", ".n", env=bearing(server), timeout=60)

    assert (outcome.code, outcome.out, outcome.err) == (0, "0\n" + "1\n" * 70, "")


@pytest.mark.parametrize("option", ["--jq", "--expect"])
def test_curl_omits_the_filter(xapi: Xapi, sandbox: Sandbox, option: str) -> None:
    outcome = xapi("request", "/x-api/me", option, ".", "--curl", env=bearing(sandbox))

    assert outcome.code == 0
    assert outcome.err == f"xapi: omitted from the command, because curl has no equivalent: {option}\n"
