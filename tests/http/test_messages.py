"""Header fields as text."""

import pytest

from xapi_cli.http.messages import Headers, RawHeader


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ([(b"X", b"a"), (b"Y", b"b")], "a"),
        ([(b"x", b"a"), (b"X", b"b")], "a, b"),
        ([(b"X", "é".encode())], "é"),
        ([(b"X", b"\xe9")], "é"),
        ([(b"X", "é".encode()), (b"Y", b"\xff")], "Ã©"),  # one encoding for all, as httpx reads them
        ([(b"X", b"\xc3"), (b"Y", b"\xa9")], "Ã"),  # only together valid UTF-8
        ([(b"Y", b"b")], ""),
    ],
)
def test_a_value_is_utf8_if_all_are_and_otherwise_iso_8859_1(raw: list[RawHeader], text: str) -> None:
    headers = Headers(raw)

    assert headers.get("X") == text
    assert ("x" in headers) == bool(text)
