"""The httpx.Client that everything goes through: our transport, no cookies, no ~/.netrc, no redirects by itself."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from xapi_cli import __version__

if TYPE_CHECKING:
    import ssl

    import httpx

    from xapi_cli.http.transport import Transport

USER_AGENT = f"xapi/{__version__}"


def open_http(
    *,
    timeout: float,
    ca_bundle: str | None,
    environ: Mapping[str, str],
    trace: Callable[[str], None] | None = None,
    hooks: Mapping[str, list[Callable[..., Any]]] | None = None,
) -> "httpx.Client":
    """Return a client that sends what it is told and nothing of its own accord.

    *timeout*, in seconds, bounds each phase of a request; *ca_bundle* and the
    proxies in *environ* are looked at when a connection first needs them.
    *trace* hears of connections, *hooks* are httpx's event hooks.
    """
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx

    class Client(httpx.Client):
        def _build_redirect_request(self, request: httpx.Request, response: httpx.Response) -> httpx.Request:
            return request  # httpx's raises for a Location that it cannot read, although nothing is to be followed

    return Client(
        transport=open_transport(ca_bundle=ca_bundle, environ=environ, trace=trace),
        timeout=timeout,
        trust_env=False,
        follow_redirects=False,
        headers={"User-Agent": USER_AGENT},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # none is ever kept, or even looked at
        event_hooks=dict(hooks or {}),
    )


def open_transport(
    *, ca_bundle: str | None, environ: Mapping[str, str], trace: Callable[[str], None] | None = None
) -> "Transport":
    """Return our transport, which trusts whom *ca_bundle* names, and takes the proxies in *environ*."""
    from xapi_cli.http import proxies
    from xapi_cli.http.transport import Transport

    def context() -> "ssl.SSLContext":
        from xapi_cli.http import tls

        return tls.context(ca_bundle, environ)

    return Transport(context, lambda scheme, host, port: proxies.proxy_for(scheme, host, port, environ), trace)
