"""The password grant (RFC 6749, section 4.3): one request, a token or an error; and a probe of its endpoint."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from urllib.parse import quote, unquote, unquote_plus

import httpx

from xapi_cli.auth.account import name_of
from xapi_cli.errors import (
    RESEND,
    ClientStatusError,
    GrantRefused,
    InvalidTokenResponse,
    LoginRefused,
    NetworkError,
    RedirectError,
    ServerStatusError,
    XapiError,
)
from xapi_cli.hints import Run
from xapi_cli.http import retry, urls
from xapi_cli.http.messages import USER_AGENT
from xapi_cli.http.timeouts import time_limit
from xapi_cli.system.render import printable, shortened
from xapi_cli.tokens import Identity, Token, is_access_token

_CHECK_URL = "check the base URL, which is the part before /x-api/token"
_MAX_BODY = 1024 * 1024
_MAX_LIFETIME = 10 * 365 * 86400  # seconds; a lifetime of more than ten years is a mistake, not an expiry
_ERROR_CODE_PATTERN = re.compile(r"[a-z_]{1,40}")  # the error codes of RFC 6749, section 5.2, and similar ones
# The codes of that section, and of section 4.1.2.1, that say nothing about the password.
_OTHER_CODES = frozenset(
    {"invalid_client", "invalid_scope", "unauthorized_client", "unsupported_grant_type", "invalid_request"}
    | {"server_error", "temporarily_unavailable"}
)
_NEEDS_CERTIFICATE = re.compile(rb"no required ssl certificate|the ssl certificate error", re.IGNORECASE)  # of nginx
_MAX_PROBE_TIMEOUT = 10.0  # seconds; the user waits for the probe


def token_url(base_url: str) -> str:
    """Return the URL of the token endpoint."""
    return f"{base_url}/x-api/token"


def form(username: str, password: str) -> bytes:
    """Return the request body: each value percent-encoded, a space as %20."""
    encoded = [quote(value.encode("utf-8", "surrogateescape"), safe="") for value in (username, password)]
    return "grant_type=password&username={}&password={}".format(*encoded).encode()


def request_token(
    transport: httpx.BaseTransport,
    identity: Identity,
    password: str,
    *,
    timeout: float,
    now: Callable[[], datetime],
    origin: str = "the password",
    deadline: float | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> Token:
    """Request a new token for *identity* with *password*, which *origin* names, within *timeout* seconds in total.

    *now* returns the current time; *deadline* is the monotonic time at which the whole command times out. If others
    can read the password in transit, *warn* is called before it is sent. Raises LoginRefused, GrantRefused,
    RedirectError, ClientStatusError, ServerStatusError, InvalidTokenResponse, NetworkError or TimeoutExpired.
    """
    url, body = token_url(identity.base_url), form(identity.username, password)
    where = printable(identity.base_url)
    headers = {
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": USER_AGENT,
        "Content-Type": "application/x-www-form-urlencoded",
        "Content-Length": str(len(body)),
    }
    extensions = {
        "login": True,
        **time_limit(timeout, deadline),
    }
    if urls.is_exposed(url):
        warn(f"{where} is plain http: password and token can be read in transit; use https")
    requested_at = now()
    request = httpx.Request("POST", url, headers=headers, content=body, extensions=extensions)
    with _response(transport, request) as response:
        if not response.is_success:
            error = _error(response, identity, password, origin)
            wait = retry.retry_after_seconds(response.headers.get("Retry-After", ""))
            raise error.concerning(status=response.status_code, method="POST", url=url, retry_after=wait)
        try:
            return parse(_read_limited(response, url), requested_at, url)
        except NetworkError as error:
            if RESEND in (error.hint, error.default_hint):
                error.hint = ("run ", Run("login"), " to log in again")
            error.concerning(status=response.status_code, method="POST", url=url)
            raise


@contextmanager
def _response(transport: httpx.BaseTransport, request: httpx.Request) -> Iterator[httpx.Response]:
    """Send *request*, which has all its headers, over *transport*; close its response at the end.

    No redirects are followed: a redirect would post the password to any target (CWE-601).
    """
    no_limit = httpx.Timeout(None)  # in place of the five seconds of httpx: the request has a deadline
    client = httpx.Client(
        transport=transport, trust_env=False, timeout=no_limit, event_hooks={"response": [_keep_location]}
    )
    response = client.send(request, stream=True)
    try:
        yield response
    finally:
        response.close()


def _keep_location(response: httpx.Response) -> None:
    """Move Location to an extension: httpx builds the request that follows a redirect, and fails if it is not valid."""
    response.extensions["location"] = response.headers.pop("Location", "")


def parse(body: bytes, requested_at: datetime, url: str) -> Token:
    """Return the token in the *body* of a 2xx response; raise InvalidTokenResponse, which never contains the body."""
    try:
        members = json.loads(body, parse_int=float)  # accepts any number of digits; only expires_in is used
    except (ValueError, RecursionError) as error:
        raise _invalid(url, f"the body is not valid JSON ({len(body)} bytes)") from error
    if not isinstance(members, dict):
        raise _invalid(url, "the body is not a JSON object")
    access_token, token_type = members.get("access_token"), members.get("token_type")
    if not isinstance(access_token, str) or not access_token:
        raise _invalid(url, "access_token is missing, empty or not a string")
    if not is_access_token(access_token):
        raise _invalid(url, "access_token contains characters that are not allowed in a token")
    if token_type is not None and (not isinstance(token_type, str) or token_type.lower() != "bearer"):
        raise _invalid(url, "token_type is not bearer")
    return Token(access_token, "bearer", requested_at, _expiry(members.get("expires_in"), requested_at))


def _redirect_error(response: httpx.Response, url: str, password: str | None = None) -> RedirectError:
    """Return the error for a redirect by the token endpoint *url*; the *password* is redacted in the target."""
    location = response.extensions["location"].partition("?")[0].partition("#")[0]
    with suppress(urls.InvalidURL):  # an invalid target is shown as is
        location = urls.join(url, location) if location else ""
    if password and _repeats(location, password):
        location = "***"
    target = printable(re.sub(r"//[^/?#]*@", "//", location))
    if not target:
        without = f"the token endpoint {url} responded with {response.status_code}, a redirect without a target"
        return RedirectError(without, hint="check the base URL")
    usable = target.startswith(("https://", "http://")) and target.endswith("/x-api/token")
    base = target.removesuffix("/x-api/token") if usable else "URL"
    return RedirectError(
        f"the token endpoint {url} redirects to {target}, and a password is not sent after a redirect",
        hint=("if you trust it, set the base URL: ", Run("login", "base_url", base)),
    )


def _expiry(expires_in: object, requested_at: datetime) -> datetime | None:
    """Return the expiry time, or None if *expires_in* is not usable: then only a 401 shows that it has expired."""
    if isinstance(expires_in, bool) or not isinstance(expires_in, int | float | str):
        return None
    try:
        seconds = float(expires_in)
    except (ValueError, OverflowError):
        return None
    return requested_at + timedelta(seconds=seconds) if 0 < seconds <= _MAX_LIFETIME else None


def _read_limited(response: httpx.Response, url: str) -> bytes:
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > _MAX_BODY:
            raise _invalid(url, "the body is larger than 1 MiB")
    return bytes(body)


def _error(response: httpx.Response, identity: Identity, password: str, origin: str) -> XapiError:
    status, url = response.status_code, printable(token_url(identity.base_url))
    if status in (400, 401, 403, 422):
        return _refusal(response, identity, password, origin)
    if status < 400:
        return _redirect_error(response, url, password)
    error = ServerStatusError if status >= 500 else ClientStatusError
    problem = f"the token endpoint responded with {status}"
    if status in (404, 405, 501):
        return error(
            f"{problem} {httpx.codes.get_reason_phrase(status)}: {url}", hint=f"{_CHECK_URL}, and then {origin}"
        )
    if status == retry.TOO_MANY_REQUESTS:
        hint = retry.later_hint(response.headers.get("Retry-After", ""))
        return error(f"{problem} (too many requests) at {url}", hint=hint)
    return error(f"{problem} at {url}", hint="try again later" if status >= 500 else "check the base URL")


def _refusal(response: httpx.Response, identity: Identity, password: str, origin: str) -> XapiError:
    """Return the error for a status that usually says that the password is wrong.

    The response may come from a server other than the API, and may repeat the password.
    """
    status, url, name = response.status_code, printable(token_url(identity.base_url)), name_of(identity)
    try:
        body = _read_limited(response, "")
    except XapiError:
        body = b""
    code, description = _error_code(body, password)
    if code in _OTHER_CODES:
        return GrantRefused(
            f"the token endpoint refused the login as {name} ({status} {code}{description})",
            hint="check the base URL, or ask the operators of the API: the password is not the reason",
        )
    if status == 400 and _NEEDS_CERTIFICATE.search(body[:4096]):
        return GrantRefused(f"{url} requires a client certificate, which xapi does not support", hint=_CHECK_URL)
    if status != 401 and "html" in response.headers.get("Content-Type", "").lower():
        return GrantRefused(f"{url} responded with {status} and a web page", hint=f"{_CHECK_URL}, and then {origin}")
    if code is None:
        reason = f" from {url}, {'which did not respond with JSON' if description is None else 'without an error code'}"
        check = f"check the base URL, {origin}"
    else:
        reason = f" {code}{description}"
        check = f"check {origin}" if code == "invalid_grant" else f"check the base URL, {origin}"
    rights = "; the API serves only users with master rights" if status == 403 else ""
    return LoginRefused(
        f"login as {name} was rejected ({status}{reason})",
        hint=f"{check}, and the username{rights}",
        has_error_code=code is not None,
    )


def _error_code(body: bytes, password: str) -> tuple[str | None, str | None]:
    """Return the error code (RFC 6749, section 5.2) and `: ` with its description, empty without one.

    The code is None if there is none, the description is None if *body* is not JSON. What contains the password is
    omitted.
    """
    try:
        members = json.loads(body or b"null")
    except (ValueError, RecursionError):
        return None, None
    code = members.get("error") if isinstance(members, dict) else None
    if not isinstance(code, str) or not _ERROR_CODE_PATTERN.fullmatch(code) or code in password or password in code:
        return None, ""
    text = members.get("error_description")
    description = text.strip() if isinstance(text, str) else ""
    return code, f": {shortened(description, 200)}" if description and not _repeats(description, password) else ""


def _repeats(text: str, password: str) -> bool:
    return any(password in decode(text, errors="surrogateescape") for decode in (unquote, unquote_plus))


def _invalid(url: str, why: str) -> InvalidTokenResponse:
    return InvalidTokenResponse(
        f"invalid token response from {printable(url)}: {why}",
        hint="check the base URL, or whether a proxy or a sign-in page responded",
        headers_received=True,
    )


def probe(
    transport: httpx.BaseTransport, base_url: str, *, timeout: float, deadline: float | None = None
) -> tuple[httpx.Response, XapiError | None]:
    """Send a GET request to the token endpoint; return the status line and headers, and a problem or None.

    The API does not document a response to GET, so only a response that no token endpoint sends is a problem. Raises
    NetworkError or TimeoutExpired if there is none within *timeout* seconds, at most 10, or before *deadline*.
    """
    url = token_url(base_url)
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    name = "--timeout" if timeout <= _MAX_PROBE_TIMEOUT else f"the probe's limit of {_MAX_PROBE_TIMEOUT:.0f} s"
    limit = time_limit(min(timeout, _MAX_PROBE_TIMEOUT), deadline, name=name)
    with _response(transport, httpx.Request("GET", url, headers=headers, extensions=limit)) as response:
        return response, _problem(response, printable(url))


def _problem(response: httpx.Response, url: str) -> XapiError | None:
    status, is_page = response.status_code, response.headers.get("Content-Type", "").lower().startswith("text/html")
    if 300 <= status < 400:
        return _redirect_error(response, url)
    if status == 404:
        return ClientStatusError(f"{url} responds with 404 Not Found", hint=_CHECK_URL)
    if status >= 500:
        return ServerStatusError(f"{url} responds with {status}", hint="try again later")
    if status < 300 and is_page:
        hint = "check the base URL, or whether a sign-in page responded"
        return ClientStatusError(f"{url} responds with a web page", hint=hint)
    return None
