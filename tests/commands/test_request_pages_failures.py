"""`xapi request --paginate` with failures, hostile servers and signals."""

import json
import re
from pathlib import Path

import pytest

from tests.commands.api import TOKEN, bearing, response
from tests.commands.page_server import PageServer, Respond, lines, link, numbered, page
from tests.support.program import Xapi
from tests.support.servers import Server, forever, request, send

LOGIN = {"XAPI_USERNAME": "me", "XAPI_PASSWORD": "canary-password"}


def _failing(third: bytes, last: int = 3) -> Respond:
    """Return a function that serves two pages, and *third* for the third one."""
    pages = numbered(last)
    return lambda target: third if target.endswith("=3") else pages(target)


@pytest.mark.parametrize(
    "third, code, problem",
    [
        (page({"no": 1}, status="500 No"), 5, "{url}/items responded with 500 No"),
        (page({"no": 1}, status="404 No"), 4, "{url}/items responded with 404 No"),
        (b"", 11, "closed the connection without a response"),
        (response("302 Found", b"moved"), 3, "{url}/items responded with 302 Found"),
        (page(b'[1, "\xff"]'), 11, "the page is not valid JSON: it is not valid UTF-8"),
        (page(b"<html>"), 11, "the page is not valid JSON: neither a number nor true, false or null at character 1"),
        (page(b'[{"id": 5}, '), 11, "the page is not valid JSON: it is truncated after"),
        (page(b""), 11, "the page is not valid JSON: it is empty"),
        (page(b"[" * 200_000), 11, "the page is not valid JSON: more than 100,000 levels"),
        (
            response("200 OK", b"[1", "Content-Length: 9", "Connection: close"),
            11,
            "was truncated after 2 bytes",
        ),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", 11, "page 3 was not sent, because it is not modified (304)"),
    ],
    ids=["500", "404", "closed", "302", "UTF-8", "HTML", "incomplete", "empty", "deep", "truncated", "304"],
)
def test_a_page_that_fails_keeps_the_items_and_names_the_url_to_continue_with(
    xapi: Xapi, third: bytes, code: int, problem: str
) -> None:
    with PageServer(_failing(third)) as server:
        outcome = xapi("request", "/items", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out) == (code, lines(1, 2, 3, 4))
    message = outcome.err.splitlines()[-1]
    assert problem.format(url=server.url) in message
    assert message.endswith(f"; to continue, request '{server.url}/items?page=3'")


@pytest.mark.parametrize(
    ("content_type", "problem"),
    [
        (
            "text/html; charset=utf-8",
            "the response is not JSON (Content-Type text/html); check PATH, or omit --paginate",
        ),
        ("application/problem+json", "the page is not valid JSON: neither a number nor true, false or null"),
        ("Application/JSON;charset=utf-8", "the page is not valid JSON: neither a number nor true, false or null"),
    ],
)
def test_a_page_of_another_media_type_is_named(xapi: Xapi, content_type: str, problem: str) -> None:
    received = response("200 OK", b"<html>", f"Content-Type: {content_type}")
    with PageServer(lambda target: received) as server:
        outcome = xapi("request", "/items", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out) == (11, "")
    assert outcome.err.startswith(f"xapi: error: {problem}")


def test_the_items_continue_at_the_url_that_the_error_names(xapi: Xapi) -> None:
    failures = [page(b"", status="500 No")]
    pages = numbered(4)
    with PageServer(lambda target: failures.pop() if failures and "=3" in target else pages(target)) as server:
        first = xapi("request", "/items", "--paginate", env=bearing(server))
        found = re.search(r"to continue, request '(\S+)'\n", first.err)
        assert found
        second = xapi("request", found[1], "--paginate", env=bearing(server))

    assert (first.code, second.code) == (5, 0)
    assert first.out + second.out == lines(*range(1, 9))


def test_the_url_to_continue_with_is_stated_once(xapi: Xapi, out: Path) -> None:
    with PageServer(_failing(page(b"", status="500 Internal Server Error"))) as server:
        printed = xapi("request", "/items", "--paginate", env=bearing(server))
        saved = xapi("request", "/items", "--paginate", "-o", str(out), env=bearing(server))

    start = f"xapi: error: GET {server.url}/items"
    assert printed.err == (
        f"{start} responded with 500 Internal Server Error; try again later; "
        f"to continue, request '{server.url}/items?page=3'\n"
    )
    assert saved.err.startswith(f"{start}?page=3 responded with 500 Internal Server Error; try again later")


