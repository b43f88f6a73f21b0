"""The rule of read-only mode: only methods that change nothing on the server are sent."""

from collections.abc import Collection, Iterable

from xapi_cli.errors import UsageError

SAFE = ("GET", "HEAD", "OPTIONS")  # RFC 9110, section 9.2.1; without TRACE, whose response repeats the token
PATH_OVERRIDES = frozenset({"x-original-url", "x-rewrite-url"})  # some frameworks process such a path instead
_OVERRIDES = frozenset({"x-http-method", "x-http-method-override", "x-method-override"})


def check(method: str, headers: Iterable[str], *, remedy: str) -> None:
    """Raise UsageError if a request with *method* and the names *headers* may change something on the server.

    Some frameworks process a request with a header such as X-HTTP-Method-Override as if it had another method.
    *remedy* is what sends the request nevertheless.
    """
    if method not in SAFE:
        raise UsageError(
            f"{method} was not sent: read-only mode allows only GET, HEAD and OPTIONS", hint=f"{remedy} to send it"
        )
    if name := override_in(headers):
        raise UsageError(
            f"the request was not sent: the header {name} selects another method, in read-only mode",
            hint=f"remove the header, or {remedy}",
        )


def override_in(headers: Iterable[str], overrides: Collection[str] = _OVERRIDES) -> str | None:
    """Return the first of the names *headers* that is in *overrides*, by default those that select another method."""
    # CGI and WSGI do not distinguish these characters
    return next((name for name in headers if name.lower().replace("_", "-") in overrides), None)
