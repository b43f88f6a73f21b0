"""What the tests of `xapi request` and `xapi login` share."""

import json
from typing import Any

from tests.support.program import Outcome
from tests.support.servers import Server
from xapi_cli.features.sandbox import MASTER, Sandbox

TOKEN = "canary-token-of-the-user"
ME = '{"id":1,"email":"master@example.com","name":"Mara Master","rights":"master"}\n'  # the response of /x-api/me


def bearing(server: Server | Sandbox) -> dict[str, str]:
    """Return the environment with the base URL of *server* and a token that it accepts."""
    if isinstance(server, Server):
        return {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": TOKEN}
    return {"XAPI_BASE_URL": server.base_url, "XAPI_TOKEN": server.log_in(MASTER.email, MASTER.password) or ""}


def account_of(sandbox: Sandbox) -> tuple[str, ...]:
    """Return the options that select the account of *sandbox* with all rights."""
    return ("--base-url", sandbox.base_url, "--username", MASTER.email)


def response(status: str = "200 OK", body: bytes = b"", *headers: str) -> bytes:
    """Return a complete response; a Content-Length in *headers* replaces the correct one."""
    lines = [f"HTTP/1.1 {status}", *headers]
    if not any(header.lower().startswith(("content-length:", "transfer-encoding:")) for header in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


def echoed(outcome: Outcome) -> dict[str, Any]:
    """Return the request that the echo resource received; the program must have printed nothing else."""
    assert (outcome.code, outcome.err) == (0, ""), outcome
    seen: dict[str, Any] = json.loads(outcome.out)
    return seen


def heads(received: bytes) -> list[str]:
    """Return the request lines and headers of what a server received."""
    return received.decode("utf-8", "surrogateescape").partition("\r\n\r\n")[0].split("\r\n")
