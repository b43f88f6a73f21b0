"""Standard streams that are closed, and a system without /dev."""

import pytest

from tests.support.program import PROGRAM, Xapi
from tests.support.servers import Server, serve

JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    "redirection, code, out, err",
    [
        ("<&-", 0, b"{}", b""),
        (">&-", 14, b"", b"xapi: error: stdout cannot be written: it is closed; redirect it elsewhere\n"),
        ("2>&-", 0, b"{}", b""),
        ("-o /nonexistent/x 2>&-", 14, b"", b""),
        ("<&- >&- 2>&-", 14, b"", b""),
    ],
)
def test_a_closed_stream_is_no_other_file(xapi: Xapi, redirection: str, code: int, out: bytes, err: bytes) -> None:
    with Server([serve(JSON)]) as server:
        shell = ("sh", "-c", f'exec "$@" {redirection}', "sh", str(PROGRAM))
        process = xapi.start("request", "/x", env={"XAPI_TOKEN": "t", "XAPI_BASE_URL": server.url}, argv=shell)
        assert (*process.communicate(), process.returncode) == (out, err, code)
