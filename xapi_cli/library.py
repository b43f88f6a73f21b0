"""The Python API: an `httpx.Client` with base URL, token and automatic login built in."""

import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, NoReturn

import httpx

from xapi_cli.auth.token_source import MAX_REPLAYS, TokenSource
from xapi_cli.errors import UNAUTHORIZED, RedirectError, TokenRejected, UsageError, XapiError
from xapi_cli.http import authorization, urls
from xapi_cli.http.content_coding import accepted
from xapi_cli.http.flow import FinalResponse, Login, Policy, RawHeader, Send
from xapi_cli.http.httpx_transport import HttpxTransport
from xapi_cli.http.messages import USER_AGENT, build_request
from xapi_cli.http.transport import Transport, open_transport
from xapi_cli.request import items, read_only
from xapi_cli.request.calls import Call, displayed, headers_of
from xapi_cli.request.redirects import MAX_REDIRECTS, redirected_call
from xapi_cli.runtime import Runtime
from xapi_cli.settings.table import LIBRARY_PARAMETERS, SETTINGS
from xapi_cli.system.render import printable
from xapi_cli.system.terminal import Terminal

if TYPE_CHECKING:
    from httpx._types import URLTypes

    from xapi_cli.tokens import Token


def open_client(profile: str | None = None, **overrides: str | float | bool | os.PathLike[str] | None) -> httpx.Client:
    """Return a client for the API that *profile* and the environment select; close it, or use it in `with`.

    *overrides* are settings: base_url, username, storage, timeout, ca_bundle,
    read_only and log. They have the same meaning as the command-line flags of these names.
    The client is thread-safe. It sends the token with each request and logs in
    automatically, as commands do, but never prompts. Failures raise exceptions
    from `xapi_cli.errors`: a final 401 raises TokenRejected. The caller checks
    all other statuses.
    """
    with _naming_parameters():
        runtime = _LibraryRuntime(profile, overrides)
        return _LibraryClient(runtime, runtime.tokens())


@contextmanager
def _naming_parameters() -> Iterator[None]:
    """Replace the flags of commands in the text of a failure with the parameters of `open_client`."""
    try:
        yield
    except XapiError as error:
        error.message = _with_parameters(error.message)
        error.hint = error.hint and _with_parameters(error.hint)
        raise


def _with_parameters(text: str) -> str:
    """Return *text* with parameters in place of flags, except in the commands that it suggests."""
    return _flag_pattern().sub(lambda found: _parameter_of_flag().get(found[0], found[0]), text)


@cache
def _parameter_of_flag() -> dict[str, str]:
    names = ("profile", *LIBRARY_PARAMETERS)
    return {flag: name for name in names for flag in SETTINGS[name].flags}


@cache
def _flag_pattern() -> re.Pattern[str]:
    return re.compile(rf"`[^`]*`|(?<![\w-])(?:{'|'.join(_parameter_of_flag())})(?![\w-])")


class _LibraryRuntime(Runtime):
    """The runtime inside a Python program: it does not use the standard streams, and it has no deadline."""

    def __init__(self, profile: str | None, overrides: dict[str, Any]) -> None:
        for name in overrides:
            if name not in LIBRARY_PARAMETERS:
                raise TypeError(
                    f"open_client() has no setting {name!r}; valid settings: {', '.join(LIBRARY_PARAMETERS)}"
                )
        super().__init__(os.environ, terminal=_LogTerminal(os.environ, has_streams=False))
        given = {name: str(value) for name, value in overrides.items() if value is not None}
        self.command = "library"
        self.flags = {"profile": profile, "no_input": "1", **given}

    @cached_property
    def transport(self) -> Transport:
        """The transport that sends all requests, those of logins too: the server may serve one connection at a time."""
        return open_transport(
            timeout=self.settings.timeout, ca_bundle=self.ca_bundle, environ=self.environ, log=self.request_log
        )

    @property
    def deadline(self) -> None:
        """None: --max-time limits a command, not a program that uses the library."""
        return


