"""`xapi request --paginate`: which pages are requested, and what is printed."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.commands.api import bearing, response
from tests.commands.page_server import PageServer, lines, link, numbered, page
from tests.support.program import Xapi
from xapi_cli.features.sandbox import Sandbox


def test_all_pages_are_requested_and_each_item_is_a_line(xapi: Xapi) -> None:
    with PageServer(numbered(3)) as server:
        outcome = xapi("request", "/items", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err) == (0, lines(1, 2, 3, 4, 5, 6), "")
    assert server.targets == ["/items", "/items?page=2", "/items?page=3"]
    assert len(server.received) == 1  # one connection


def test_items_are_compact_and_otherwise_as_sent(xapi: Xapi) -> None:
    body = '[ 1.10, 123456789012345678901234567890,\n {"b" : "é \\u00e9", "a": [ 1E2 ]}, null ]'.encode()
    with PageServer(lambda target: page(body)) as server:
        outcome = xapi("request", "/", "--paginate", env=bearing(server))

    expected = '1.10\n123456789012345678901234567890\n{"b":"é \\u00e9","a":[1E2]}\nnull\n'
    assert (outcome.code, outcome.out, outcome.err) == (0, expected, "")


@pytest.mark.parametrize("body", ['{ "id": 1 }', '"text"', "12", "null"])
def test_a_page_that_is_not_an_array_is_one_item(xapi: Xapi, body: str) -> None:
    with PageServer(lambda target: page(body.encode())) as server:
        outcome = xapi("request", "/", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, body.replace(" ", "") + "\n")


@pytest.mark.parametrize(
    "header, target",
    [
        ("<{url}/v1/b?c=1>; rel=next", "/v1/b?c=1"),
        ('</b>; rel="next"', "/b"),
        ('<b?x=a%2Fb>; rel="next"', "/v1/b?x=a%2Fb"),
        ('<?page=2#top>; rel="prev next"', "/v1/items?page=2"),
        ('<../b>; REL="NEXT"; title="a, b"', "/b"),
        ("</x>; rel=prev, </y>; rel=next, </z>; rel=last", "/y"),
        ("</x>; rel=prev\r\nLink: </y>; rel=next", "/y"),
        ('</x>; rel=next; anchor="/other", </y>; rel=next', "/y"),
        ('</x>; rel=next; anchor="/v1/items?a=1", </y>; rel=next', "/x"),
        ("<//{name}/b>; rel=next", "/b"),
    ],
)
def test_the_link_is_resolved_against_the_page(xapi: Xapi, header: str, target: str) -> None:
    def respond(requested: str) -> bytes:
        filled = header.format(url=server.url, name=server.name)
        return page([1], f"Link: {filled}") if requested == "/v1/items?a=1" else page([2])

    with PageServer(respond) as server:
        outcome = xapi("request", "/v1/items?a=1", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err) == (0, "1\n2\n", "")
    assert server.targets[1:] == [target]


def test_a_link_is_relative_to_the_target_of_a_redirect(xapi: Xapi) -> None:
    def respond(target: str) -> bytes:
        if target == "/items":
            return response("302 Found", b"", "Location: /v2/items/")
        return page([target], *([link("?page=2")] if target == "/v2/items/" else []))

    with PageServer(respond) as server:
        outcome = xapi("request", "/items", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, '"/v2/items/"\n"/v2/items/?page=2"\n')


@pytest.mark.parametrize("last", [0, 1, 3])
def test_slurp_prints_one_array(xapi: Xapi, last: int) -> None:
    with PageServer(numbered(last) if last else lambda target: page([])) as server:
        outcome = xapi("request", "/items", "--paginate", "--slurp", env=bearing(server))

    assert json.loads(outcome.out) == [{"id": number} for number in range(1, 2 * last + 1)]
    assert (outcome.code, outcome.out.count("\n"), outcome.err) == (0, 1, "")


@pytest.mark.parametrize(
    "name, first, second",
    [
        ("items", {"items": [1, 2]}, {"items": [3]}),
        ("data.items", {"data": {"items": [1, 2]}}, {"data": {"items": [3]}}),
        ("data.items", {"data.items": [1, 2]}, {"data.items": [3]}),
        ("items", {"items": [1, 2]}, [3]),
        ("items", {"items": [1, 2, 3]}, {"items": None}),
        ("items", {"items": [1, 2, 3]}, {}),
        ("items", {"items": None}, {"items": [1, 2, 3]}),
    ],
)
def test_items_names_the_array_of_an_object(xapi: Xapi, name: str, first: Any, second: Any) -> None:
    with PageServer(lambda target: page(second) if "=2" in target else page(first, link("?p=2"))) as server:
        outcome = xapi("request", "/", "--paginate", "--items", name, env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err) == (0, "1\n2\n3\n", "")


@pytest.mark.parametrize(
    "value, problem",
    [
        ({"data": [1], "meta": {}}, "the page has no field items; check --items; its fields: data, meta"),
        ({}, "the page has no field items; check --items; it has no fields"),
        ("text", "the page has no field items; check --items; it has no fields"),
        ({"items": {"a": 1}}, "the field items of the page is not an array; check --items"),
    ],
)
def test_a_page_without_the_array_exits_with_11(xapi: Xapi, value: Any, problem: str) -> None:
    with PageServer(lambda target: page(value)) as server:
        outcome = xapi("request", "/", "--paginate", "--items", "items", env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err) == (11, "", f"xapi: error: {problem}\n")


@pytest.mark.parametrize(
    "name, value, target",
    [
        ("next", "/items?page=2", "/items?page=2"),
        ("next", "?page=2", "/items?page=2"),
        ("meta.next", "{url}/items?page=2", "/items?page=2"),
        ("@odata.nextLink", "{url}/items?$skip=2", "/items?$skip=2"),
        ("next", "", None),
        ("next", None, None),
        ("next", False, None),
        ("absent", "/items?page=2", None),
    ],
)
def test_next_names_the_field_with_the_url(xapi: Xapi, name: str, value: Any, target: str | None) -> None:
    def respond(requested: str) -> bytes:
        filled = value.format(url=server.url) if isinstance(value, str) else value
        first = {"meta": {"next": filled}, "next": filled, "@odata.nextLink": filled}
        return page(first if requested == "/items" else {}, link("/not-used"))

    with PageServer(respond) as server:
        outcome = xapi("request", "/items", "--paginate", "--next", name, env=bearing(server))

    assert (outcome.code, "check --next" in outcome.err) == (0, name == "absent")
    assert server.targets[1:] == ([] if target is None else [target])


@pytest.mark.parametrize("value", [{"href": "/b"}, ["/b"], True])
def test_a_next_field_of_another_type_exits_with_11(xapi: Xapi, value: Any) -> None:
    with PageServer(lambda target: page({"next": value})) as server:
        outcome = xapi("request", "/", "--paginate", "--next", "next", env=bearing(server))

    assert (outcome.code, json.loads(outcome.out)) == (11, {"next": value})
    assert "the field next of the page is neither a string nor a number" in outcome.err


def test_max_pages_ends_early_and_names_the_next_page(xapi: Xapi) -> None:
    with PageServer(numbered(9)) as server:
        outcome = xapi("request", "/items", "--paginate", "--max-pages", "2", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, lines(1, 2, 3, 4))
    assert outcome.err == f"xapi: stopped after 2 pages; to continue, request '{server.url}/items?page=3'\n"
    assert len(server.targets) == 2


def test_max_pages_of_one_is_singular(xapi: Xapi) -> None:
    with PageServer(numbered(9)) as server:
        outcome = xapi("request", "/items", "--paginate", "--max-pages", "1", env=bearing(server))

    assert outcome.err == f"xapi: stopped after 1 page; to continue, request '{server.url}/items?page=2'\n"


def test_max_pages_prints_no_note_at_the_end(xapi: Xapi) -> None:
    with PageServer(numbered(2)) as server:
        outcome = xapi("request", "/items", "--paginate", "--max-pages", "2", env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err) == (0, lines(1, 2, 3, 4), "")


def test_the_output_file_has_all_items(xapi: Xapi, out: Path) -> None:
    out.write_text("old")
    with PageServer(numbered(3)) as server:
        outcome = xapi("request", "/items", "--paginate", "-o", str(out), env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert out.read_text() == lines(1, 2, 3, 4, 5, 6)


def test_the_headers_of_the_user_are_sent_for_each_page(xapi: Xapi) -> None:
    with PageServer(numbered(2)) as server:
        outcome = xapi("request", "/items", "X-Mine:yes", "--paginate", env=bearing(server))

    assert outcome.code == 0
    assert b"".join(server.received).count(b"X-Mine: yes\r\n") == 2
    assert len(server.tokens) == 2


def test_compressed_pages_are_decoded(xapi: Xapi) -> None:
    body = gzip.compress(b"[1, 2]")
    with PageServer(lambda target: page(body, "Content-Encoding: gzip")) as server:
        outcome = xapi("request", "/", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, "1\n2\n")


def test_a_page_without_content_has_no_items(xapi: Xapi) -> None:
    def respond(target: str) -> bytes:
        return page([1]) if "=2" in target else b"HTTP/1.1 204 No Content\r\n" + link("?p=2").encode() + b"\r\n\r\n"

    with PageServer(respond) as server:
        outcome = xapi("request", "/", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err) == (0, "1\n", "")


def test_a_304_leaves_the_file_unchanged(xapi: Xapi, out: Path) -> None:
    out.write_text("old")
    with PageServer(lambda target: b"HTTP/1.1 304 Not Modified\r\n\r\n") as server:
        options = ["If-None-Match:x", "--paginate", "--slurp", "-o", str(out)]
        outcome = xapi("request", "/", *options, env=bearing(server))

    assert (outcome.code, outcome.out, outcome.err, out.read_text()) == (0, "", "", "old")


def test_meta_describes_the_last_page_and_counts_all(xapi: Xapi, tmp_path: Path) -> None:
    with PageServer(numbered(3)) as server:
        outcome = xapi("request", "/items", "--paginate", "--meta", str(tmp_path / "meta"), env=bearing(server))

    facts = json.loads((tmp_path / "meta").read_text())
    assert (facts["status"], facts["attempts"], facts["bytes"]) == (200, 3, len(outcome.out))
    assert "link" not in facts["headers"]


def test_control_characters_are_escaped_on_a_terminal_only(xapi: Xapi) -> None:
    body = '["\u009b31m \u202e"]'.encode()
    with PageServer(lambda target: page(body)) as server:
        piped = xapi("request", "/", "--paginate", env=bearing(server))
        with xapi.on_terminal("request", "/", "--paginate", env=bearing(server)) as terminal:
            assert terminal.wait() == 0

    assert piped.out == '"\u009b31m \u202e"\n'
    assert re.sub("\r[^\n]*\x1b\\[K", "", terminal.text) == '"\\u009b31m \\u202e"\r\n'


@pytest.mark.parametrize(
    "arguments, problem",
    [
        (["--slurp"], "--slurp requires --paginate; add --paginate"),
        (["--items", "a"], "--items requires --paginate; add --paginate"),
        (["--next", "a"], "--next requires --paginate; add --paginate"),
        (["--max-pages", "1"], "--max-pages requires --paginate; add --paginate"),
        (["--paginate", "--items", ""], "--items is empty; write the name of a field"),
        (["--paginate", "-i"], "--paginate cannot be combined with --include; omit --include"),
        (["--paginate", "--no-check-status"], "--paginate cannot be combined with --no-check-status; omit"),
        (["--paginate", "--continue", "-o", "x"], "--paginate cannot be combined with --continue; omit --continue"),
        (["--paginate", "a=b"], "--paginate is supported only for a GET request without a body; omit --paginate"),
        (["--paginate", "-d", "x"], "--paginate is supported only for a GET request without a body; omit --paginate"),
    ],
)
def test_invalid_combinations_exit_with_2(xapi: Xapi, arguments: list[str], problem: str) -> None:
    with PageServer(numbered(1)) as server:
        outcome = xapi("request", "/", *arguments, env=bearing(server))

    assert (outcome.code, outcome.out, server.targets) == (2, "", [])
    assert outcome.err.startswith(f"xapi: error: {problem}")


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT"])
def test_other_methods_exit_with_2(xapi: Xapi, sandbox: Sandbox, method: str) -> None:
    outcome = xapi("request", method, "/x-api/projects", "--paginate", env=bearing(sandbox))

    assert (outcome.code, outcome.out) == (2, "")


def test_curl_requests_the_first_page_only(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("request", "/x-api/projects", "--paginate", "--curl", env=bearing(sandbox))

    assert outcome.code == 0
    assert outcome.err == "xapi: omitted from the command, because curl has no equivalent: --paginate\n"
