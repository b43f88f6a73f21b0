"""`request` and `batch` send the same request for the same call."""

import json
from typing import Any

import pytest

from tests.support.program import Xapi
from tests.support.servers import Server, serve

CALLS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "GET": (["/a?b=c"], {"path": "/a?b=c"}),
    "a number as a header": (["/a", "X-One:1.0"], {"path": "/a", "headers": {"X-One": 1.0}}),
    "GET with a header": (["/a", "X-One:1"], {"path": "/a", "headers": {"X-One": "1"}}),
    "POST without a body": (["POST", "/a"], {"path": "/a", "method": "POST"}),
    "PUT without a body": (["PUT", "/a", "X-One:1"], {"path": "/a", "method": "PUT", "headers": {"X-One": "1"}}),
    "DELETE": (["DELETE", "/a"], {"path": "/a", "method": "DELETE"}),
    "JSON": (["/a", "b=c"], {"path": "/a", "json": {"b": "c"}}),
    "an empty body": (["/a", "-d", ""], {"path": "/a", "data": ""}),
    "another Host": (["/a", "Host:other.test"], {"path": "/a", "headers": {"Host": "other.test"}}),
}


def _fields(data: bytes) -> tuple[str, list[str]]:
    """Return the request line, and the header lines in alphabetical order."""
    first, *rest = data.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    return first, sorted(line for line in rest if not line.startswith("Content-Type: "))


@pytest.mark.parametrize("call", CALLS)
def test_request_and_batch_send_the_same_fields(xapi: Xapi, call: str) -> None:
    args, line = CALLS[call]
    with Server([serve(), serve()]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        assert xapi("request", *args, env=env).code == 0
        assert xapi("batch", env=env, input=json.dumps(line) + "\n").code == 0
        one, other = (_fields(data) for data in server.received)

    assert one == other
    has_length = any(field.startswith("Content-Length: ") for field in one[1])
    assert has_length == one[0].startswith(("POST", "PUT"))
