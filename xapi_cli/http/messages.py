"""The requests that the transport sends, and the responses that it returns."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from xapi_cli import __version__
from xapi_cli.http import urls

if TYPE_CHECKING:
    from socket import socket

    from xapi_cli.http.responses import ResponseHead
    from xapi_cli.http.timeouts import Timeouts
    from xapi_cli.http.transport import Exchange


RawHeader = tuple[bytes, bytes]
USER_AGENT = f"xapi/{__version__}"
WITH_CONTENT = frozenset({"PATCH", "POST", "PUT"})  # methods whose requests have a Content-Length even without a body


class Headers:
    """Header fields, as they are sent: *raw* are their names and values."""

    def __init__(self, raw: Sequence[RawHeader]) -> None:
        self.raw = raw

    def get(self, name: str, default: str = "") -> str:
        """Return the value of the header *name*; the values of a repeated one are joined by `, ` (RFC 9110, 5.3)."""
        wanted = name.lower().encode("ascii")
        values = [value for each, value in self.raw if each.lower() == wanted]
        joined = b", ".join(values)
        try:
            return joined.decode() if values else default
        except UnicodeDecodeError:
            return joined.decode("iso-8859-1")

    def __contains__(self, name: str) -> bool:
        wanted = name.lower().encode("ascii")
        return any(each.lower() == wanted for each, _ in self.raw)

    def joined(self) -> dict[str, str]:
        """Return all headers by lowercase name; the values of a repeated one are joined by `, ` (RFC 9110, 5.3)."""
        found: dict[str, str] = {}
        for raw_name, raw_value in self.raw:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("utf-8", "backslashreplace")
            found[name] = f"{found[name]}, {value}" if name in found else value
        return found


class Body(ABC):
    """The body of a request, of *length* bytes; each iteration yields the complete body again."""

    is_chunked = False  # its length is not known before it has been read

    def __init__(self, length: int, content_type: str | None = None) -> None:
        self.length = length
        self.content_type = content_type

    @abstractmethod
    def __iter__(self) -> Iterator[bytes]:
        """Yield the body from the start, in blocks of limited size."""

    def close(self) -> None:  # noqa: B027 - most bodies have no open files
        """Close open files."""


class Request(NamedTuple):
    """A request with *method* for *url*, which leads to *target* on *server*: the scheme, the host and the port.

    *headers* has all headers except the one for a proxy. The *body* has *length* bytes, None if that is unknown; it is
    iterated once for each time that the request is sent, and *is_replayable* if it can be iterated again at any time.
    An empty block of it means that there is nothing to send yet. *timeouts* replaces those of the transport; without
    it, *deadline*, a time of the monotonic clock, limits the whole request.
    """

    method: str
    url: str
    server: tuple[str, str, int]
    target: bytes
    headers: Headers
    body: Iterable[bytes] = ()
    length: int | None = 0
    is_replayable: bool = True
    timeouts: "Timeouts | None" = None
    deadline: float | None = None
    is_login: bool = False
    # A socket that is watched while the response is awaited, and a function that is called once, when the socket has
    # data or has ended. The function may raise an exception, which ends the request.
    beside: "tuple[socket, Callable[[], None]] | None" = None

    def __repr__(self) -> str:
        return f"Request({self.method!r}, …)"  # the URL and the headers may contain secrets


def build_request(
    method: str,
    url: str,
    headers: Sequence[RawHeader],
    body: Iterable[bytes] | None = None,
    length: int | None = 0,
    **options: Any,
) -> Request:
    """Return the request for *url*, an absolute URL that `urls` has checked, with Host and Content-Length.

    *length* is that of the *body* in bytes, or None if it is unknown. *options* are the other fields of `Request`.
    """
    raw = list(headers)
    path_at = url.index("/", len("https://"))
    server, path = url[:path_at], url[path_at:]
    if not any(name.lower() == b"host" for name, _ in raw):
        raw.insert(0, (b"Host", server.partition("//")[2].encode("ascii")))
    if length is None:
        raw.append((b"Transfer-Encoding", b"chunked"))
    elif body is not None or method in WITH_CONTENT:
        raw.append((b"Content-Length", b"%d" % length))
    content = () if body is None else body
    target = path.encode("ascii")
    return Request(method, url, urls.origin(server), target, Headers(raw), content, length, **options)


class Response:
    """The response to *request* with *head*, and with a *body* that is not read yet.

    The request *started* at a time of the monotonic clock. *tls* is the version of TLS.
    """

    elapsed = 0.0  # seconds until the response was closed

    def __init__(
        self, request: Request, head: "ResponseHead", body: "Exchange", *, started: float, tls: str | None
    ) -> None:
        self.request, self.status, self.reason, self.version = request, head.status, head.reason, head.version
        self.headers, self.tls, self._body, self._started = Headers(head.raw_headers), tls, body, started
        self._is_closed = False
        self._ended: float | None = None

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    def chunks(self) -> Iterator[bytes]:
        """Yield the body without transfer coding, then close the response; raises NetworkError or TimeoutExpired."""
        yield from self._body
        self.close()

    def decoded(self) -> Iterator[bytes]:
        """Yield the body as `chunks` does, without its content coding."""
        coding = self.headers.get("Content-Encoding")
        if not coding or self.request.method == "HEAD":
            return self.chunks()
        from xapi_cli.http.decoding import decode

        has_length = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        return decode(self.chunks(), coding, may_be_empty=has_length or self.status in (204, 304))

    def hold(self) -> None:
        """Read the body into memory if it is short and arrives soon, so that its connection can carry another request.

        It can be read as before.
        """
        if self._ended is None and self._body.hold():
            self._ended = time.monotonic()

    def discard(self) -> None:
        """Close the response; discard the rest of its body if that is quick, so that the connection can be reused."""
        self._body.discard()
        self.close()

    def close(self) -> None:
        """Close the response; discard only data that has already arrived."""
        if not self._is_closed:
            self._is_closed = True
            self._body.discard(0)
            self.elapsed = (self._ended or time.monotonic()) - self._started
