"""Which requests of clients are forwarded: the host, the origin, the key, the target, `--allow` and read-only mode."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Sequence
from hmac import compare_digest
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from xapi_cli.errors import UsageError
from xapi_cli.features.proxy.incoming import RequestHead
from xapi_cli.http import urls
from xapi_cli.http.header_syntax import REFUSED_METHODS
from xapi_cli.request import read_only

_METHOD = re.compile(r"\*|[A-Za-z]+(?:-[A-Za-z]+)*")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_ABSOLUTE = re.compile(r"http://([^/?#]*)", re.IGNORECASE)
_REFUSED_METHODS = {**REFUSED_METHODS, "TRACK": REFUSED_METHODS["TRACE"]}
_MAX_DECODINGS = 5  # of a path; a server and the gateways before it may each decode it once
_NAVIGATION = re.compile(r"[/\\]\.{1,2}(?:;[^/\\]*)?(?=[/\\]|$)|[\x00-\x1f\x7f-\x9f]")


class Refusal(Exception):
    """The request is not forwarded; *status* is that of the response, *kind* and *message* are its content."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


class Allowed(NamedTuple):
    """One value of `--allow`: *method* is `*` for any; in *path*, each `*` stands for any characters."""

    method: str
    path: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> "Allowed":
        """Return *text*, such as `GET /x-api/*`; raises UsageError if it is not valid."""
        method, _, path = text.strip().partition(" ")
        path = path.strip()
        if not _METHOD.fullmatch(method) or not path.startswith(("/", "*")) or "?" in path or " " in path:
            raise UsageError(f"--allow {text!r} is not METHOD PATH", hint="write it like 'GET /x-api/*'")
        pattern = ".*".join(map(re.escape, path.split("*")))
        return cls(method.upper(), re.compile(pattern, re.DOTALL))

    def matches(self, method: str, path: str) -> bool:
        """Return whether a request with *method* for *path* is allowed."""
        return self.method in ("*", method) and self.path.fullmatch(path) is not None


