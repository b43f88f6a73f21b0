"""Standard streams that are closed, and a system without /dev."""

import shutil
import subprocess

import pytest

from tests.support.program import PROGRAM, Xapi
from tests.support.servers import Server, serve

JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    "redirection, code, out, err",
    [
        ("<&-", 0, b"{}", b""),
        (">&-", 14, b"", b"xapi: error: stdout is closed; redirect it to a file or to /dev/null\n"),
        ("2>&-", 0, b"{}", b""),
        ("-o /nonexistent/x 2>&-", 14, b"", b""),
        ("<&- >&- 2>&-", 14, b"", b""),
    ],
)
def test_a_closed_stream_is_no_other_file(xapi: Xapi, redirection: str, code: int, out: bytes, err: bytes) -> None:
    with Server([serve(JSON)]) as server:
        shell = ("sh", "-c", f'exec "$@" {redirection}', "sh", str(PROGRAM))
        process = xapi.start("request", "/x", env={"XAPI_TOKEN": "t", "XAPI_BASE_URL": server.url}, argv=shell)
        assert (*process.communicate(timeout=30), process.returncode) == (out, err, code)


@pytest.mark.parametrize("args", [("--version",), ("request", "/x", "-o", "/nonexistent/x")])
def test_a_system_without_dev_null_causes_no_traceback(xapi: Xapi, args: tuple[str, ...]) -> None:
    sandbox = ("bwrap", "--bind", "/", "/", "--tmpfs", "/dev")
    if shutil.which("bwrap") is None or subprocess.run([*sandbox, "true"], check=False).returncode:
        pytest.skip("needs bwrap")
    env = {"XAPI_TOKEN": "t", "XAPI_BASE_URL": "http://127.0.0.1:9"}
    process = xapi.start(*args, env=env, argv=(*sandbox, str(PROGRAM)))
    out, err = process.communicate(timeout=30)
    assert (process.returncode, b"Traceback" in out + err) == (14 if "-o" in args else 0, False), err
