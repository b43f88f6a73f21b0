"""`--until`: send a request again until a jq filter accepts the body of its response.

The body of each response is kept until the next one arrives: it is not known before its end whether it is the last.
"""

import time
from typing import TYPE_CHECKING, Any

from xapi_cli.errors import NetworkError, TimeoutExpired, XapiError
from xapi_cli.http import retry
from xapi_cli.request.body.spool import Spool
from xapi_cli.request.output import decoded
from xapi_cli.system import signals
from xapi_cli.system.progress import Attempts
from xapi_cli.system.render import decimal

if TYPE_CHECKING:
    from xapi_cli.features.jq.filter import Filter
    from xapi_cli.http.send import Outcome

DEFAULT_LIMIT = 600.0  # seconds
_REJECTED = (b"false", b"null")
_NOT_MODIFIED = 304


def poll(sending: Any, condition: "Filter", every: float) -> None:
    """Send the call of *sending* every *every* seconds until *condition* accepts the body, and write that.

    After the time limit of the command, the last body goes where that of an error goes. Raises TimeoutExpired,
    FilterError, and the errors that end a request.
    """
    polling = _Polling(sending, condition, every)
    try:
        with sending.context.terminal.during(polling.attempts):
            outcome, body = polling.run()
        sending.output.write(outcome.response, body)
    except _NotMet:
        signals.cancel_alarm()  # it would end the output of the last body
        if polling.last is not None:
            sending.output.write_failure(polling.last.response, polling.body)
        raise
    finally:
        polling.body.close()


class _NotMet(TimeoutExpired):
    """The time is over, and the filter has accepted no body."""


class _Polling:
    def __init__(self, sending: Any, condition: "Filter", every: float) -> None:
        self._sending, self._condition, self._every = sending, condition, every
        self.attempts = Attempts()
        self.last: Outcome | None = None  # the last response, with its body
        self.body = Spool(())

    def run(self) -> "tuple[Outcome, Spool | None]":
        """Return the response that ends the wait, and its body; it is None, and not read, if that is not a success."""
        while True:
            delay = self._every
            try:
                outcome = self._sending.sender.send(self._sending.call)
                self._sending.take(outcome)
                final = self._is_final(outcome)
            except (NetworkError, TimeoutExpired) as error:
                self._raise_if_over(error)
                if not retry.is_transient_error(error):
                    raise
            except signals.Terminated as terminated:  # SIGALRM enforces the time limit while the filter runs
                self.attempts.advance(1)
                if isinstance(terminated.failure, TimeoutExpired):
                    self._raise_if_over(terminated.failure)
                raise
            else:
                if final is not None:
                    return outcome, self.body if final else None
                delay = max(delay, _requested_delay(outcome))
            self.attempts.advance(1)
            time.sleep(max(0.0, min(delay, self._sending.context.deadline - time.monotonic())))
            self._raise_if_over()

    def _is_final(self, outcome: "Outcome") -> bool | None:
        """Return whether *outcome* is the awaited one; None if it is not, and the request is sent again.

        It is False if the outcome is a failure that is not sent again.
        """
        response = outcome.response
        if response.status == _NOT_MODIFIED:
            return None
        is_success = 200 <= response.status < 300
        is_transient = response.status in retry.STATUSES
        if not is_success and (not is_transient or _requested_delay(outcome) > retry.LONGEST_WAIT):
            return False
        body = Spool(decoded(response))
        self.body.close()
        self.last, self.body = outcome, body
        return True if is_success and self._is_met(response.headers.get("Content-Type")) else None

    def _is_met(self, content_type: str) -> bool:
        found: list[bytes] = []
        self._condition.apply(
            iter(self.body),
            lambda lines: found.extend(each for each in lines.splitlines() if each not in _REJECTED and not found),
            content_type,
        )
        return bool(found)

    def _raise_if_over(self, cause: XapiError | None = None) -> None:
        if time.monotonic() >= self._sending.context.deadline:
            limit = decimal(self._sending.context.max_time)
            raise _NotMet(
                f"--until was not met within {limit} s, in {self.attempts.count()}",
                hint="raise --max-time to wait longer",
            ) from cause


def _requested_delay(outcome: "Outcome") -> float:
    return retry.requested_delay(outcome.response.headers.raw) or 0.0