class _LogTerminal(Terminal):
    """Log to the logger `xapi_cli` what commands write to stderr."""

    def note(self, text: str) -> None:
        """Log *text*, a message about what xapi did, at level INFO."""
        import logging

        logging.getLogger("xapi_cli").info("%s", printable(self.redactor.redact(_with_parameters(text))))

    def warn(self, text: str, *, repeats: bool = False) -> None:
        """Log the warning *text*, once unless it *repeats*."""
        import logging

        if repeats or text not in self._warned:
            self._warned.add(text)
            logging.getLogger("xapi_cli").warning("%s", printable(self.redactor.redact(_with_parameters(text))))


class _LibraryClient(httpx.Client):
    """Resolve URLs by the rules of PATH; refuse a URL or redirect that leads to another origin."""

    def __init__(self, runtime: _LibraryRuntime, tokens: TokenSource) -> None:
        self._root = runtime.base_url
        super().__init__(
            base_url=self._root,
            auth=_Auth(tokens, runtime),
            transport=_SingleOriginTransport(runtime),
            timeout=runtime.settings.timeout,
            trust_env=False,
            headers=_client_headers(runtime.default_headers),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # stores no cookies
            max_redirects=MAX_REDIRECTS + MAX_REPLAYS,  # httpx counts a response with 401 too
        )

    def build_request(self, method: str, url: "URLTypes", **more: Any) -> httpx.Request:
        """Return the request for *url*, resolved against the base URL; raises UsageError if *url* is not valid."""
        with _naming_parameters():
            target = urls.resolve(self._root, str(url))
        return super().build_request(method, target, **more)

    def send(self, request: httpx.Request, **more: Any) -> httpx.Response:
        """Return the response to *request*; raises the exceptions of `xapi_cli.errors`."""
        with _naming_parameters():
            return super().send(request, **more)

    def _build_redirect_request(self, request: httpx.Request, response: httpx.Response) -> httpx.Request:
        target = urls.join(str(request.url), response.headers["Location"])
        if not urls.same_origin(target, self._root):
            raise RedirectError(
                f"{request.method} {_path(request)} responded with {response.status_code}, a redirect to another"
                " origin",
                hint="check the base URL",
            )
        redirects = 1 + sum(each.has_redirect_location for each in response.history)
        if redirects > MAX_REDIRECTS:  # raise the error that commands raise
            redirected_call(Call(request.method, str(request.url)), _Response(response), redirects, base_url=self._root)
        redirect = super()._build_redirect_request(request, response)
        redirect.url = httpx.URL(target)  # without user info; httpx might parse the Location header differently
        return redirect


def _client_headers(defaults: Sequence[tuple[str, str]]) -> httpx.Headers:
    """Return the headers of all requests of a client, with those *defaults* that the profile sets."""
    headers = httpx.Headers({"User-Agent": USER_AGENT, "Accept-Encoding": accepted()})
    names = {name.lower() for name, _ in defaults}
    kept = [(name, value) for name, value in headers.multi_items() if name.lower() not in names]
    return httpx.Headers([*kept, *defaults], encoding="utf-8")


