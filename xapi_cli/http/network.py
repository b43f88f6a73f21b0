"""Open connections for requests, and keep the routes to servers."""

from collections.abc import Mapping

from xapi_cli.http import proxies, tls, urls
from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.dial import Dialer
from xapi_cli.http.timeouts import Timeouts, Wait


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
        return self.route_to_server(urls.split_server(url)[0])

    def route_to_server(self, server: str) -> Route:
        """Return the route to *server*, a URL without a path, as in `urls.split_server`."""
        route = self._routes.get(server)
        if route is None:
            scheme, host, port = urls.origin(server)
            route = Route(scheme, host, port, proxies.proxy_for(scheme, host, port, self._environ))
            self._routes[server] = route
        return route

    def dial(self, route: Route) -> Connection:
        """Open a new connection and return it; blocks until it is established."""
        return self._dialer.open(
            route, Wait(self._timeouts, self._timeouts.connect, lambda: f"no connection to {route}")
        )
