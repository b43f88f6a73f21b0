"""The httpx.Client for all requests: xapi's transport, no cookies, no ~/.netrc, no automatic redirects."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from xapi_cli import __version__

if TYPE_CHECKING:
    import ssl
    from contextlib import AbstractContextManager

    import httpx

    from xapi_cli.http.pool import OpenLender
    from xapi_cli.http.proxies import Proxy
    from xapi_cli.http.request_log import RequestLog
    from xapi_cli.http.transport import Transport

USER_AGENT = f"xapi/{__version__}"


def open_http(
    *,
    timeout: float,
    ca_bundle: str | None,
    environ: Mapping[str, str],
    trace: Callable[[str], None] = lambda line: None,
    waiting: Callable[[str], "AbstractContextManager[object]"] = nullcontext,
    hooks: Mapping[str, list[Callable[..., Any]]] | None = None,
    open_lender: "OpenLender | None" = None,
    log: "RequestLog | None" = None,
) -> "httpx.Client":
    """Return a client that sends only explicit requests: it adds no credentials and follows no redirects.

    *timeout*, in seconds, limits each phase of a request. *ca_bundle* and the
    proxies in *environ* are read when a connection first needs them. *trace* is
    called with a line about each connection. *waiting* returns a context manager
    for the wait for a response from a host. *hooks* are httpx event hooks.
    With *open_lender*, connections are borrowed. *log* gets each request that is sent.
    """
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx

    class Client(httpx.Client):
        def _build_redirect_request(self, request: httpx.Request, response: httpx.Response) -> httpx.Request:
            return request  # httpx would raise for an invalid Location, although redirects are not followed

    return Client(
        transport=open_transport(
            ca_bundle=ca_bundle, environ=environ, trace=trace, waiting=waiting, open_lender=open_lender, log=log
        ),
        timeout=timeout,
        trust_env=False,
        follow_redirects=False,
        headers={"User-Agent": USER_AGENT},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # stores no cookies
        event_hooks=dict(hooks or {}),
    )


def open_transport(
    *,
    ca_bundle: str | None,
    environ: Mapping[str, str],
    trace: Callable[[str], None] = lambda line: None,
    waiting: Callable[[str], "AbstractContextManager[object]"] = nullcontext,
    open_lender: "OpenLender | None" = None,
    log: "RequestLog | None" = None,
) -> "Transport":
    """Return xapi's transport, which trusts the CAs in *ca_bundle* and uses the proxies in *environ*.

    Raises UsageError if *ca_bundle* does not exist.
    """
    from xapi_cli.http.transport import Transport

    if ca_bundle:
        from xapi_cli.http import tls

        tls.check_exists(ca_bundle)

    def context() -> "ssl.SSLContext":
        from xapi_cli.http import tls

        return tls.create_context(ca_bundle, environ)

    def proxy_for(scheme: str, host: str, port: int) -> "Proxy | None":
        if "_proxy" not in "\n".join(environ).lower():  # usually; it takes less than importing the module
            return None
        from xapi_cli.http import proxies

        return proxies.proxy_for(scheme, host, port, environ)

    return Transport(
        context,
        proxy_for,
        trace,
        waiting,
        open_lender(ca_bundle, environ) if open_lender else None,
        log,
    )
