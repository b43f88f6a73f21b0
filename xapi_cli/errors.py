"""Every way xapi can fail, with the exit code a script sees.

    XapiError                      1  a failure of xapi itself
    ├── UsageError                 2  wrong usage or settings; nothing was sent
    ├── RedirectError              3  the final answer is a redirect
    ├── ClientStatusError          4  4xx from the API or, mostly, the token endpoint
    ├── ServerStatusError          5  5xx from the API or the token endpoint
    ├── AuthenticationError       10  not authenticated
    │   ├── LoginRefused          10  the token endpoint refused username and password
    │   ├── LoginNeeded           10  no token, and no way to get one
    │   └── TokenRejected         10  401 although the token is fresh
    ├── NetworkError              11  no usable answer
    │   └── InvalidTokenResponse  11  the token endpoint's answer is no token response
    ├── TimeoutExpired            12  it took too long
    ├── StoreError                13  the token store cannot be used
    ├── OutputError               14  stdout or a local file cannot be written
    ├── ClosedPipe               141  the reader of stdout has gone
    └── Interrupted              130  SIGINT; 143 on SIGTERM, 129 on SIGHUP

A message says what happened, a hint what to do about it. Neither ever holds a
password, a token or a stored record.
"""

import signal


class XapiError(Exception):
    """Be the base of all failures; *message* says what happened, *hint* what to do."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(XapiError):
    """Report wrong usage or settings, found before anything was sent."""

    exit_code = 2


class RedirectError(XapiError):
    """Report a redirect that is not followed, refused, or one too many."""

    exit_code = 3


class ClientStatusError(XapiError):
    """Report a 4xx, 401 from the API excepted."""

    exit_code = 4


class ServerStatusError(XapiError):
    """Report a 5xx."""

    exit_code = 5


class AuthenticationError(XapiError):
    """Report that there is no authenticated call to be made."""

    exit_code = 10


class LoginRefused(AuthenticationError):
    """Report that the token endpoint refused username and password."""


class LoginNeeded(AuthenticationError):
    """Report that there is no usable token and no way to get one now."""


class TokenRejected(AuthenticationError):
    """Report a 401 that a new login does not mend."""


class NetworkError(XapiError):
    """Report that no usable answer came.

    *sent* tells that the request, or part of it, had left: it may have been
    processed. *answered* tells that the head of the response was complete.
    """

    exit_code = 11

    def __init__(self, message: str, *, hint: str | None = None, sent: bool = False, answered: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.sent = sent
        self.answered = answered


class InvalidTokenResponse(NetworkError):
    """Report an answer of the token endpoint that is no token response."""


class TimeoutExpired(XapiError):
    """Report that a limit in seconds has passed; *sent* as in NetworkError."""

    exit_code = 12

    def __init__(self, message: str, *, hint: str | None = None, sent: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.sent = sent


class StoreError(XapiError):
    """Report that the token store cannot be used."""

    exit_code = 13


class OutputError(XapiError):
    """Report that stdout or a local file cannot be written."""

    exit_code = 14


class ClosedPipe(XapiError):
    """Report, quietly, that whoever read stdout has gone."""

    exit_code = 128 + 13  # SIGPIPE, which Windows lacks a name for


class Interrupted(XapiError):
    """Report, quietly, that signal *number* ended the command."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.exit_code = 128 + number
