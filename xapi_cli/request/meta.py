"""The facts that --meta writes about a request, successful or not."""

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xapi_cli.auth.token_source import TokenSource
    from xapi_cli.request.output import ResponseOutput
    from xapi_cli.request.send import Outcome, Sender


class Meta:
    """The facts about the request that *sender* sends; *outcome* is that of the last response."""

    def __init__(self, sender: "Sender", output: "ResponseOutput", tokens: "TokenSource | None") -> None:
        self._sender, self._output, self._tokens = sender, output, tokens
        self._started = time.monotonic()
        self.outcome: Outcome | None = None

    def received(self, outcome: "Outcome") -> None:
        """Take the next response, and close the one before."""
        self.close()
        self.outcome = outcome

    def close(self) -> None:
        """Close the last response."""
        if self.outcome is not None:
            self.outcome.response.close()

    def line(self) -> bytes:
        """Return the facts as one line of JSON."""
        import json

        from xapi_cli.http.headers import joined_headers

        response = self.outcome.response if self.outcome else None
        facts = {
            "status": response.status_code if response else None,
            "headers": joined_headers(response.headers.raw) if response else {},
            "http_version": str(response.extensions.get("http_version", b""), "ascii") if response else None,
            "elapsed_ms": round((time.monotonic() - self._started) * 1000),
            "attempts": self._sender.attempts,
            "login": self._tokens.login_reason if self._tokens else None,
            "bytes": self._output.size,
        }
        return json.dumps(facts).encode() + b"\n"