class Rules(NamedTuple):
    """The rules of a proxy for the API at *base_url*.

    *key* is what clients on TCP must send as a bearer token. Without *allowed*, every method and path is.
    In read-only mode, *write_remedy* is what allows a client to write. After *has_expired*, every request is refused.
    """

    base_url: str
    key: str
    allowed: Sequence[Allowed] = ()
    write_remedy: str | None = None
    has_expired: Callable[[], bool] = lambda: False

    @property
    def origin(self) -> str:
        """The origin of the API, as the start of a URL."""
        return urls.root(self.base_url)

    def check_added(self, headers: Iterable[str]) -> None:
        """Raise UsageError if the proxy must not add *headers*, given as names, because one evades these rules."""
        names = list(headers)
        if self.write_remedy is not None and (name := read_only.override_in(names)):
            raise UsageError(
                f"the proxy was not started: the header {name} of the profile selects another method (read-only mode)",
                hint=f"remove the header from the profile, or {self.write_remedy}",
            )
        if self.allowed and (name := _override_in(names)):
            raise UsageError(
                f"the proxy was not started: --allow cannot limit the header {name} of the profile, which selects"
                " another method or path",
                hint="remove the header from the profile, or omit --allow",
            )

    def url_of(self, head: RequestHead, *, port: int | None) -> str:
        """Return the URL to which the request with *head* is forwarded; raises Refusal.

        *port* is the TCP port of the proxy on which it arrived, None on a Unix socket, which requires no key.
        """
        host = head.headers.get("Host").lower()
        self._check_host(host, port)
        if "Origin" in head.headers:
            raise Refusal(403, "origin", "the request has an Origin header: web pages may not use the proxy")
        if port is not None and not self._has_key(head):
            raise Refusal(401, "key", "the request has no valid key; send XAPI_TOKEN of the proxy as a bearer token")
        if self.has_expired():
            raise Refusal(401, "expired", "the time of --ttl is over; start the proxy again")
        if reason := _REFUSED_METHODS.get(head.method.upper()):
            raise Refusal(403, "method", f"{head.method.upper()} was refused: {reason}")
        if "websocket" in head.headers.get("Upgrade").lower():
            raise Refusal(403, "upgrade", "WebSocket was refused: the proxy forwards only HTTP/1.1")
        url = self._resolved(head, host)
        self._check_allowed(head, url)
        return url

    def _check_host(self, host: str, port: int | None) -> None:
        """Raise Refusal unless the client addresses the proxy or the API; a web page may use another name."""
        found = _HOST.fullmatch(host)
        name, given = (found[1], found[2]) if found else ("", None)
        if port is not None:
            is_own = name in _LOOPBACK and int(given or 80) == port
        else:
            api = urls.origin(self.base_url)[1]
            is_own = bool(name) and (name in _LOOPBACK or "." not in name.strip("[]") or name.strip("[]") == api)
        if not is_own:
            raise Refusal(421, "host", "the Host header is not that of the proxy")

    def _has_key(self, head: RequestHead) -> bool:
        """Return whether the request has the key as a bearer token, or as the password of Basic authentication."""
        scheme, _, value = head.headers.get("Authorization").partition(" ")
        key = value.strip().encode("latin-1")
        if scheme.lower() == "basic":
            try:
                key = base64.b64decode(key, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        return scheme.lower() in {"bearer", "basic"} and compare_digest(key, self.key.encode())

    def _resolved(self, head: RequestHead, host: str) -> str:
        """Return the URL of the target of *head*; an absolute one must be that of the proxy or of the API."""
        target = head.target
        if (own := _ABSOLUTE.match(target)) and own[1].lower() == host:
            target = target[own.end() :] or "/"
            target = target if target.startswith("/") else f"/{target}"
        is_absolute = "://" in target and not target.startswith("/")
        try:
            if not is_absolute and not target.startswith("/"):
                raise UsageError("the target of the request is not a path")
            return urls.resolve(self.origin, target)
        except UsageError as error:
            message = error.message.replace("PATH", "the target", 1)
            raise Refusal(421 if is_absolute else 400, "target", message) from None

    def _check_allowed(self, head: RequestHead, url: str) -> None:
        names = [name.decode("ascii") for name, _ in head.headers.raw]
        if self.write_remedy is not None:
            try:
                read_only.check(head.method, names, remedy=self.write_remedy)
            except UsageError as error:
                raise Refusal(403, "read-only", str(error)) from None
        if self.allowed and (name := _override_in(names)):
            raise Refusal(403, "not-allowed", f"the header {name} selects another method or path; see --allow")
        path = url.removeprefix(self.origin).partition("?")[0]
        if self.allowed and not _is_unambiguous(path):
            raise Refusal(403, "not-allowed", "servers may understand this path as another one; see --allow")
        if self.allowed and not any(each.matches(head.method, path) for each in self.allowed):
            raise Refusal(
                403, "not-allowed", f"{head.method} for this path is not allowed; see --allow of `xapi proxy`"
            )


def _is_unambiguous(path: str) -> bool:
    """Return whether *path* stays the same path for a server that decodes it, however often.

    It is not if a decoded form has dot segments, with parameters too (`..;x`), or control characters, or is not UTF-8
    (overlong forms).
    """
    current = path.encode()
    for _ in range(_MAX_DECODINGS):
        try:
            if _NAVIGATION.search(current.decode()):
                return False
        except UnicodeDecodeError:
            return False
        decoded = unquote_to_bytes(current)
        if decoded == current:
            return True
        current = decoded
    return False


def _override_in(headers: Sequence[str]) -> str | None:
    """Return a name in *headers* that selects another method or path in some frameworks, or None."""
    return read_only.override_in(headers) or read_only.override_in(headers, read_only.PATH_OVERRIDES)
