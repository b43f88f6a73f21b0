"""Format the requests of a batch as HTTP/1.1."""

from xapi_cli.http import authorization, urls
from xapi_cli.http.connection import Route
from xapi_cli.http.flow import Send
from xapi_cli.http.messages import WITH_CONTENT
from xapi_cli.http.network import Network
from xapi_cli.request.calls import Call, headers_of
from xapi_cli.tokens import Token


class Composer:
    """Format requests to the servers of *network*; headers that most requests share are cached."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._common: dict[tuple[str, str | None], bytes] = {}  # by the server's URL and the token

    def compose(self, step: Send[Call]) -> tuple[Route, bytes]:
        """Return the route and the HTTP request of *step*; to another origin, it omits the user's headers and body."""
        call, token, to_api, _ = step
        server, path = urls.split_server(call.url)
        route = self._network.route_to(server)
        target = path if route.proxy is None or not route.is_forwarded else call.url  # usually, there is no proxy
        start = f"{call.method} {target} HTTP/1.1\r\n".encode("ascii")
        if not call.headers and call.body is None and call.method not in WITH_CONTENT:
            key = (server, token.access_token if token else None)
            return route, start + (self._common.get(key) or self._new_common(key, call, route, token))
        host = _host(server)
        headers = headers_of(call, to_api=to_api) + authorization.headers(token, route)
        lines = b"" if any(name.lower() == b"host" for name, _ in headers) else b"Host: %s\r\n" % host
        lines += b"".join(b"%s: %s\r\n" % header for header in headers)
        if (call.body is None or not to_api) and call.method not in WITH_CONTENT:
            return route, start + lines + b"\r\n"
        body = b"".join(call.body) if call.body is not None and to_api else b""
        return route, start + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body

    def _new_common(self, key: tuple[str, str | None], call: Call, route: Route, token: Token | None) -> bytes:
        if len(self._common) > 8:
            self._common.clear()  # drop entries of replaced tokens
        headers = [(b"Host", _host(key[0])), *headers_of(call, to_api=True), *authorization.headers(token, route)]
        common = self._common[key] = b"".join(b"%s: %s\r\n" % header for header in headers) + b"\r\n"
        return common


def _host(server: str) -> bytes:
    """Return the value of the header Host for the URL *server*, which has no path."""
    return server.partition("//")[2].encode("ascii")