@pytest.mark.parametrize(
    ("value", "headers", "options", "is_noted"),
    [
        ({"data": [1]}, (), [], True),
        ({"data": [1]}, (), ["--items", "data"], True),
        ([1], (), ["--items", "data"], True),
        ([1], (), [], False),
        ({"data": [1]}, ('Link: </docs>; rel="help"',), [], False),
    ],
)
def test_an_only_page_without_a_link_header_is_noted(
    xapi: Xapi, value: object, headers: tuple[str, ...], options: list[str], is_noted: bool
) -> None:
    with PageServer(lambda target: page(value, *headers)) as server:
        outcome = xapi("request", "/", "--paginate", *options, env=bearing(server))
        quiet = xapi("request", "/", "--paginate", "--quiet", *options, env=bearing(server))

    note = "only one page was requested, because the response has no Link header; "
    assert (outcome.code, quiet.out, quiet.err) == (0, outcome.out, "")
    assert (note in outcome.err) == is_noted


def test_the_first_page_has_no_url_to_continue_with(xapi: Xapi) -> None:
    with PageServer(lambda target: page({"no": 1}, status="404 No")) as server:
        outcome = xapi("request", "/items", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out) == (4, "")
    assert "to continue" not in outcome.err


@pytest.mark.parametrize(
    "option, out, err",
    [(None, "", '{"no": 1}'), ("stderr", "", '{"no": 1}'), ("stdout", '{"no": 1}', ""), ("none", "", "")],
)
def test_the_body_of_an_error_goes_to_stderr_by_default(xapi: Xapi, option: str | None, out: str, err: str) -> None:
    options = ["--error-body", option] if option else []
    with PageServer(_failing(page({"no": 1}, status="500 No"))) as server:
        outcome = xapi("request", "/items", "--paginate", *options, env=bearing(server))

    assert (outcome.code, outcome.out) == (5, lines(1, 2, 3, 4) + out)
    assert outcome.err.startswith(err + "\n" if err else "xapi: error: ")


@pytest.mark.parametrize("options", [[], ["--slurp"]])
def test_the_output_file_is_unchanged_unless_all_pages_arrive(xapi: Xapi, out: Path, options: list[str]) -> None:
    out.write_text("old")
    with PageServer(_failing(page(b"", status="500 No"))) as server:
        outcome = xapi("request", "/items", "--paginate", *options, "-o", str(out), env=bearing(server))

    assert (outcome.code, outcome.out, out.read_text()) == (5, "", "old")
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert "to continue" not in outcome.err  # nothing was written


def test_a_page_of_more_than_64_mib_exits_with_11(xapi: Xapi) -> None:
    block = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    endless = [request(), send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), forever(block)]
    with Server(endless) as server:
        outcome = xapi("request", "/", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out) == (11, "")
    assert outcome.err == ("xapi: error: the page is larger than 64 MiB; request smaller pages, or omit --paginate\n")


def test_deep_items_are_printed(xapi: Xapi) -> None:
    with PageServer(lambda target: page(b"[" * 90_000 + b"]" * 90_000)) as server:
        outcome = xapi("request", "/", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, "[" * 89_999 + "]" * 89_999 + "\n")


class _Api:
    """Pages behind tokens that become invalid after *lifetime* pages."""

    def __init__(self, lifetime: int) -> None:
        self.logins, self._lifetime, self._left = 0, lifetime, 0
        self.pages = numbered(4)

    def __call__(self, target: str) -> bytes:
        if target == "/x-api/token":
            self.logins, self._left = self.logins + 1, self._lifetime
            return page({"access_token": f"canary-{self.logins}", "token_type": "bearer"})
        if not self._left:
            return page({}, status="401 No")
        self._left -= 1
        return self.pages(target)


@pytest.mark.parametrize("lifetime, logins", [(4, 1), (2, 2), (1, 4)])
def test_after_a_401_in_the_middle_one_login_and_the_page_again(xapi: Xapi, lifetime: int, logins: int) -> None:
    api = _Api(lifetime)
    with PageServer(api) as server:
        env = {"XAPI_BASE_URL": server.url, **LOGIN}
        outcome = xapi("request", "/items", "--paginate", env=env)

    assert (outcome.code, outcome.out) == (0, lines(*range(1, 9)))
    assert api.logins == logins
    assert len(outcome.err.splitlines()) == logins
    assert "canary" not in outcome.err


