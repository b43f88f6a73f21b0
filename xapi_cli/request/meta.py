"""The facts that --meta writes about a request, successful or not."""

import json
import time
from typing import TYPE_CHECKING

from xapi_cli.http.header_syntax import joined_headers

if TYPE_CHECKING:
    from xapi_cli.auth.token_source import TokenSource
    from xapi_cli.request.output import ResponseOutput
    from xapi_cli.request.send import Outcome, Sender


def line(
    outcome: "Outcome | None",
    started: float,
    sender: "Sender",
    output: "ResponseOutput",
    tokens: "TokenSource | None",
) -> bytes:
    """Return the facts as one line of JSON: *outcome* is that of the last response, *started* a monotonic time."""
    response = outcome.response if outcome else None
    facts = {
        "status": response.status if response else None,
        "headers": joined_headers(response.headers.raw) if response else {},
        "http_version": f"HTTP/{response.version.decode()}" if response else None,
        "elapsed_ms": round((time.monotonic() - started) * 1000),
        "attempts": sender.attempts,
        "login": tokens.login_reason if tokens else None,
        "bytes": output.size,
    }
    return json.dumps(facts).encode() + b"\n"
