"""Checks of the connection to the API: reachability, clock, TLS, proxy."""

from datetime import UTC

from xapi_cli.errors import UsageError, XapiError
from xapi_cli.system.render import relative
from xapi_cli.usecases.doctor.check import Check, NotChecked
from xapi_cli.usecases.doctor.findings import Findings

_CLOCK_TOLERANCE = 60.0  # seconds; an HTTP date has a resolution of one second, and responses take time


def check_network(findings: Findings) -> Check:
    """Check that a token endpoint responds, and that others cannot read what is sent to it."""
    from xapi_cli.auth import endpoint_probe
    from xapi_cli.http import urls
    from xapi_cli.http.proxies import proxy_for

    runtime, base_url, settings = findings.runtime, findings.base_url, findings.settings
    try:
        proxy_for(*urls.origin(base_url), runtime.environ)
    except UsageError as error:
        raise NotChecked("the proxy setting is not valid", "proxy") from error
    try:
        findings.response, problem = endpoint_probe.probe(
            runtime.transport, base_url, timeout=settings.timeout, deadline=runtime.deadline
        )
    except XapiError as error:
        hint = error.hint or "check the base URL, the network of this machine, and the proxy"
        return Check("network", "fail", error.message, hint)
    if problem:
        return Check("network", "warn", problem.message, problem.hint)
    message = f"{base_url} responds ({findings.response.status} from the token endpoint)"
    if findings.response.is_exposed:
        hint = "password and token can be read in transit; use https"
        return Check("network", "warn", f"{message}, but is plain http", hint)
    return Check("network", "pass", message)


def check_clock(findings: Findings) -> Check:
    """Compare the clock with the Date of the server's response: expiry times depend on it."""
    from email.utils import parsedate_to_datetime

    if findings.response is None and findings.base_url:
        raise NotChecked("no response", "network")
    date = findings.response.headers.get("Date") if findings.response is not None else ""
    try:
        server_time = parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return Check("clock", "pass", "cannot be compared: the response has no valid Date header")
    server_time = server_time if server_time.tzinfo else server_time.replace(tzinfo=UTC)
    difference = findings.runtime.now() - server_time
    if abs(difference.total_seconds()) <= _CLOCK_TOLERANCE:
        return Check("clock", "pass", "agrees with the server's clock")
    amount = relative(difference).removeprefix("in ").removesuffix(" ago")
    direction = "ahead of" if difference.total_seconds() > 0 else "behind"
    message = f"this machine's clock is {amount} {direction} the server's"
    return Check("clock", "warn", message, "correct it: xapi uses it to determine whether a token has expired")


def check_tls(findings: Findings) -> Check:
    """Report the TLS version of the connection, and the certificates that are trusted."""
    base_url, ca_bundle = findings.base_url, findings.settings.ca_bundle
    if base_url.startswith("http:"):
        return Check("tls", "pass", "not used: the base URL is plain http")
    environ = findings.runtime.environ
    from_environ = [name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if environ.get(name)]
    trusted = ca_bundle or (" and ".join(from_environ) if from_environ else "the operating system's trust store")
    version = findings.response.tls if findings.response is not None else None
    if version is None:
        raise NotChecked(f"no connection; trusted certificates: {trusted}", "network")
    return Check("tls", "pass", f"{version}, trusted certificates: {trusted}")


def check_proxy(findings: Findings) -> Check:
    """Report the proxy in use, and the variable that sets it."""
    from xapi_cli.http import urls
    from xapi_cli.http.proxies import proxy_for

    proxy = proxy_for(*urls.origin(findings.base_url), findings.runtime.environ)
    if proxy is None:
        return Check("proxy", "pass", "none for this base URL")
    return Check("proxy", "pass", f"{proxy}, from {proxy.variable}", "NO_PROXY excludes hosts")
