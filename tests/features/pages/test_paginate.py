"""`xapi request --paginate`: which pages are requested, what is printed, and how failures end it."""

import gzip
import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.commands.api import TOKEN, bearing, response
from tests.commands.page_server import PageServer, Respond, lines, link, numbered, page
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, forever, hang, request, send
from tests.support.threads import Gate
from xapi_cli.features.pages.paginate import next_target


def paginate(xapi: Xapi, server: Server, *options: str, path: str = "/items") -> Outcome:
    return xapi("request", path, "--paginate", *options, env=bearing(server))


# what is printed


def test_all_pages_are_requested_on_one_connection_and_each_item_is_a_line(xapi: Xapi, tmp_path: Path) -> None:
    with PageServer(numbered(3)) as server:
        outcome = paginate(xapi, server, "X-Mine:yes", "--meta", str(tmp_path / "meta"))

    assert outcome == Outcome(0, lines(1, 2, 3, 4, 5, 6), "")
    assert server.targets == ["/items", "/items?page=2", "/items?page=3"]
    assert [received.count(b"X-Mine: yes\r\n") for received in server.received] == [3]
    facts = json.loads((tmp_path / "meta").read_text())
    assert (facts["status"], facts["attempts"], facts["bytes"]) == (200, 3, len(outcome.out))


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (
            '[ 1.10, 123456789012345678901234567890,\n {"b" : "é \\u00e9", "a": [ 1E2 ]}, null ]'.encode(),
            [],
            '1.10\n123456789012345678901234567890\n{"b":"é \\u00e9","a":[1E2]}\nnull\n',
        ),
        (b'{ "id": 1 }', ["Link: </docs>; rel=help"], '{"id":1}\n'),
        (gzip.compress(b"[1, 2]", mtime=0), ["Content-Encoding: gzip"], "1\n2\n"),
        ('["€"]'.encode("cp1252"), ["Content-Type: application/json;charset=windows-1252"], '"€"\n'),
        (b"\xef\xbb\xbf[1]", [], "1\n"),
        (b"[]", [], ""),
    ],
)
def test_items_are_compact_and_otherwise_as_sent(xapi: Xapi, body: bytes, headers: list[str], expected: str) -> None:
    with PageServer(lambda target: page(body, *headers)) as server:
        assert paginate(xapi, server) == Outcome(0, expected, "")


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("data.items", {"data": {"items": [1, 2]}}, {"data": {"items": [3]}}),
        ("data.items", {"data.items": [1, 2]}, {"data.items": [3]}),
        ("items", {"items": [1, 2]}, [3]),
        ("items", {"items": [1, 2, 3]}, {}),
        ("items", {"items": [1, 2, 3]}, {"items": None}),
    ],
)
def test_items_names_the_array_of_an_object(xapi: Xapi, name: str, first: Any, second: Any) -> None:
    with PageServer(lambda target: page(second) if "=2" in target else page(first, link("?p=2"))) as server:
        assert paginate(xapi, server, "--items", name) == Outcome(0, "1\n2\n3\n", "")


def test_a_page_without_content_has_no_items(xapi: Xapi) -> None:
    empty = b"HTTP/1.1 204 No Content\r\n" + link("?p=2").encode() + b"\r\n\r\n"
    with PageServer(lambda target: page([1]) if "=2" in target else empty) as server:
        assert paginate(xapi, server) == Outcome(0, "1\n", "")
        assert paginate(xapi, server, "--slurp") == Outcome(0, "[1]\n", "")
        assert paginate(xapi, server, "--slurp", "--max-pages", "1").out == "[]\n"


# which pages are requested


@pytest.mark.parametrize(
    ("header", "target"),
    [
        ("<{url}/v1/b?c=1>; rel=next", "/v1/b?c=1"),
        ('<b?x=a%2Fb>; rel="next"', "/v1/b?x=a%2Fb"),
        ('<?page=2#top>; rel="prev next"', "/v1/items?page=2"),
        ("</x>; rel=prev\r\nLink: <//{name}/y>; rel=next", "/y"),
    ],
)
def test_the_link_is_resolved_against_the_page(xapi: Xapi, header: str, target: str) -> None:
    def respond(requested: str) -> bytes:
        if requested == "/old":
            return page(b"", "Location: /v1/items", status="302 Found")
        filled = header.format(url=server.url, name=server.name)
        return page([1], f"Link: {filled}") if requested == "/v1/items" else page([2])

    with PageServer(respond) as server:
        assert paginate(xapi, server, path="/old") == Outcome(0, "1\n2\n", "")
    assert server.targets[2:] == [target]