def test_a_final_401_exits_with_10(xapi: Xapi) -> None:
    def respond(target: str) -> bytes:
        return page({"error": "invalid"}, status="401 No") if "=2" in target else numbered(3)(target)

    with PageServer(respond) as server:
        outcome = xapi("request", "/items", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out) == (10, lines(1, 2))
    assert f"; to continue, request '{server.url}/items?page=2'\n" in outcome.err
    assert TOKEN not in outcome.err


def test_each_page_has_its_own_retries(xapi: Xapi) -> None:
    busy = page(b"", "Retry-After: 0", status="429 Slow")
    pages = numbered(3)
    with PageServer(lambda target: busy if server.targets.count(target) == 1 else pages(target)) as server:
        outcome = xapi("request", "/items", "--paginate", "--retry", "1", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, lines(1, 2, 3, 4, 5, 6))
    assert len(server.targets) == 6
    assert outcome.err.count("(1 of 1)\n") == 3


def test_without_retries_a_429_ends_the_pages(xapi: Xapi) -> None:
    with PageServer(_failing(page(b"", "Retry-After: 0", status="429 Slow"))) as server:
        outcome = xapi("request", "/items", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out, len(server.targets)) == (4, lines(1, 2, 3, 4), 3)


def test_a_slurped_array_stays_open_after_a_failure(xapi: Xapi) -> None:
    with PageServer(_failing(page(b"", status="500 No"))) as server:
        outcome = xapi("request", "/items", "--paginate", "--slurp", env=bearing(server))

    assert outcome.code == 5
    assert "to continue" not in outcome.err  # the remaining pages would be a second array
    with pytest.raises(json.JSONDecodeError):
        json.loads(outcome.out)


def test_secrets_in_the_url_to_continue_with_are_redacted(xapi: Xapi) -> None:
    def respond(target: str) -> bytes:
        return page(b"", status="500 No") if "=2" in target else page([1], link("?access_token=canary&page=2"))

    with PageServer(respond) as server:
        outcome = xapi("request", "/items", "--paginate", env=bearing(server))

    assert outcome.err.endswith(
        f"to continue, request '{server.url}/items?access_token=***&page=2',"
        " where *** replaces secrets that are not shown\n"
    )


@pytest.mark.parametrize("cursor", ["pageToken=b2Zm%3D", "$skiptoken=b2Zm", "next_token=b2Zm", "token=b2Zm"])
def test_the_url_to_continue_with_contains_the_cursor_of_the_server(xapi: Xapi, cursor: str) -> None:
    def respond(target: str) -> bytes:
        failed = server.targets.count(target) == 1 and target != "/items"
        return (
            page(b"", status="500 No") if failed else page([1], *([link(f"?{cursor}")] if target == "/items" else []))
        )

    with PageServer(respond) as server:
        first = xapi("request", "/items", "--paginate", env=bearing(server))
        found = re.search(r"to continue, request '(\S+)'\n", first.err)
        assert found
        second = xapi("request", found[1], "--paginate", env=bearing(server))

    assert (first.code, second.code, second.out) == (5, 0, "1\n")
    assert server.targets[1] == server.targets[2]


def test_a_token_that_the_user_gave_is_redacted_in_the_url_to_continue_with(xapi: Xapi) -> None:
    def respond(target: str) -> bytes:
        return page([1], link("?token=canary&pageToken=b2Zm")) if "page" not in target else page(b"", status="500 No")

    with PageServer(respond) as server:
        outcome = xapi("request", "/items", "token==canary", "--paginate", env=bearing(server))
        stopped = xapi("request", "/items", "token==canary", "--paginate", "--max-pages", "1", env=bearing(server))

    url = f"{server.url}/items?token=***&pageToken=b2Zm"
    rest = f"to continue, request '{url}', where *** replaces secrets that are not shown\n"
    assert outcome.err.endswith(rest)
    assert stopped.err.endswith(rest)
    again = xapi("request", "/items?token=***&pageToken=b2Zm", "--paginate", env=bearing(server))
    assert again.code == 2
    assert again.err == (
        "xapi: error: PATH has a parameter with the value ***, which replaces a secret in messages; "
        "write the value, or %2A%2A%2A for three asterisks\n"
    )


