"""`--until`: send a request again until a jq filter accepts the body of its response.

The body of each response is kept until the next one arrives: it is not known before its end whether it is the last.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from xapi_cli.errors import NetworkError, TimeoutExpired, XapiError
from xapi_cli.http import retry
from xapi_cli.http.send import Outcome
from xapi_cli.request.body.spool import Spool
from xapi_cli.request.output import decoded
from xapi_cli.system.render import decimal
from xapi_cli.system.signals import Terminated

if TYPE_CHECKING:
    from xapi_cli.features.jq.filter import Filter
    from xapi_cli.http.send import Call, Sender
    from xapi_cli.system.progress import Attempts

DEFAULT_LIMIT = 600.0  # seconds
_REJECTED = (b"false", b"null")
_NOT_MODIFIED = 304


class NotMet(TimeoutExpired):
    """The time is over, and the filter has accepted no body."""


class Polling:
    """Send a call with *sender* every *every* seconds until *condition* accepts the body, or *deadline* is over.

    *deadline* is a time of `time.monotonic`; *limit* is the number of seconds that it allows, for the message.
    *received* is called with each outcome, and *attempts* shows their number. A context manager.
    """

    def __init__(
        self,
        sender: "Sender",
        condition: "Filter",
        every: float,
        *,
        deadline: float,
        limit: float,
        received: Callable[[Outcome], None],
        attempts: "Attempts",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sender, self._condition, self._every = sender, condition, every
        self._deadline, self._limit = deadline, limit
        self._received, self._attempts, self._sleep = received, attempts, sleep
        self.last: Outcome | None = None  # the last response, with its body
        self.body = Spool(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.body.close()

    def run(self, call: "Call") -> tuple[Outcome, Spool | None]:
        """Return the response that ends the wait, and its body; it is None, and not read, if that is not a success.

        Raises NotMet, FilterError, and the errors that end a request.
        """
        while True:
            delay = self._every
            try:
                outcome = self._sender.send(call)
                self._received(outcome)
                final = self._is_final(outcome)
            except (NetworkError, TimeoutExpired) as error:
                self._raise_if_over(error)
                if not retry.is_transient_error(error):
                    raise
            except Terminated as terminated:  # SIGALRM enforces the time limit while the filter runs
                self._attempts.advance(1)
                if isinstance(terminated.failure, TimeoutExpired):
                    self._raise_if_over(terminated.failure)
                raise
            else:
                if final is not None:
                    return outcome, self.body if final else None
                delay = max(delay, self._requested_delay(outcome))
            self._attempts.advance(1)
            self._wait(delay)

    def _is_final(self, outcome: Outcome) -> bool | None:
        """Return whether *outcome* is the awaited one; None if it is not, and the request is sent again.

        It is False if the outcome is a failure that is not sent again.
        """
        response = outcome.response
        if response.status == _NOT_MODIFIED:
            return None
        is_success = 200 <= response.status < 300
        is_transient = response.status in retry.STATUSES
        if not is_success and (not is_transient or self._requested_delay(outcome) > retry.LONGEST_WAIT):
            return False
        body = Spool(decoded(response))
        self.body.close()
        self.last, self.body = outcome, body
        return True if is_success and self._is_met(response.headers.get("Content-Type")) else None

    def _is_met(self, content_type: str) -> bool:
        lines: list[bytes] = []

        def add(results: bytes) -> None:
            lines.extend(line for line in results.splitlines() if line not in _REJECTED and not lines)

        self._condition.apply(iter(self.body), add, content_type)
        return bool(lines)

    @staticmethod
    def _requested_delay(outcome: Outcome) -> float:
        return retry.requested_delay(outcome.response.headers.raw) or 0.0

    def _wait(self, seconds: float) -> None:
        self._sleep(max(0.0, min(seconds, self._deadline - time.monotonic())))
        self._raise_if_over()

    def _raise_if_over(self, cause: XapiError | None = None) -> None:
        if time.monotonic() >= self._deadline:
            raise NotMet(
                f"--until was not met within {decimal(self._limit)} s, in {self._attempts.count()}",
                hint="raise --max-time to wait longer",
            ) from cause