@pytest.mark.parametrize(
    ("name", "value", "target"),
    [
        ("next", "?page=2", "/items?page=2"),
        ("@odata.nextLink", "{url}/items?$skip=2", "/items?$skip=2"),
        ("next", "", None),
        ("next", None, None),
        ("next", False, None),
        ("next", 2, "/2"),
        ("absent", "/items?page=2", None),
    ],
)
def test_next_names_the_field_with_the_url(xapi: Xapi, name: str, value: Any, target: str | None) -> None:
    def respond(requested: str) -> bytes:
        filled = value.format(url=server.url) if isinstance(value, str) else value
        first = {"meta": {"next": filled}, "next": filled, "@odata.nextLink": filled}
        return page(first if requested == "/items" else {}, link("/not-used"))

    with PageServer(respond) as server:
        outcome = paginate(xapi, server, "--next", name)

    assert (outcome.code, "check --next" in outcome.err) == (0, name == "absent")
    assert server.targets[1:] == ([] if target is None else [target])


def test_an_only_page_without_a_link_header_is_noted(xapi: Xapi) -> None:
    with PageServer(lambda target: page({"data": [1]})) as server:
        outcome = paginate(xapi, server, "--items", "data")

    assert (outcome.code, outcome.out) == (0, "1\n")
    assert "only one page was requested, because the response has no Link header; " in outcome.err


def test_max_pages_ends_early_and_says_so_unless_it_was_the_last_page(xapi: Xapi) -> None:
    with PageServer(numbered(3)) as server:
        early = paginate(xapi, server, "--max-pages", "2")
        assert paginate(xapi, server, "--max-pages", "3").err == ""

    assert early == Outcome(0, lines(1, 2, 3, 4), "xapi: stopped after --max-pages 2; there are more pages\n")


TARGETS = [
    ("<a>; rel=next", "a"),
    ("<a>; rel='next'", "a"),
    ('<a>;rel="prev  next";title="x"', "a"),
    ('<a> ; REL = "NeXt"', "a"),
    ('<a>; title="x, <b>; rel=next", <c>; rel=next', "c"),
    (r'<a>; title="a \"quote\"; rel=next"; rel=prev, <b>; rel=next', "b"),
    ('<a>; rel=prev, <b>; rel="next", <c>; rel=last', "b"),
    (',, < a >; rel="next" ,', "a"),
    ("<a,b;c?d=e>; rel=next", "a,b;c?d=e"),
    ("<>; rel=next", ""),
    ("<a>; x; y=; rel=next; z", "a"),
    ("</x?a=1,rel=next>; rel=self", None),
    ("<a>; rev=next", None),
    ("<a>; rel=prev; rel=next", None),  # only the first one counts
    ("<a>; rel=nextpage", None),
    ("<a; rel=next", None),
    ("", None),
]


@pytest.mark.parametrize(("value", "target"), TARGETS)
def test_the_target_of_the_first_next_link_is_found(value: str, target: str | None) -> None:
    assert next_target(value) == target


@pytest.mark.parametrize("text", ["<a>" + " " * 99_000, "<" * 99_000, "<a>;rel=prev," * 8_000, '<a>; x="' * 9_000])
def test_a_long_link_header_is_searched_in_linear_time(text: str) -> None:
    assert next_target(text) is None  # in quadratic time, it would take minutes


@pytest.mark.parametrize("form", ["Link", "field", "user info", "redirect"])
def test_the_next_page_on_another_origin_is_refused(xapi: Xapi, form: str) -> None:
    def respond(target: str) -> bytes:
        if form == "redirect" and target != "/items":
            return response("302 Found", b"", f"Location: {other.url}/page")
        url = f"http://{server.name}@{other.name}/b" if form == "user info" else f"{other.url}/b"
        return page({"next": url}, link("/2" if form == "redirect" else url))

    options = ["--next", "next"] if form == "field" else []
    with PageServer(lambda target: page([1], link(f"{server.url}/3"))) as other, PageServer(respond) as server:
        outcome = paginate(xapi, server, *options)

    assert outcome.code == 6
    assert other.tokens == []
    if form == "redirect":  # its page is an item, but its link is not followed
        assert "was not followed, because it came from another origin after a redirect" in outcome.err
        assert (other.targets, server.targets) == (["/page"], ["/items", "/2"])
    else:
        assert f"the next page is on another origin: {other.url}/b; the token is not sent there" in outcome.err
        assert other.received == []


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("<ftp://example.com/b>; rel=next", "the next page has a URL that has the scheme 'ftp', not http or https"),
        ("</items>; rel=next", "the pages form a loop: {url}/items was already requested; use --max-pages"),
    ],
)
def test_a_link_that_is_not_usable_is_an_error(xapi: Xapi, header: str, problem: str) -> None:
    with PageServer(lambda target: page([1], f"Link: {header}")) as server:
        outcome = paginate(xapi, server)

    assert (outcome.code, outcome.out) == (6, "1\n")
    assert problem.format(url=server.url) in outcome.err


