"""Which responses can be resumed, and which continue a part."""

from collections.abc import Sequence

import pytest

from xapi_cli.features.downloads import ranges
from xapi_cli.features.downloads.ranges import Version
from xapi_cli.http.messages import Headers

DATE, BEFORE = "Date: Sun, 22 Nov 2026 12:00:00 GMT", "Last-Modified: Sun, 22 Nov 2026 11:59:59 GMT"
CHANGED = "the file on the server has changed"
V1 = 'ETag: "v1"'


def fields(lines: Sequence[str]) -> Headers:
    pairs = (line.partition(": ") for line in lines)
    return Headers([(name.encode(), value.encode()) for name, _, value in pairs])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([V1, "Content-Length: 7"], Version('"v1"', 7)),
        ([V1], Version('"v1"', None)),
        ([DATE, BEFORE], Version("Sun, 22 Nov 2026 11:59:59 GMT", None)),
        ([BEFORE], None),
        ([DATE, "Last-Modified: Sun, 22 Nov 2026 12:00:00 GMT"], None),  # it may change within the second
        ([DATE, "Last-Modified: yesterday"], None),
        (['ETag: W/"v1"'], None),
        (['ETag: W/"v1"', DATE, BEFORE], None),
        (['ETag: "' + "x" * 2000 + '"'], None),
        (['ETag: "é"'], None),
        ([V1, "Accept-Ranges: none"], None),
        ([V1, "Content-Encoding: gzip"], None),
        ([], None),
    ],
)
def test_the_version_that_a_response_has(lines: list[str], expected: Version | None) -> None:
    assert ranges.version_of(fields(lines)) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([V1, "Content-Range: bytes 4-9/10", "Content-Length: 6"], None),
        ([V1, "Content-Range: bytes 4-9/10"], None),
        ([V1, "Content-Range: bytes 3-9/10"], "the server sent a different range than the one requested"),
        ([V1, "Content-Range: bytes 4-8/10"], "the server sent a different range than the one requested"),
        (
            [V1, "Content-Range: bytes 4-9/10", "Content-Length: 5"],
            "the server sent a different range than the one requested",
        ),
        ([V1, "Content-Range: bytes 4-10/11"], CHANGED),
        ([V1, "Content-Range: bytes 4-9/*"], "the server sent a range without a valid Content-Range"),
        ([V1, "Content-Range: items 4-9/10"], "the server sent a range without a valid Content-Range"),
        ([V1], "the server sent a range without a valid Content-Range"),
        (["Content-Range: bytes 4-9/10"], CHANGED),
        (['ETag: "v2"', "Content-Range: bytes 4-9/10"], CHANGED),
        (['ETag: W/"v1"', "Content-Range: bytes 4-9/10"], CHANGED),
        (
            [V1, "Content-Range: bytes 4-9/10", "Content-Encoding: gzip"],
            "the server sent a range with a Content-Encoding",
        ),
    ],
)
def test_why_a_range_does_not_continue_a_part(lines: list[str], expected: str | None) -> None:
    assert ranges.problem(Version('"v1"', 10), 4, fields(lines)) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([V1, "Content-Length: 10"], "the server sent the whole file, because it does not support ranges"),
        ([V1], "the server sent the whole file, because it does not support ranges"),
        ([], "the server sent the whole file, because it does not support ranges"),
        (['ETag: "v2"'], CHANGED),
        ([V1, "Content-Length: 11"], CHANGED),
    ],
)
def test_why_a_server_sends_the_whole_file(lines: list[str], expected: str) -> None:
    assert ranges.why_whole(Version('"v1"', 10), fields(lines)) == expected


def test_a_part_with_a_date_continues_unless_another_date_is_sent() -> None:
    version, span = Version("Sun, 22 Nov 2026 11:59:59 GMT", 10), "Content-Range: bytes 4-9/10"

    assert ranges.problem(version, 4, fields([span])) is None
    assert ranges.problem(version, 4, fields([span, "Last-Modified: Sun, 22 Nov 2026 11:59:58 GMT"])) == CHANGED
