"""The Python API: an `httpx.Client` with base URL, token and automatic login built in."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

import httpx

from xapi_cli.auth.token_source import MAX_REPLAYS, TokenSource
from xapi_cli.context import Context
from xapi_cli.errors import RedirectError, TokenRejected, UsageError, XapiError
from xapi_cli.http import authorization, decoding, urls
from xapi_cli.http.httpx_transport import converted_response, timeouts_of
from xapi_cli.http.messages import USER_AGENT, Response
from xapi_cli.http.send import ENCODING, MAX_REDIRECTS, Call, Sender, redirected_call
from xapi_cli.http.transport import Transport
from xapi_cli.request import items, read_only
from xapi_cli.request.body.spool import Text
from xapi_cli.settings.table import LIBRARY_PARAMETERS
from xapi_cli.system.terminal import Terminal

if TYPE_CHECKING:
    from httpx._types import URLTypes

    from xapi_cli.system.style import Name

_HEADERS_OF_TRANSPORT = {b"connection", b"content-length", b"transfer-encoding"}


def open_client(profile: str | None = None, **overrides: str | float | bool | os.PathLike[str] | None) -> httpx.Client:
    """Return a client for the API that *profile* and the environment select; close it, or use it in `with`.

    *overrides* are settings: base_url, username, storage, timeout, ca_bundle,
    read_only and log. They have the same meaning as the command-line flags of these names.
    The client is thread-safe. It sends the token with each request and logs in
    automatically, as commands do, but never prompts. Failures raise exceptions
    from `xapi_cli.errors`: a final 401 raises TokenRejected. The caller checks
    all other statuses.
    """
    context = _LibraryContext(profile, overrides)
    with _texts(context):
        return _LibraryClient(context, context.tokens())


@contextmanager
def _texts(context: Context) -> Iterator[None]:
    """Let the hint of a failure be a text, with the parameters of `open_client` in place of flags."""
    try:
        yield
    except XapiError as error:
        hint = error.hint or error.default_hint
        error.hint = None if hint is None else context.terminal.text(hint)
        raise


class _LibraryContext(Context):
    """The context inside a Python program: it does not use the standard streams, and it has no deadline."""

    def __init__(self, profile: str | None, overrides: dict[str, Any]) -> None:
        for name in overrides:
            if name not in LIBRARY_PARAMETERS:
                raise TypeError(
                    f"open_client() has no setting {name!r}; valid settings: {', '.join(LIBRARY_PARAMETERS)}"
                )
        super().__init__(os.environ, terminal=_LogTerminal(os.environ, has_streams=False))
        given = {name: str(value) for name, value in overrides.items() if value is not None}
        self.command = "library"
        self.option = str  # a parameter has the name of its setting
        self.flags = {"profile": profile, "no_input": "1", **given}

    @cached_property
    def transport(self) -> Transport:
        """The transport that sends all requests, those of logins too: the server may serve one connection at a time."""
        return self.open_transport()

    @property
    def deadline(self) -> None:
        """None: --max-time limits a command, not a program that uses the library."""
        return


class _LogTerminal(Terminal):
    """Log to the logger `xapi_cli` what commands write to stderr."""

    def _message(self, level: str, text: str, color: "Name") -> None:
        import logging

        number = logging.INFO if level == "note" else logging.WARNING
        logging.getLogger("xapi_cli").log(number, "%s", self._shown(text))


class _LibraryClient(httpx.Client):
    """Resolve URLs by the rules of PATH; refuse a URL or redirect that leads to another origin."""

    def __init__(self, context: _LibraryContext, tokens: TokenSource) -> None:
        self._root, self._context = context.base_url, context
        super().__init__(
            base_url=self._root,
            transport=_ApiTransport(context, tokens),
            timeout=context.settings.timeout,
            trust_env=False,
            headers=_client_headers(context.default_headers),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # stores no cookies
            max_redirects=MAX_REDIRECTS + 1,  # `redirected_call` raises the error
        )

    def build_request(self, method: str, url: "URLTypes", **more: Any) -> httpx.Request:
        """Return the request for *url*, resolved against the base URL; raises UsageError if *url* is not valid."""
        with _texts(self._context):
            target = urls.resolve(self._root, str(url))
        return super().build_request(method, target, **more)

    def send(self, request: httpx.Request, **more: Any) -> httpx.Response:
        """Return the response to *request*; raises the exceptions of `xapi_cli.errors`."""
        with _texts(self._context):
            return super().send(request, **more)

    def _build_redirect_request(self, request: httpx.Request, response: httpx.Response) -> httpx.Request:
        """Return the request that follows the redirect in *response*, by the rules of commands."""
        call, redirects = Call(request.method, str(request.url)), len(response.history) + 1
        target = redirected_call(call, response.extensions["response"], redirects, base_url=self._root)
        if target is None or not urls.same_origin(target.url, self._root):
            path = urls.displayed(request.url.path)
            raise RedirectError(
                f"{request.method} {path} responded with {response.status_code}, a redirect to another origin",
                hint="check the base URL",
            )
        redirect = super()._build_redirect_request(request, response)
        redirect.url = httpx.URL(target.url)  # without user info; httpx might parse the Location header differently
        return redirect


def _client_headers(defaults: Sequence[tuple[str, str]]) -> httpx.Headers:
    """Return the headers of all requests of a client, with those *defaults* that the profile sets."""
    headers = httpx.Headers({"User-Agent": USER_AGENT, "Accept-Encoding": decoding.ACCEPTED})
    names = {name.lower() for name, _ in defaults}
    kept = [(name, value) for name, value in headers.multi_items() if name.lower() not in names]
    return httpx.Headers([*kept, *defaults], encoding="utf-8")


class _ApiTransport(httpx.BaseTransport):
    """Send requests as commands do, with the token of *tokens*, and only to the origin of the API."""

    def __init__(self, context: _LibraryContext, tokens: TokenSource) -> None:
        self._context, self._tokens, self._transport = context, tokens, context.transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response to *request*, whose body is read into memory so that it can be sent again.

        A request that has an Authorization header is sent without the token. Raises UsageError if commands do not send
        its method, if the origin of the URL is not that of the base URL, or if its Content-Length is wrong;
        TokenRejected for a final 401; and what a request and a login raise.
        """
        context, url = self._context, str(request.url)
        items.check_method(request.method)
        if not urls.same_origin(url, context.base_url):
            raise UsageError("the URL is not on the origin of the base URL", hint="pass a path, or a URL of the API")
        if context.settings.read_only:
            read_only.check(request.method, request.headers, remedy="open the client with read_only=False")
        body = request.read()
        if request.headers.get("Content-Length", str(len(body))) != str(len(body)):
            raise UsageError("the Content-Length header does not match the length of the body", hint="omit it")
        headers = [
            (name.decode("ascii"), value.decode(*ENCODING))
            for name, value in request.headers.raw
            if name.lower() not in _HEADERS_OF_TRANSPORT
        ]
        has_own_token = authorization.is_set_by_user(headers)
        sender = Sender(
            self._transport,
            context.base_url,
            None if has_own_token else self._tokens,
            follow=False,
            replays=MAX_REPLAYS,
            timeouts=timeouts_of(request),
        )
        outcome = sender.send(Call(request.method, url, headers, Text(body) if body else None))
        if outcome.is_rejection and not has_own_token:
            outcome.response.close()
            message = f"{request.method} {urls.displayed(request.url.path)} responded with 401"
            raise TokenRejected(message, hint=self._tokens.advice())
        response = converted_response(outcome.response)
        response.stream = _NamedStream(outcome.response, self._context)
        return response

    def close(self) -> None:
        self._context.close()


class _NamedStream(httpx.SyncByteStream):
    """The body of *response*; failures name the parameters of `open_client`."""

    def __init__(self, response: Response, context: _LibraryContext) -> None:
        self._response, self._context = response, context

    def __iter__(self) -> Iterator[bytes]:
        with _texts(self._context):
            yield from self._response.decoded()

    def close(self) -> None:
        self._response.close()