# failures


def failing(third: bytes) -> Respond:
    """Return a function that serves two pages, and *third* for the third one."""
    pages = numbered(3)
    return lambda target: third if target.endswith("=3") else pages(target)


@pytest.mark.parametrize(
    ("third", "code", "problem"),
    [
        (page({"no": 1}, status="500 No"), 5, "{url}/items responded with 500 No"),
        (page({"no": 1}, status="401 No"), 10, "responded with 401 No"),
        (b"", 11, "closed the connection without a response"),
        (page(b'[1, "\xff"]'), 6, "--paginate cannot read the body: it is not valid UTF-8"),
        (page(b'[{"id": 5}, '), 6, "the page is not valid JSON: expecting value at character 13"),
        (page(b"<p>", "Content-Type: text/html"), 6, "the response is not JSON (Content-Type text/html); check PATH"),
        (response("200 OK", b"[1", "Content-Length: 9", "Connection: close"), 11, "was truncated after 2 bytes"),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", 6, "the page is not modified (304)"),
    ],
)
def test_a_page_that_fails_is_one_error_after_the_items_before(
    xapi: Xapi, third: bytes, code: int, problem: str
) -> None:
    with PageServer(failing(third)) as server:
        outcome = paginate(xapi, server)

    assert (outcome.code, outcome.out) == (code, lines(1, 2, 3, 4))
    assert problem.format(url=server.url) in outcome.err.splitlines()[-1]
    assert TOKEN not in outcome.err


@pytest.mark.parametrize(
    ("value", "options", "problem"),
    [
        ({"data": [1]}, ["--items", "i"], "the page has no array in the field i; check --items"),
        ({"i": {"a": 1}}, ["--items", "i"], "the page has no array in the field i; check --items"),
        ("text", ["--items", "i"], "the page is not an object; omit --items"),
        ({"next": True}, ["--next", "next"], "the field next of the page is neither a string nor a number"),
    ],
)
def test_a_page_without_the_field_is_an_error(xapi: Xapi, value: Any, options: list[str], problem: str) -> None:
    with PageServer(lambda target: page(value)) as server:
        outcome = paginate(xapi, server, *options)

    assert outcome.code == 6
    assert outcome.err.startswith(f"xapi: error: {problem}")


@pytest.mark.parametrize("options", [[], ["--slurp"]])
def test_the_output_file_is_replaced_only_if_all_pages_arrive(xapi: Xapi, out: Path, options: list[str]) -> None:
    out.write_text("old")
    with PageServer(failing(page(b"", status="500 No"))) as server:
        outcome = paginate(xapi, server, *options, "-o", str(out))
    assert (outcome.code, outcome.out, out.read_text()) == (5, "", "old")

    args = ("request", "/items", "--paginate", "-o", str(out))
    with PageServer(numbered(1)) as server, xapi.on_terminal(*args, env=bearing(server)) as terminal:
        assert terminal.wait() == 0
    assert out.read_text() == lines(1, 2)


@pytest.mark.parametrize(
    ("option", "out", "err"), [("", "", '{"no": 1}'), ("stdout", '{"no": 1}', ""), ("none", "", "")]
)
@pytest.mark.parametrize("status", ["302 No", "500 No"])
def test_an_error_body_goes_to_stderr_by_default(xapi: Xapi, status: str, option: str, out: str, err: str) -> None:
    with PageServer(failing(page({"no": 1}, status=status))) as server:
        outcome = paginate(xapi, server, *(["--error-body", option] if option else []))

    assert (outcome.code, outcome.out) == (int(status[0]), lines(1, 2, 3, 4) + out)
    assert outcome.err.startswith(err + "\n" if err else "xapi: error: ")


