"""`xapi request --expect`: exit code 6 if a successful response does not satisfy a filter; its body is printed."""

import json
from pathlib import Path

import pytest

from tests.commands.api import bearing, response
from tests.support.program import Xapi
from tests.support.servers import Server, request, send

BODY = b'{"items": [{"id": 1}, {"id": 2}], "next": null}'


def _server(body: bytes = BODY, *headers: str, status: str = "200 OK") -> Server:
    return Server([request(), send(response(status, body, *headers))])


def test_a_response_that_meets_all_filters_is_a_success(xapi: Xapi) -> None:
    texts = (".items", ".items | length == 2", ".items[].id > 0", "0", '""', "[]")
    with _server() as server:
        outcome = xapi("request", "/", *(word for text in texts for word in ("--expect", text)), env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err) == (0, BODY.decode(), "")


UNMET = {
    ".missing": "the filter yields null",
    ".items[].id == 1": "the filter yields false",
    "false, null": "the filter yields false and null",
    "empty": "the filter yields nothing",
    ".items.id": "the --expect filter failed: Cannot index array with string",
}


@pytest.mark.parametrize("text, reason", UNMET.items(), ids=UNMET)
def test_a_response_that_does_not_meet_the_filter_is_an_error_that_quotes_it(
    xapi: Xapi, text: str, reason: str
) -> None:
    with _server() as server:
        outcome = xapi("request", "/", "--expect", text, env=bearing(server))

    assert (outcome.code, outcome.out) == (6, BODY.decode())
    assert outcome.err.startswith(f"xapi: error: the response does not meet --expect '{text}': {reason}")
    assert outcome.err.endswith("; check whether the API has changed\n")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("body, reason", [(b"<html>", "cannot parse the body as JSON"), (b"", "yields nothing")])
def test_a_body_without_json_does_not_meet_a_filter(xapi: Xapi, body: bytes, reason: str) -> None:
    with _server(body) as server:
        outcome = xapi("request", "/", "--expect", ".", env=bearing(server))

    assert (outcome.code, outcome.out) == (6, body.decode())
    assert reason in outcome.err


def test_the_body_goes_where_it_would_go_without_the_filter(xapi: Xapi, tmp_path: Path) -> None:
    file, meta = tmp_path / "file", tmp_path / "meta"
    with _server() as server:
        outcome = xapi("request", "/", "-o", str(file), "--meta", str(meta), "--expect", ".a", env=bearing(server))
    assert (outcome.code, outcome.out, file.read_bytes()) == (6, "", BODY)
    assert json.loads(meta.read_text())["bytes"] == len(BODY)

    with _server() as server:
        expected = [word for text in (".items", ".a", ".b") for word in ("--expect", text)]
        outcome = xapi("request", "/", "--jq", ".items[].id", *expected, env=bearing(server))
    assert (outcome.code, outcome.out) == (6, "1\n2\n")
    assert "--expect '.a'" in outcome.err


@pytest.mark.parametrize("options, code", [([], 4), (["--no-check-status"], 0)])
def test_an_error_response_is_not_checked(xapi: Xapi, options: list[str], code: int) -> None:
    with _server(status="404 Not Found") as server:
        assert xapi("request", "/", "--expect", "false", *options, env=bearing(server)).code == code


def test_the_data_of_each_event_is_checked(xapi: Xapi) -> None:
    for text, code in ((".ok", 6), (".id", 0)):
        body = b'data: {"id": 1, "ok": true}\n\ndata: {"id": 2}\n\n'
        with _server(body, "Content-Type: text/event-stream") as server:
            assert xapi("request", "/", "--expect", text, env=bearing(server)).code == code


INVALID = {
    "a syntax error": (["--expect", ".", "--expect", ".["], "the --expect filter is not valid"),
    "--paginate": (["--expect", ".", "--paginate"], "--expect cannot be combined with --paginate"),
    "--continue": (["--expect", ".", "--continue", "-o", "f"], "--expect cannot be combined with --continue"),
}


@pytest.mark.parametrize("args, text", INVALID.values(), ids=INVALID)
def test_an_invalid_filter_is_reported_before_anything_is_sent(xapi: Xapi, args: list[str], text: str) -> None:
    with Server() as server:
        outcome = xapi("request", "/", *args, env=bearing(server))

        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert outcome.err.startswith(f"xapi: error: {text}")
        assert server.received == []
