"""The link to the next page in Link header fields, in all forms of RFC 8288."""

import pytest

from tests.http.clients import SOON
from tests.support.servers import Stopwatch
from xapi_cli.features.pages.links import MalformedLink, next_target

URL = "https://api.example/items?page=1"


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("<a>; rel=next", "a"),
        ("<a>; rel='next'", "a"),
        ('<a>;rel="prev  next";title="x"', "a"),
        ('<a> ; REL = "NeXt"', "a"),
        ('<a>; title="x, <b>; rel=next", <c>; rel=next', "c"),
        (r'<a>; title="a \"quote\"; rel=next"; rel=prev, <b>; rel=next', "b"),
        ('<a>; rel=prev, <b>; rel="next", <c>; rel=last', "b"),
        (',, < a >; rel="next" ,', "a"),
        ("<a,b;c?d=<e>; rel=next", "a,b;c?d=<e"),
        ("<>; rel=next", ""),
        ("<a>; x; y=; rel=next; z", "a"),
        ('<a>; rel="next', "a"),
        ('<a>; rel=next; anchor="/other", <b>; rel=next', "b"),
        ('<a>; rel=next; anchor="//[", <b>; rel=next', "b"),
        ('<a>; rel=next; anchor="?page=1", <b>; rel=next', "a"),
        ("</x?a=1,rel=next>; rel=self", None),
        ("<a>; rev=next", None),
        ("<a>; rel=prev; rel=next", None),  # only the first one counts
        ("<a>; rel=nextpage", None),
        ("<a>", None),
        ("a; rel=prev", None),
        ("a; rel=next-page", None),
        ("", None),
    ],
)
def test_the_target_of_the_first_next_link_is_found(value: str, target: str | None) -> None:
    assert next_target([value], URL) == target
    assert next_target(["<z>; rel=prev", value], URL) == target


@pytest.mark.parametrize(
    "value",
    [
        "a; rel=next",
        '<a>; rel="last"; <b>; rel="next"',
        "<a; rel=next",
        '/i?p=2; REL = "prev NEXT"',
        '<a> rel="next"',
        '<a>; rel=prev, b; rel="next"',
    ],
)
def test_a_relation_next_that_is_not_in_a_link_is_malformed(value: str) -> None:
    with pytest.raises(MalformedLink):
        next_target([value], URL)

    assert next_target([value, "<b>; rel=next"], URL) == "b"


@pytest.mark.parametrize(
    "text",
    ["rel=" + " " * 99_000, 'rel="' + "next-" * 20_000, " rel= a" * 16_000, "<" * 99_000, "<a>;rel=prev," * 8_000],
)
def test_a_long_header_is_searched_in_linear_time(text: str) -> None:
    with Stopwatch() as watch:
        assert next_target([text], URL) is None
    assert watch.seconds < SOON
