"""Format the requests of a batch as HTTP/1.1."""

from xapi_cli.http import authorization, urls
from xapi_cli.http.connection import Route
from xapi_cli.http.flow import Send
from xapi_cli.http.messages import WITH_CONTENT
from xapi_cli.http.network import Network
from xapi_cli.request.calls import Call, headers_of
from xapi_cli.tokens import Token


class Composer:
    """Format requests to the servers of *network*; what most requests share is cached."""

    def __init__(self, network: Network) -> None:
        self._network = network
        # by the server's URL and the token: the route, the start of the target, and the headers
        self._common: dict[tuple[str, str | None], tuple[Route, str, bytes]] = {}

    def compose(self, step: Send[Call]) -> tuple[Route, bytes]:
        """Return the route and the HTTP request of *step*; to another origin, it omits the user's headers and body."""
        call, token = step.call, step.token
        server, path = urls.split_server(call.url)
        if not call.headers and call.body is None and call.method not in WITH_CONTENT:
            key = (server, token.access_token if token else None)
            route, prefix, rest = self._common.get(key) or self._new_common(key, call, token)
        else:
            route, prefix = self._route_to(server)
            rest = _headers_and_body(step, server, route)
        return route, f"{call.method} {prefix}{path} HTTP/1.1\r\n".encode("ascii") + rest

    def _route_to(self, server: str) -> tuple[Route, str]:
        """Return the route to *server*, and what precedes the path in the target of a request."""
        route = self._network.route_to_server(server)
        return route, server if route.is_forwarded else ""

    def _new_common(self, key: tuple[str, str | None], call: Call, token: Token | None) -> tuple[Route, str, bytes]:
        if len(self._common) > 8:
            self._common.clear()  # drop entries of replaced tokens
        route, prefix = self._route_to(key[0])
        headers = [(b"Host", _host(key[0])), *headers_of(call, to_api=True), *authorization.headers(token, route)]
        lines = b"".join(b"%s: %s\r\n" % header for header in headers) + b"\r\n"
        self._common[key] = route, prefix, lines
        return self._common[key]


def _headers_and_body(step: Send[Call], server: str, route: Route) -> bytes:
    call, token, to_api, _ = step
    headers = headers_of(call, to_api=to_api) + authorization.headers(token, route)
    lines = b"" if any(name.lower() == b"host" for name, _ in headers) else b"Host: %s\r\n" % _host(server)
    lines += b"".join(b"%s: %s\r\n" % header for header in headers)
    if (call.body is None or not to_api) and call.method not in WITH_CONTENT:
        return lines + b"\r\n"
    body = b"".join(call.body) if call.body is not None and to_api else b""
    return lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _host(server: str) -> bytes:
    """Return the value of the header Host for the URL *server*, which has no path."""
    return server.partition("//")[2].encode("ascii")