def test_each_page_has_its_own_retries_also_for_a_truncated_body(xapi: Xapi) -> None:
    busy = page(b"", "Retry-After: 0", status="429 Slow")
    broken = response("200 OK", b"[1", "Content-Length: 9", "Connection: close")
    pages = numbered(3)

    def respond(target: str) -> bytes:
        first = server.targets.count(target) == 1
        return (broken if "=2" in target else busy) if first else pages(target)

    with PageServer(respond) as server:
        outcome = paginate(xapi, server, "--retry", "1")

    assert (outcome.code, outcome.out) == (0, lines(1, 2, 3, 4, 5, 6))
    assert outcome.err.count("(1 of 1)\n") == 3


def test_after_a_401_in_the_middle_one_login_and_the_page_again(xapi: Xapi) -> None:
    pages, logins, left = numbered(4), [0], [0]

    def respond(target: str) -> bytes:
        if target == "/x-api/token":
            logins[0], left[0] = logins[0] + 1, 2
            return page({"access_token": f"canary-{logins[0]}", "token_type": "bearer"})
        left[0] -= 1
        return pages(target) if left[0] >= 0 else page({}, status="401 No")

    with PageServer(respond) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me@example.com", "XAPI_PASSWORD": "canary-password"}
        outcome = xapi("request", "/items", "--paginate", env=env)

    assert (outcome.code, outcome.out, logins) == (0, lines(*range(1, 9)), [2])
    assert "canary" not in outcome.err


def test_an_endless_page_is_an_error(xapi: Xapi) -> None:
    head, block = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n[\r\n", b" " * 0x10000
    with Server([request(), send(head), forever(b"10000\r\n" + block + b"\r\n")]) as server:
        outcome = paginate(xapi, server)

    assert (outcome.code, outcome.out) == (6, "")
    problem = "the page is larger than 64 MiB; request smaller pages, or omit --paginate"
    assert outcome.err == f"xapi: error: {problem}\n"


# as it arrives, and how it ends


@pytest.mark.parametrize(("options", "printed_lines"), [((), lines(1, 2, 3, 4)), (("--jq", ".id"), "1\n2\n3\n4\n")])
def test_the_items_of_a_page_are_printed_before_the_next_page_is_requested(
    xapi: Xapi, options: tuple[str, ...], printed_lines: str
) -> None:
    printed, pages = threading.Event(), numbered(2)

    def respond(target: str) -> bytes:
        assert target == "/items" or printed.wait(60), "the second page was requested before the first was read"
        return pages(target)

    with PageServer(respond) as server:
        process = xapi.start("request", "/items", "--paginate", *options, env=bearing(server))
        assert process.stdout is not None
        first = process.stdout.readline() + process.stdout.readline()
        printed.set()
        rest, err = process.communicate()

    assert (process.returncode, (first + rest).decode(), err) == (0, printed_lines, b"")


@pytest.mark.parametrize("options", [[], ["--slurp"]])
def test_endless_pages_end_when_stdout_is_closed(xapi: Xapi, options: list[str]) -> None:
    with PageServer(numbered(10**9)) as server:
        process = xapi.start("request", "/items", "--paginate", *options, env=bearing(server))
        assert process.stdout is not None
        process.stdout.read(9)
        process.stdout.close()
        assert process.wait() == 141

    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_a_signal_ends_the_pages(xapi: Xapi) -> None:
    is_requested = Gate()
    script = [request(), send(numbered(9)("/items")), request(), is_requested.reached, hang()]
    with Server(script) as server:
        process = xapi.start("request", "/items", "--paginate", env=bearing(server))
        is_requested.wait()
        process.send_signal(signal.SIGINT)
        assert process.communicate() == (lines(1, 2).encode(), b"")
        assert process.returncode == 128 + signal.SIGINT


# usage


@pytest.mark.parametrize(
    "arguments",
    [
        ["--slurp"],
        ["--max-pages", "1"],
        ["--paginate", "--items", ""],
        ["--paginate", "-i"],
        ["--paginate", "--no-check-status"],
        ["--paginate", "a=b"],
    ],
)
def test_what_cannot_be_combined_is_a_usage_error(xapi: Xapi, arguments: list[str]) -> None:
    with PageServer(numbered(1)) as server:
        outcome = xapi("request", "/", *arguments, env=bearing(server))

    assert (outcome.code, outcome.out, server.targets) == (2, "", [])
