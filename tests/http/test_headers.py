from xapi_cli.http.headers import joined_headers


def test_headers_are_joined_by_lowercase_name() -> None:
    raw = [(b"X-Two", b"1"), (b"Content-Type", b"text/plain"), (b"x-two", "é".encode()), (b"X-Odd", b"\xff")]

    assert joined_headers(raw) == {"x-two": "1, é", "content-type": "text/plain", "x-odd": "\\xff"}