class _SingleOriginTransport(httpx.BaseTransport):
    """Send requests over xapi's transport, and only to the origin of the API."""

    def __init__(self, runtime: _LibraryRuntime) -> None:
        self._runtime = runtime
        self._transport = HttpxTransport(runtime.transport)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response to *request* with its content decoded.

        Raises UsageError if commands do not send its method, if the origin of the URL is not that of the base URL, or
        if its Content-Length is wrong.
        """
        items.check_method(request.method)
        _check_length(request)
        if not urls.same_origin(str(request.url), self._runtime.base_url):
            raise UsageError("the URL is not on the origin of the base URL", hint="pass a path, or a URL of the API")
        if self._runtime.settings.read_only:
            read_only.check(request.method, request.headers, remedy="open the client with read_only=False")
        response = self._transport.handle_request(request)
        assert isinstance(response.stream, httpx.SyncByteStream)  # noqa: S101 - it comes from xapi's transport
        response.stream = _NamedStream(response.stream)
        return response

    def close(self) -> None:
        self._runtime.close()


class _NamedStream(httpx.SyncByteStream):
    """The body *stream* of a response; failures name the parameters of `open_client`."""

    def __init__(self, stream: httpx.SyncByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        with _naming_parameters():
            yield from self._stream

    def close(self) -> None:
        self._stream.close()


class _Response:
    """A response of httpx, as the flow reads it."""

    def __init__(self, response: httpx.Response) -> None:
        self._httpx = response

    @property
    def status(self) -> int:
        return self._httpx.status_code

    @property
    def raw_headers(self) -> Sequence[RawHeader]:
        return self._httpx.headers.raw

    def discard(self) -> None:
        """Discard the body, which may be endless, and reuse the connection if that is quick."""
        discard: Any = self._httpx.extensions.get("discard")
        if discard is not None:
            discard()


class _Auth(httpx.Auth):
    """Send the shared token; after a 401, send a newer one if the previous one was accepted for some request."""

    def __init__(self, tokens: TokenSource, runtime: _LibraryRuntime) -> None:
        self._tokens, self._runtime = tokens, runtime
        self._policy: Policy[Call] = Policy(runtime.base_url, replays=MAX_REPLAYS, tokens=tokens, repeat=self._repeat)

    def _repeat(self, call: Call, token: "Token") -> int:
        """Send *call*, a GET, again with *token* and return the status."""
        own = headers_of(call._replace(headers=self._runtime.default_headers), to_api=True)
        headers = [*own, *authorization.headers(token)]
        response = self._runtime.transport.send(build_request(call.method, call.url, headers))
        response.discard()
        return response.status

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send *request*, renewing the token after a 401; raises TokenRejected if the 401 is final.

        The body is read into memory so that it can be resent. A request that has
        an Authorization header is sent once, without the token.
        """
        if authorization.is_set_by_user(request.headers.items()):
            yield request
            return
        _read_body(request)
        final = yield from self._final_response(request)
        if final.is_rejection:
            self._tokens.record_rejection()
            raise TokenRejected(f"{request.method} {_path(request)} responded with 401", hint=self._tokens.advice())

    def _final_response(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, FinalResponse[_Response]]:
        """Perform the steps of the flow of *request*; httpx follows redirects, each with a new flow."""
        flow = self._policy.flow(Call(request.method, str(request.url)))
        result: _Response | Token | None = None
        attempts = 0
        while True:
            step = flow.send(result)
            if isinstance(step, FinalResponse):
                return step
            if isinstance(step, Login):
                result = step.token_from(self._tokens)
                continue
            assert isinstance(step, Send)  # noqa: S101 - there are no retries, so there is nothing to wait for
            assert step.token is not None  # noqa: S101 - the flow is authenticated
            request.headers.update(authorization.headers(step.token))
            attempts += 1
            request.extensions |= {"attempt": attempts}
            result = _Response((yield request))
            if result.status == UNAUTHORIZED:
                result.discard()  # httpx reads what is left of it before the next request

    def async_auth_flow(self, request: httpx.Request) -> NoReturn:
        """Raise NotImplementedError, because the inherited flow would send no token."""
        raise NotImplementedError("use httpx.Client: an AsyncClient would send no token")


def _read_body(request: httpx.Request) -> None:
    size = len(request.read())
    if request.headers.pop("Transfer-Encoding", None):
        request.headers["Content-Length"] = str(size)


def _check_length(request: httpx.Request) -> None:
    with suppress(httpx.RequestNotRead):  # a stream, which is sent as it is
        size = str(len(request.content))
        if request.headers.get("Content-Length", size) != size:
            raise UsageError("the Content-Length header does not match the length of the body", hint="omit it")


def _path(request: httpx.Request) -> str:
    return displayed(request.url.path)