def test_the_error_states_how_many_items_of_an_unfinished_page_were_printed(xapi: Xapi) -> None:
    """Only a part of the second page is read, so that --max-time expires while its items are written."""
    long = ["x" * 20_000] * 100

    with PageServer(lambda target: page(long) if "=2" in target else page([1], link("?page=2"))) as server:
        process = xapi.start("request", "/items", "--paginate", "--max-time", "2", env=bearing(server))
        assert process.stdout is not None
        start = process.stdout.read(200_000)
        process.wait(30)
        rest, err = process.communicate(timeout=30)

    found = re.search(
        rf"to continue, request '{server.url}/items\?page=2'; its first (\d+) items, or more, were printed\n$",
        err.decode(),
    )
    assert (process.returncode, bool(found)) == (12, True), err
    assert found
    assert int(found[1]) <= len((start + rest).splitlines()) - 1 <= int(found[1]) + 4


def test_meta_counts_the_items_and_the_body_of_an_error(xapi: Xapi, tmp_path: Path) -> None:
    options = ["--paginate", "--meta", str(tmp_path / "meta")]
    with PageServer(_failing(page(b"error", status="500 No"))) as server:
        outcome = xapi("request", "/items", *options, env=bearing(server))

    assert json.loads((tmp_path / "meta").read_text())["bytes"] == len(outcome.out) + len("error")


@pytest.mark.parametrize("options", [["--next", "nxet"]])
def test_a_field_that_no_page_has_is_noted(xapi: Xapi, options: list[str]) -> None:
    with PageServer(lambda target: page({"next": "/2"})) as server:
        outcome = xapi("request", "/", "--paginate", *options, env=bearing(server))

    assert (outcome.code, outcome.out) == (0, '{"next":"/2"}\n')
    assert outcome.err == f"xapi: only one page was requested, because it has no field nxet; check {options[0]}\n"


@pytest.mark.parametrize("value", [None, False, ""])
def test_a_field_that_ends_the_pages_is_not_noted(xapi: Xapi, value: object) -> None:
    with PageServer(lambda target: page({"next": value})) as server:
        outcome = xapi("request", "/", "--paginate", "--next", "next", env=bearing(server))

    assert (outcome.code, outcome.err) == (0, "")


def test_retries_after_all_kinds_of_failures_of_a_page_are_counted_together(xapi: Xapi) -> None:
    busy = page(b"", "Retry-After: 0", status="503 Busy")
    broken = response("200 OK", b"[1", "Content-Length: 9", "Connection: close")
    replies = iter([busy, broken, busy, page([{"id": 1}])])
    with PageServer(lambda target: next(replies)) as server:
        outcome = xapi("request", "/items", "--paginate", "--retry", "3", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, lines(1))
    assert [line.rpartition(" (")[2] for line in outcome.err.splitlines()] == ["1 of 3)", "2 of 3)", "3 of 3)"]


def test_the_last_failure_of_any_kind_is_the_error_after_all_retries_of_a_page(xapi: Xapi) -> None:
    busy = page(b"", "Retry-After: 0", status="503 Busy")
    broken = response("200 OK", b"[1", "Content-Length: 9", "Connection: close")
    replies = iter([broken, busy, broken])
    with PageServer(lambda target: next(replies)) as server:
        outcome = xapi("request", "/items", "--paginate", "--retry", "2", env=bearing(server))

    assert (outcome.code, outcome.out, len(server.targets)) == (11, "", 3)
    assert [line.rpartition(" (")[2] for line in outcome.err.splitlines()[:2]] == ["1 of 2)", "2 of 2)"]


def test_a_page_whose_body_breaks_off_is_requested_again(xapi: Xapi) -> None:
    broken = response("200 OK", b"[1", "Content-Length: 9", "Connection: close")
    pages = numbered(3)
    with PageServer(lambda target: broken if server.targets.count(target) == 1 else pages(target)) as server:
        outcome = xapi("request", "/items", "--paginate", "--retry", "1", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, lines(1, 2, 3, 4, 5, 6))
    assert outcome.err.count("retrying in") == 3
