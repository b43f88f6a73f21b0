"""The Link header, in all forms of RFC 8288; pages that were requested before are found, in constant memory."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.clients import SOON
from tests.support.servers import Stopwatch
from xapi_cli.request.pages.paginate import _MAX_REMEMBERED, MalformedLink, Visited, links, next_target


@pytest.mark.parametrize(
    "value, target",
    [
        ("<a>; rel=next", "a"),
        ("<a>; rel='next'", "a"),
        ("<a>; rel=next>", "a"),
        ("</link?a=1;rel=next>; rel=self", None),
        ("</x?a=1,rel=next>; rel=self", None),
        ('<a>; rel="next"', "a"),
        ('<a>;rel="prev  next";title="x"', "a"),
        ("<a>; REL=NeXt", "a"),
        ('<a> ; rel = "next"', "a"),
        ('<a>; title="x, <b>; rel=next", <c>; rel=next', "c"),
        (r'<a>; title="a \"quote\"; rel=next"; rel=prev, <b>; rel=next', "b"),
        (r'<a>; rel="n\ext"', "a"),
        ('<a>; rel=prev, <b>; rel="next", <c>; rel=last', "b"),
        ("<a>; rel=next, <b>; rel=next", "a"),
        (',, <a>; rel="next" ,', "a"),
        ("<a,b;c?d=<e>; rel=next", "a,b;c?d=<e"),
        ("< a >; rel=next", "a"),
        ("<>; rel=next", ""),
        ("<a>; x; y=; rel=next; z", "a"),
        ('<a>; rel="next', "a"),
        ("<a>; title*=UTF-8''n%C3%A4chste; rel=next", "a"),
        ('<a>; rel=next; anchor="#other", <b>; rel=next', "b"),
        ('<a>; rel=next; anchor="/other", <b>; rel=next', "b"),
        ('<a>; rel=next; anchor="//[", <b>; rel=next', "b"),
        ('<a>; rel=next; anchor="", <b>; rel=next', "a"),
        ('<a>; rel=next; anchor="?page=1", <b>; rel=next', "a"),
        ('<a>; rel=next; anchor="https://api.example/items?page=1", <b>; rel=next', "a"),
        ("<a>; rev=next", None),
        ("<a>; rel=prev; rel=next", None),  # only the first one counts
        ("<a>; rel=nextpage", None),
        ("<a>", None),
        ("a; rel=prev", None),
        ("<a; rel=prev", None),
        ("a; rel=nextpage", None),
        ("a; rel=next-page", None),
        ("a; rev=next", None),
        ("broken, <a?rel=next>; rel=first", None),
        ("<a?x=1;y=2&rel=next>; rel=first", None),
        ("", None),
    ],
)
def test_the_target_of_the_first_next_link_is_found(value: str, target: str | None) -> None:
    assert next_target([value], "https://api.example/items?page=1") == target


@pytest.mark.parametrize(
    "value",
    [
        "a; rel=next",
        "a; rel='next'",
        '<a>; rel="last"; <b>; rel="next"',
        "<a; rel=next",
        '</i?p=2; rel="next"',
        '/i?p=2; rel="next"',
        '/i?p=2; REL = "prev NEXT"',
        '<a> rel="next"',
        '</i?p=2; rel="next", </i?p=9>; rel="last"',
        '<a>; rel=prev, b; rel="next"',
        "<a>; rel=prev b; rel=next",
    ],
)
def test_a_relation_next_that_is_not_in_a_link_is_malformed(value: str) -> None:
    with pytest.raises(MalformedLink):
        next_target([value], "https://api.example/")

    assert next_target([value, "<b>; rel=next"], "https://api.example/") == "b"


@pytest.mark.parametrize("text", ["rel=" + " " * 99_000, 'rel="' + "next-" * 20_000, " rel= a" * 16_000])
def test_a_long_malformed_header_is_searched_in_linear_time(text: str) -> None:
    with Stopwatch() as watch:
        assert next_target([text], "https://api.example/") is None
    assert watch.seconds < SOON


def test_all_headers_are_searched() -> None:
    assert next_target(["<a>; rel=prev", "broken", "<b>; rel=next"], "https://api.example/") == "b"


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_characters=">", codec="ascii"), max_size=8).map(
                lambda text: text.strip(" \t")
            ),
            st.text(st.characters(exclude_categories=["Cc"], codec="latin-1"), max_size=8),
        ),
        min_size=1,
    )
)
@pytest.mark.slow
def test_links_with_any_quoted_text_are_read_back(given_links: list[tuple[str, str]]) -> None:
    def quoted(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"')

    value = ", ".join(f'<{target}>; title="{quoted(title)}"; rel=x' for target, title in given_links)

    assert [(link.target, link.parameters["title"]) for link in links(value)] == given_links


@given(st.text('<>;,="\\ ab', max_size=30))
def test_any_text_is_parsed(value: str) -> None:
    assert all(isinstance(link.target, str) for link in links(value))
    with suppress(MalformedLink):
        next_target([value], "https://api.example/")


@pytest.mark.parametrize("before, length", [(0, 1), (3, 5), (_MAX_REMEMBERED - 1, 7), (50_000, 30_000)])
def test_any_loop_is_found(before: int, length: int) -> None:
    visited = Visited()
    urls = (f"/{number if number < before else before + (number - before) % length}" for number in range(10**6))

    found = next(number for number, url in enumerate(urls) if visited.contains(url))

    assert found >= before + length
    assert found == before + length or found <= 3 * (before + length)


def test_pages_without_a_loop_are_accepted() -> None:
    visited = Visited()

    assert not any(visited.contains(f"/{number}") for number in range(3 * _MAX_REMEMBERED))
