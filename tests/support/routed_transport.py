"""A transport whose server is a function of httpx requests, such as the handler of a respx router."""

from collections.abc import Callable, Iterator

import h11
import httpx

from xapi_cli.http.messages import Request, Response
from xapi_cli.http.responses import ResponseHead
from xapi_cli.http.transport import Exchange, Transport


class RoutedTransport(Transport):
    """Pass each request to *handler*, and return its response with a body that is not read yet."""

    def __init__(self, handler: Callable[[httpx.Request], httpx.Response]) -> None:
        self._handler = handler
        self.requests: list[Request] = []

    def send(self, request: Request) -> Response:
        self.requests.append(request)
        sent = httpx.Request(request.method, request.url, headers=request.headers.raw, content=b"".join(request.body))
        response = self._handler(sent)
        reason = response.extensions.get("reason_phrase", b"")
        head = h11.Response(status_code=response.status_code, headers=response.headers.raw, reason=reason)
        return Response(request, ResponseHead(head), Body(response.read()), started=0.0, tls=None)

    def close(self) -> None:
        """Do nothing: there are no connections."""


class Body(Exchange):
    """The body of a response, whose data is there."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __iter__(self) -> Iterator[bytes]:
        yield self._data

    def hold(self) -> bool:
        """Return True: the body is in memory."""
        return True

    def discard(self, seconds: float = 0) -> None:
        """Do nothing: the body is in memory."""
