"""The Python API: an `httpx.Client` with base URL, token and automatic login built in."""

import os
from collections.abc import Generator, Iterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, NoReturn

import httpx

from xapi_cli.auth.token_source import MOST_REPLAYS, TokenSource
from xapi_cli.errors import RedirectError, TokenRejected, UsageError
from xapi_cli.http import urls
from xapi_cli.http.client import USER_AGENT, open_transport
from xapi_cli.http.content_coding import decoded
from xapi_cli.runtime import Runtime
from xapi_cli.system.render import printable
from xapi_cli.system.terminal import Terminal
from xapi_cli.tokens import Token

if TYPE_CHECKING:
    from httpx._types import URLTypes

_OVERRIDES = ("base_url", "username", "storage", "timeout", "ca_bundle")


def open_client(profile: str | None = None, **overrides: str | float | os.PathLike[str] | None) -> httpx.Client:
    """Return a client for the API that *profile* and the environment select; close it, or use it in `with`.

    *overrides* are settings: base_url, username, storage, timeout and ca_bundle.
    They have the same meaning as the command-line flags of these names. The
    client is thread-safe. It sends the token with each request and logs in
    automatically, as commands do, but never prompts. Failures raise exceptions
    from `xapi_cli.errors`: a final 401 raises TokenRejected. The caller checks
    all other statuses.
    """
    runtime = _World(profile, overrides)
    return _Client(runtime, TokenSource(runtime.credentials()))


class _World(Runtime):
    """The runtime inside a Python program: it does not use the standard streams, and it has no deadline."""

    def __init__(self, profile: str | None, overrides: dict[str, Any]) -> None:
        for name in overrides:
            if name not in _OVERRIDES:
                raise TypeError(f"open_client() has no setting {name!r}; there are {', '.join(_OVERRIDES)}")
        super().__init__(os.environ, terminal=_Log(os.environ, has_streams=False))
        given = {name: str(value) for name, value in overrides.items() if value is not None}
        self.flags = {"profile": profile, "no_input": "1", **given}

    @property
    def deadline(self) -> None:
        """None: --max-time limits a command, not a program that uses the library."""
        return

    def close(self) -> None:
        """Close the connections that logins used."""
        if "wire" in vars(self):  # the first login creates it
            self.wire.close()


class _Log(Terminal):
    """Log to the logger `xapi_cli` what commands write to stderr."""

    def note(self, text: str) -> None:
        """Log *text*, a message about what xapi did, at level INFO."""
        import logging

        logging.getLogger("xapi_cli").info("%s", printable(self.without_secrets(text)))

    def warn(self, text: str) -> None:
        """Log the warning *text* once."""
        import logging

        if text not in self._warned:
            self._warned.add(text)
            logging.getLogger("xapi_cli").warning("%s", printable(self.without_secrets(text)))


class _Client(httpx.Client):
    """Resolve URLs by the rules of PATH; refuse a URL or redirect that leads to another origin."""

    def __init__(self, world: _World, shared: TokenSource) -> None:
        self._root = world.base_url
        super().__init__(
            base_url=self._root,
            auth=_Auth(shared),
            transport=_OneOrigin(world),
            timeout=world.settings.timeout,
            trust_env=False,
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "gzip, deflate"},
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # stores no cookies
        )

    def build_request(self, method: str, url: "URLTypes", **more: Any) -> httpx.Request:
        """Return the request for *url*, resolved against the base URL; raises UsageError if *url* is not valid."""
        return super().build_request(method, urls.resolve(self._root, str(url)), **more)

    def _build_redirect_request(self, request: httpx.Request, response: httpx.Response) -> httpx.Request:
        target = urls.join(str(request.url), response.headers["Location"])
        if not urls.same_origin(target, self._root):
            raise RedirectError(
                f"{request.method} {_shown(request)} answered {response.status_code}, a redirect to another origin",
                hint="it is not followed; is the base URL right?",
            )
        return super()._build_redirect_request(request, response)


class _OneOrigin(httpx.BaseTransport):
    """Send requests over xapi's transport, and only to the origin of the API."""

    def __init__(self, world: _World) -> None:
        self._world = world
        self._transport = open_transport(ca_bundle=world.settings.ca_bundle, environ=world.environ)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response to *request* with its content decoded, because httpx accepts a truncated gzip body.

        Raises UsageError if the URL has another origin than the base URL.
        """
        if not urls.same_origin(str(request.url), self._world.base_url):
            raise UsageError(
                "the URL is of another origin than the base URL", hint="the token is sent to the API alone"
            )
        response = self._transport.handle_request(request)
        coding = response.headers.get("Content-Encoding")
        if coding is not None and request.method != "HEAD":
            response.stream = _Decoded(response, coding)
            del response.headers["Content-Encoding"]
            response.headers.pop("Content-Length", None)
        return response

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()
        self._world.close()


class _Decoded(httpx.SyncByteStream):
    """The body of *response*, decoded from *coding*; iteration raises NetworkError if it is truncated."""

    def __init__(self, response: httpx.Response, coding: str) -> None:
        assert isinstance(response.stream, httpx.SyncByteStream)  # noqa: S101 - it comes from xapi's transport
        self._stream, self._coding = response.stream, coding

    def __iter__(self) -> Iterator[bytes]:
        return decoded(self._stream, self._coding)

    def close(self) -> None:
        self._stream.close()


class _Auth(httpx.Auth):
    """Send the shared token; after a 401, send a newer one if the previous one was accepted for some request."""

    def __init__(self, shared: TokenSource) -> None:
        self._shared = shared

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send *request*, renewing the token after a 401; raises TokenRejected if the 401 is final.

        The body is read into memory so that it can be resent. A request that has
        an Authorization header is sent once, without the token.
        """
        if "Authorization" in request.headers:
            yield request
            return
        _hold_body(request)
        token = self._shared.current()
        for replays in range(MOST_REPLAYS + 1):
            if (yield from self._is_accepted(request, token)):
                return
            newer = self._shared.renew(token) if replays < MOST_REPLAYS else None
            if newer is None:
                break
            token = newer
        self._shared.refused()
        raise TokenRejected(f"{request.method} {_shown(request)} answered 401", hint=self._shared.advice())

    def _is_accepted(self, request: httpx.Request, token: Token) -> Generator[httpx.Request, httpx.Response, bool]:
        request.headers["Authorization"] = f"Bearer {token.access_token}"
        response = yield request
        if response.status_code != httpx.codes.UNAUTHORIZED:
            self._shared.worked(token)
            return True
        if (discard := response.extensions.get("discard")) is not None:
            discard()
        return False

    def async_auth_flow(self, request: httpx.Request) -> NoReturn:
        """Raise NotImplementedError, because the inherited flow would send no token."""
        raise NotImplementedError("use httpx.Client: an AsyncClient would send no token")


def _hold_body(request: httpx.Request) -> None:
    size = len(request.read())
    if request.headers.pop("Transfer-Encoding", None):
        request.headers["Content-Length"] = str(size)


def _shown(request: httpx.Request) -> str:
    return printable(request.url.path)
