"""API calls: what the user asked for, and the headers that are sent."""

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.http import content_coding
from xapi_cli.http.messages import USER_AGENT
from xapi_cli.system.redact import redact_url
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from xapi_cli.request.body.spool import Body

Header = tuple[str, str | None]
Beside = tuple[socket.socket, Callable[[], bool]]

ENCODING = ("utf-8", "surrogateescape")  # of the values of headers


class Call(NamedTuple):
    """A request as the user specified it; a header with the value None removes a default header."""

    method: str
    url: str
    headers: Sequence[Header] = ()
    body: "Body | None" = None
    own_headers: Sequence[Header] = ()  # of xapi; unlike those of the user, they are also sent to other origins
    beside: "Beside | None" = None  # a socket to watch while waiting for the response

    def __repr__(self) -> str:
        return f"Call({self.method!r}, {self.display_url!r}, …)"  # the headers may contain secrets

    @property
    def display_url(self) -> str:
        """Return the URL for use in messages, with possible secrets redacted."""
        return displayed(self.url)


def headers_of(call: Call, *, to_api: bool) -> list[tuple[bytes, bytes]]:
    """Return the headers of *call*, except those that the HTTP layer sets.

    Without *to_api*, the request goes to an origin other than the API's, and no header of the user is included.
    """
    user = list(call.headers) if to_api else []
    if to_api and call.body is not None and call.body.content_type:
        user = _with_defaults(user, ("Content-Type", call.body.content_type))
    user += call.own_headers
    accepted = content_coding.accepted()
    return encoded(_with_defaults(user, ("Accept", "*/*"), ("Accept-Encoding", accepted), ("User-Agent", USER_AGENT)))


def encoded(headers: Sequence[Header]) -> list[tuple[bytes, bytes]]:
    """Return *headers* as they are sent, without those that are removed."""
    return [(name.encode("ascii"), value.encode(*ENCODING)) for name, value in headers if value is not None]


def displayed(url: str) -> str:
    """Return *url* for use in messages, with possible secrets redacted."""
    return printable(redact_url(url))


def displayed_without_query(url: str) -> str:
    """Return *url* as `displayed` does, without its query, for the error of a response."""
    return displayed(url.partition("?")[0])


def _with_defaults(headers: list[Header], *defaults: Header) -> list[Header]:
    given = {name.lower() for name, _ in headers}
    return [*headers, *(default for default in defaults if default[0].lower() not in given)]
