"""Open connections for requests, and format the requests as HTTP/1.1."""

from collections.abc import Mapping

from xapi_cli.http import proxies, tls, urls
from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.dial import Dialer
from xapi_cli.http.timeouts import Timeouts
from xapi_cli.request.calls import Call, headers_of
from xapi_cli.tokens import Token

_LONGEST_SCHEME = len("https://")


class Network:
    """Connect to servers, directly or through the proxy that *environ* sets.

    *timeout*, in seconds, limits each attempt; *deadline* is on the monotonic clock.
    """

    def __init__(
        self, *, timeout: float, ca_bundle: str | None, environ: Mapping[str, str], deadline: float | None = None
    ) -> None:
        self._timeouts = Timeouts(connect=timeout, deadline=deadline)
        self._environ = environ
        self._dialer = Dialer(lambda: tls.create_context(ca_bundle, environ))
        self._routes: dict[str, Route] = {}

    def route(self, url: str) -> Route:
        """Return the route to the server of *url*."""
        root = url[: url.index("/", _LONGEST_SCHEME)]
        route = self._routes.get(root)
        if route is None:
            scheme, host, port = urls.origin(url)
            route = Route(scheme, host, port, proxies.proxy_for(scheme, host, port, self._environ))
            self._routes[root] = route
        return route

    def dial(self, route: Route) -> Connection:
        """Open a new connection and return it; blocks until it is established."""
        return self._dialer.open(route, self._timeouts.start_wait(self._timeouts.connect, f"no connection to {route}"))


class Composer:
    """Format requests; headers that most requests share are cached."""

    def __init__(self) -> None:
        self._common: dict[tuple[str, str | None], bytes] = {}

    def compose(self, call: Call, route: Route, token: Token | None, *, to_api: bool) -> bytes:
        """Return *call* as an HTTP request with *token*.

        If *to_api* is False, the request goes to another origin and omits the user's headers and body.
        """
        slash = call.url.index("/", _LONGEST_SCHEME)
        target = call.url[slash:]
        if route.proxy and route.scheme == "http":
            target = call.url
        start = f"{call.method} {target} HTTP/1.1\r\n".encode("ascii")
        host = call.url[call.url.index("//") + 2 : slash]
        if not call.headers and call.body is None:
            return start + self._usual(call, host, route, token)
        headers = headers_of(call, to_api=to_api)
        lines = b"" if any(name.lower() == b"host" for name, _ in headers) else b"Host: %s\r\n" % host.encode("ascii")
        lines += b"".join(b"%s: %s\r\n" % header for header in headers) + _authorization(route, token)
        if call.body is None or not to_api:
            return start + lines + b"\r\n"
        body = b"".join(call.body)
        return start + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body

    def _usual(self, call: Call, host: str, route: Route, token: Token | None) -> bytes:
        key = (host, token.access_token if token else None)
        common = self._common.get(key)
        if common is None:
            if len(self._common) > 8:
                self._common.clear()  # drop entries of replaced tokens
            lines = b"".join(b"%s: %s\r\n" % header for header in headers_of(call, to_api=True))
            common = b"Host: %s\r\n" % host.encode("ascii") + lines + _authorization(route, token) + b"\r\n"
            self._common[key] = common
        return common


def _authorization(route: Route, token: Token | None) -> bytes:
    lines = b"" if token is None else b"Authorization: %s\r\n" % token.authorization.encode("ascii")
    if route.proxy and route.proxy.authorization and route.scheme == "http":
        lines += b"Proxy-Authorization: %s\r\n" % route.proxy.authorization
    return lines
