"""Every failure of xapi, with its exit code and its kind, a word for programs; which status is which failure.

    XapiError                      1  unexpected failure of xapi itself
    ├── ChecksFailed               1  a check of `xapi doctor` failed
    ├── UsageError                 2  invalid usage or settings; nothing was sent
    │   └── InvalidLine            2  an input line of `batch` is not valid
    ├── RedirectError              3  the final response is a redirect
    ├── ClientStatusError          4  4xx from the API, except 401; 4xx from the token endpoint
    ├── ServerStatusError          5  5xx from the API or the token endpoint
    ├── ExpectationFailed          6  the response does not meet `--expect`
    ├── FilterError                6  the response is not what --jq, --csv or --paginate needs
    ├── AuthenticationError       10  not authenticated
    │   ├── LoginRefused          10  the token endpoint rejected the username and password
    │   ├── GrantRefused          10  the token endpoint refused a login for another reason
    │   ├── LoginNeeded           10  no token and no password source
    │   └── TokenRejected         10  401 with a new token
    ├── NetworkError              11  no usable response
    │   ├── BodyTooLarge          11  the body of a response is too large for a line of `batch`
    │   └── InvalidTokenResponse  11  the response of the token endpoint is not a valid token response
    ├── TimeoutExpired            12  timeout
    ├── StoreError                13  the token store cannot be used
    ├── OutputError               14  stdout or a local file cannot be written
    ├── CommandError             126  the command of `exec` or `proxy` cannot be executed; 127 if it was not found
    ├── ClosedPipe               141  stdout was closed early
    └── Interrupted              130  stopped by SIGINT; 143 on SIGTERM, 129 on SIGHUP

A message states what happened, a hint what to do. Neither contains a password, a
token or a stored record.

The classes determine what is the result of a line of `batch`, and what ends the batch; what a journal stores; which
failure of a login other processes share; the exit code of the summary; the tables of the documentation. A new kind of
failure is a class here.
"""

import errno
import os
import signal
from typing import TYPE_CHECKING

from xapi_cli.hints import Hint, Run, joined, text, together

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Self

UNAUTHORIZED = 401  # from the API: the token is rejected
_RESOURCE_LIMITS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


