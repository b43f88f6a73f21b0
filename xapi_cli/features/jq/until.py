"""`--until`: send a request again until a jq filter accepts the body of its response."""

import time
from typing import TYPE_CHECKING, Any

from xapi_cli.errors import NetworkError, TimeoutExpired
from xapi_cli.http import retry
from xapi_cli.request.body.spool import Spool
from xapi_cli.request.output import decoded
from xapi_cli.system.progress import Activity, duration
from xapi_cli.system.render import counted, decimal

if TYPE_CHECKING:
    from xapi_cli.features.jq.filter import Filter
    from xapi_cli.http.messages import Response

DEFAULT_LIMIT = 600.0  # seconds


class Attempts(Activity):
    """The attempts to get the response that is waited for."""

    delay = 0.0

    def text(self, now: float) -> str:
        """Return the elapsed time and the number of attempts."""
        return f"waiting for --until, {duration(now - self.started)}, {self.count()}"

    def count(self) -> str:
        """Return the number of attempts as a text."""
        return counted(self.done, "attempt")


def poll(sending: Any, condition: "Filter", every: float) -> None:
    """Send the call of *sending* every *every* seconds until *condition* accepts the body, and write that.

    A transient failure counts as not yet. Raises TimeoutExpired after the time limit of the command, FilterError, and
    the errors that end a request.
    """
    with sending.context.terminal.during(Attempts()) as attempts:
        response, body = _awaited(sending, condition, every, attempts)
    sending.output.write(response, body)


def _awaited(sending: Any, condition: "Filter", every: float, attempts: Attempts) -> "tuple[Response, Spool | None]":
    """Return the first response that *condition* accepts, and its body; or a failure, of which the body is not read."""
    deadline = sending.context.deadline
    while True:
        delay, cause = every, None
        try:
            outcome = sending.sender.send(sending.call)
            sending.take(outcome)
            response = outcome.response
            if response.status in retry.STATUSES:
                delay = max(every, retry.requested_delay(response.headers.get("Retry-After")) or 0.0)
            elif not response.is_success:
                return response, None
            else:
                body = Spool(decoded(response))
                if _is_met(body, response, condition):
                    return response, body
                body.close()
        except (NetworkError, TimeoutExpired) as error:
            if not retry.is_transient_error(error) and time.monotonic() < deadline:
                raise
            cause = error
        attempts.advance(1)
        time.sleep(max(0.0, min(delay, deadline - time.monotonic())))
        if time.monotonic() >= deadline:
            what = f"--until was not met within {decimal(sending.context.max_time)} s, in {attempts.count()}"
            raise TimeoutExpired(what, hint="raise --max-time to wait longer") from cause


def _is_met(body: Spool, response: "Response", condition: "Filter") -> bool:
    found: set[bytes] = set()
    condition.apply(iter(body), lambda lines: found.update(lines.splitlines()), response.headers.get("Content-Type"))
    return not found <= {b"false", b"null"}
