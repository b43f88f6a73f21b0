"""`xapi request --paginate`: links and cursors that are not followed."""

import pytest

from tests.commands.api import bearing, response
from tests.commands.page_server import PageServer, link, page
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, request, send


@pytest.mark.parametrize("form", ["Link", "field", "user info", "no scheme", "redirect"])
def test_the_next_page_on_another_origin_is_refused(xapi: Xapi, form: str) -> None:
    def respond(target: str) -> bytes:
        if form == "redirect" and target != "/items":
            return response("302 Found", b"", f"Location: {other.url}/page")
        own = server.url.partition("//")[2]
        url = {"user info": f"http://{own}@{other.name}/b", "no scheme": f"//{other.name}/b"}.get(
            form, f"{other.url}/b"
        )
        return page({"next": url}, link("/2" if form == "redirect" else url))

    options = ["--next", "next"] if form == "field" else []
    with PageServer(lambda target: page([1], link(f"{server.url}/3"))) as other, PageServer(respond) as server:
        outcome = xapi("request", "/items", "--paginate", *options, env=bearing(server))

    assert outcome.code == 11
    if form == "redirect":  # its page is an item, but its link is not followed
        assert outcome.err == (
            f"xapi: error: the link to the next page ({server.url}/3) was not followed, "
            "because it came from another origin after a redirect; check the base URL\n"
        )
        assert (other.targets, other.tokens, server.targets) == (["/page"], [], ["/items", "/2"])
    else:
        assert outcome.err == (
            f"xapi: error: the next page is on another origin: {other.url}/b; "
            "the token is not sent there; check the base URL\n"
        )
        assert other.received == []


@pytest.mark.parametrize(
    "target, problem",
    [
        ("ftp://example.com/b", "has the scheme 'ftp', not http or https"),
        ("http://", "has no host"),
        ("/a\\b", "has a backslash"),
        ("", "is empty"),
        ("/" + "x" * 66_000, "has more than 65,536 characters"),
    ],
)
def test_a_link_that_is_not_valid_exits_with_11(xapi: Xapi, target: str, problem: str) -> None:
    with PageServer(lambda requested: page([1], link(target))) as server:
        outcome = xapi("request", "/items", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out) == (11, "1\n")
    assert outcome.err.startswith(f"xapi: error: the next page has a URL that {problem}")


@pytest.mark.parametrize("value", ['</i?p=2; rel="next"', '/i?p=2; rel="next"'])
def test_a_link_without_its_brackets_exits_with_11(xapi: Xapi, value: str) -> None:
    with PageServer(lambda requested: page([1], f"Link: {value}")) as server:
        outcome = xapi("request", "/items", "--paginate", env=bearing(server))

    problem = "the link to the next page, in the Link header, is malformed; use -i instead of --paginate to see it"
    assert outcome == Outcome(11, "1\n", f"xapi: error: {problem}\n")


def test_a_malformed_link_with_another_relation_is_ignored(xapi: Xapi) -> None:
    with PageServer(lambda requested: page([1], "Link: /style.css; rel=preload")) as server:
        assert xapi("request", "/items", "--paginate", env=bearing(server)) == Outcome(0, "1\n", "")


@pytest.mark.parametrize("length", [1, 3])
def test_a_loop_exits_with_11(xapi: Xapi, length: int) -> None:
    with PageServer(lambda target: page([1], link(f"/items?{len(server.targets) % length}"))) as server:
        outcome = xapi("request", "/items?0", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out) == (11, "1\n" * length)
    problem = f"the pages form a loop: {server.url}/items?0 was already requested"
    assert outcome.err == f"xapi: error: {problem}; use --max-pages to stop before it\n"


@pytest.mark.parametrize("header", ["<" * 10_000_000, "<a>;rel=prev," * 800_000, '<a>; rel="' + "x " * 5_000_000])
def test_a_link_header_of_10_mb_exits_with_11(xapi: Xapi, header: str) -> None:
    with Server([request(), send(page([1], f"Link: {header}"))]) as server:
        outcome = xapi("request", "/", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out) == (11, "")
    assert "status line and headers of more than 100,000 bytes" in outcome.err


@pytest.mark.parametrize("target", ["/a/%2e%2e/b", "{url}//b", "/a%2f..%2fb", "/a/%0a"])
def test_a_link_that_xapi_would_not_accept_as_path_exits_with_11(xapi: Xapi, target: str) -> None:
    with PageServer(lambda requested: page([1], link(target.format(url=server.url)))) as server:
        outcome = xapi("request", "/items", "--paginate", env=bearing(server))

    assert (outcome.code, outcome.out, len(server.targets)) == (11, "1\n", 1)
    assert outcome.err.startswith("xapi: error: the next page has a URL that ")