class XapiError(Exception):
    """The base class of all failures; *message* states what happened, *hint* what to do."""

    exit_code = 1
    kind = "unexpected"
    default_hint: Hint | None = None  # neutral: the server may have processed the request
    is_of_line = False  # in `batch`, it is the result of its line; any other failure ends the batch
    is_stored = False  # in a journal: the request got a response, so it may have changed something
    is_of_login = False  # it is why a login failed
    is_shared = False  # of a login: other processes that wait for this login fail with it too
    context: "Mapping[str, object]" = {}  # noqa: RUF012 - never changed; `concerning` replaces it

    def __init__(self, message: str, *, hint: Hint | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def concerning(self, **context: object) -> "Self":
        """Record what the failure concerns, unless that is known already; return the failure.

        The names are members of --error-format json: `status`, `method`, `url`, `retry_after` (seconds) and `line`.
        """
        self.context = self.context or context
        return self

    def __str__(self) -> str:
        return text(together(self.message, "; ", self.hint) if self.hint else self.message)

    @property
    def advice(self) -> Hint:
        """The message and the hint, or else the default one, as it is printed."""
        hint = self.hint or self.default_hint
        return together(self.message, "; ", hint) if hint else self.message


class FilterError(XapiError):
    """The response is not what --jq, --csv or --paginate needs, or a filter failed on it."""

    exit_code = 6
    kind = "filter"
    is_of_line = is_stored = True


class ChecksFailed(XapiError):
    """A check of `xapi doctor` failed."""

    kind = "check"


class UsageError(XapiError):
    """Invalid usage or settings; nothing was sent."""

    exit_code = 2
    kind = "usage"


class InvalidLine(UsageError):
    """The input line is not valid; it was not sent."""

    kind = "input"
    is_of_line = True


class RedirectError(XapiError):
    """The final response is a redirect: it was not followed or was refused, or there were more than ten."""

    exit_code = 3
    kind = "redirect"
    is_shared = True


class ClientStatusError(XapiError):
    """A response with a 4xx status, other than 401 from the API."""

    exit_code = 4
    kind = "client"
    is_shared = True


class ServerStatusError(XapiError):
    """A response with a 5xx status."""

    exit_code = 5
    kind = "server"
    is_shared = True


class ExpectationFailed(XapiError):
    """A successful response does not satisfy a filter of --expect."""

    exit_code = 6
    kind = "expectation"
    is_of_line = is_stored = True


class AuthenticationError(XapiError):
    """The request cannot be authenticated."""

    exit_code = 10
    kind = "auth"
    is_of_line = True


class LoginRefused(AuthenticationError):
    """The token endpoint rejected the username and password.

    *has_error_code* is False if the response has no error code (RFC 6749, section 5.2): it may come from a server other
    than the API.
    """

    def __init__(self, message: str, *, hint: Hint | None = None, has_error_code: bool = True) -> None:
        super().__init__(message, hint=hint)
        self.has_error_code = has_error_code


class GrantRefused(AuthenticationError):
    """The token endpoint refused the login for a reason other than the username and password."""

    is_shared = True


class LoginNeeded(AuthenticationError):
    """There is no usable token, and no password source for a login."""


class TokenRejected(AuthenticationError):
    """The API responded with 401 to a token that another login would not improve."""


RESEND = "send the request again if it can be repeated"  # for a truncated body: the server has processed the request


class NetworkError(XapiError):
    """No usable response.

    If *sent*, at least a part of the request was sent, so the server may have processed it; if that changes something,
    `may_be_processed` is set. If *headers_received*, the status line and headers of a response were complete, or the
    response is not valid HTTP; the request is then not retried.
    """

    exit_code = 11
    kind = "network"
    default_hint: Hint | None = ("run ", Run("doctor"), " to check the connection")
    is_of_line = is_shared = True
    may_be_processed = False
    may_be_complete = False  # of a truncated body: only its content coding shows whether it is

    def __init__(
        self, message: str, *, hint: Hint | None = None, sent: bool = False, headers_received: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.sent = sent
        self.headers_received = headers_received


class BodyTooLarge(NetworkError):
    """The body exceeds the maximum size for a line of output."""

    kind = "size"
    is_stored = True


class InvalidTokenResponse(NetworkError):
    """The response of the token endpoint is not a valid token response (RFC 6749, section 5.1)."""


class TimeoutExpired(XapiError):
    """A time limit has expired.

    *sent* and `may_be_processed` are as in NetworkError.
    """

    exit_code = 12
    kind = "timeout"
    is_of_line = is_shared = True
    may_be_processed = False

    def __init__(self, message: str, *, hint: Hint | None = None, sent: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.sent = sent


class StoreError(XapiError):
    """The token store cannot be used.

    *hint* says how to make the store usable, *alternative* what to use instead, such as another storage. A logout does
    not suggest the latter, because it would delete nothing.
    """

    exit_code = 13
    kind = "storage"

    def __init__(self, message: str, *, hint: Hint | None = None, alternative: Hint | None = None) -> None:
        hints = [each for each in (hint, alternative) if each]
        super().__init__(message, hint=joined(", or ", hints) if hints else None)
        self.remedy, self.alternative = hint, alternative


class OutputError(XapiError):
    """Stdout or a local file cannot be written."""

    exit_code = 14
    kind = "output"


class CommandError(XapiError):
    """The command of `exec` or `proxy` cannot be executed; the code is 127 if it was not found."""

    exit_code = 126  # as in shells (POSIX, "2.8.2 Exit Status for Commands")
    kind = "command"

    def __init__(self, message: str, *, hint: Hint | None = None, is_missing: bool = False) -> None:
        super().__init__(message, hint=hint)
        if is_missing:
            self.exit_code = 127


class ClosedPipe(XapiError):
    """Stdout was closed early; reported without a message."""

    exit_code = 128 + 13  # as for SIGPIPE, which Windows does not define
    kind = "pipe"


class Interrupted(XapiError):
    """Signal *number* ended the command; reported without a message."""

    kind = "interrupted"

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.exit_code = 128 + number


def of_status(status: int) -> type[XapiError] | None:
    """Return the class of the error for a final response with *status*, None for a success; a 401 may be another."""
    if status < 300 or status == 304:
        return None
    if status < 400:
        return RedirectError
    return ClientStatusError if status < 500 else ServerStatusError


def of_exit_code(code: int) -> type[XapiError]:
    """Return the first class of errors with the exit code *code*; XapiError if there is none."""
    return next((each for each in derived() if each.exit_code == code), XapiError)


def of_line(error: XapiError) -> XapiError | None:
    """Return the failure of the line of `batch` whose call failed with *error*, or None if it ends the batch.

    A response to the call itself is not a failure, whatever its status; so the failure of a status is that of a login.
    """
    if isinstance(error, RedirectError | ClientStatusError | ServerStatusError):
        return AuthenticationError(error.message, hint=error.hint)
    return error if error.is_of_line else None


def unexpected(error: BaseException) -> XapiError:
    """Return the failure for *error*, which is none of xapi: without its message, which may contain a secret."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _RESOURCE_LIMITS):
        return XapiError("not enough memory or file descriptors", hint="check the limits with `ulimit -a`")
    return XapiError(
        f"unexpected failure ({type(error).__name__}{_location(error)})",
        hint="this is a bug: set XAPI_DEBUG=1 to see where it occurred",
    )


def _location(error: BaseException) -> str:
    from traceback import extract_tb

    frames = extract_tb(error.__traceback__)
    return f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def derived(of: type[XapiError] = XapiError) -> "Iterator[type[XapiError]]":
    """Yield the classes derived from *of*, each before those derived from it."""
    for each in of.__subclasses__():
        yield each
        yield from derived(each)
