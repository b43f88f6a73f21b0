"""What the tests of `xapi request` have in common."""

import json
from typing import Any

from tests.program import Outcome
from tests.servers import Server
from xapi_cli.sandbox import MASTER, Sandbox

TOKEN = "canary-token-of-the-user"
ME = '{"id":1,"email":"master@example.com","name":"Mara Master","rights":"master"}\n'  # what /x-api/me says of it


def bearing(server: Server | Sandbox) -> dict[str, str]:
    """Return the settings with which *server* is called with a token that it accepts."""
    if isinstance(server, Server):
        return {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": TOKEN}
    return {"XAPI_BASE_URL": server.base_url, "XAPI_TOKEN": server.log_in(MASTER.email, MASTER.password) or ""}


def answer(status: str = "200 OK", body: bytes = b"", *headers: str) -> bytes:
    """Return a whole response; a Content-Length of its own takes the place of the right one."""
    lines = [f"HTTP/1.1 {status}", *headers]
    if not any(header.lower().startswith(("content-length:", "transfer-encoding:")) for header in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


def echoed(outcome: Outcome) -> dict[str, Any]:
    """Return what the sandbox's echo saw; the program must have said nothing else."""
    assert (outcome.code, outcome.err) == (0, ""), outcome
    seen: dict[str, Any] = json.loads(outcome.out)
    return seen


def heads(received: bytes) -> list[str]:
    """Return the request lines and headers of what a server received."""
    return received.decode("utf-8", "surrogateescape").partition("\r\n\r\n")[0].split("\r\n")
