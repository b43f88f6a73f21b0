"""Which requests of clients are forwarded: the host, the origin, the key, the target, `--allow` and read-only mode."""

import base64
import binascii
import fnmatch
import re
import time
from collections.abc import Sequence
from hmac import compare_digest
from typing import NamedTuple
from urllib.parse import unquote

from xapi_cli.errors import UsageError
from xapi_cli.features.proxy.incoming import Refusal, RequestHead
from xapi_cli.http import urls
from xapi_cli.http.header_syntax import REFUSED_METHODS
from xapi_cli.request import read_only

_PORT = re.compile(r":[0-9]+$")  # of a Host
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_REFUSED_METHODS = {**REFUSED_METHODS, "TRACK": REFUSED_METHODS["TRACE"]}
_MAX_DECODINGS = 5  # of a path; a server and the gateways before it may each decode it once
_NAVIGATION = re.compile(r"[/\\]\.{1,2}(?:;[^/\\]*)?(?=[/\\]|$)|[\x00-\x1f\x7f-\x9f]")


class Allowed(NamedTuple):
    """One value of `--allow`: *method* is `*` for any; in *path*, each `*` stands for any characters."""

    method: str
    path: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> "Allowed":
        """Return *text*, such as `GET /x-api/*`; raises UsageError if it is not valid."""
        method, _, path = text.partition(" ")
        if not (method == "*" or method.isalpha()) or not path.startswith(("/", "*")) or "?" in path or " " in path:
            raise UsageError(f"--allow {text!r} is not METHOD PATH", hint="write it like 'GET /x-api/*'")
        return cls(method.upper(), re.compile(fnmatch.translate(path.replace("[", "[[]"))))  # only * is special

    def matches(self, method: str, path: str) -> bool:
        """Return whether a request with *method* for *path* is allowed."""
        return self.method in ("*", method) and self.path.fullmatch(path) is not None


class Rules(NamedTuple):
    """The rules of a proxy for the API at *base_url*.

    *key* is what clients on TCP must send as a bearer token. Without *allowed*, every method and path is. The headers
    of the profile with the names *added* are sent with each request. After *expires*, a time of the monotonic clock,
    every request is refused.
    """

    base_url: str
    key: str
    allowed: Sequence[Allowed] = ()
    is_read_only: bool = False
    added: Sequence[str] = ()
    expires: float = float("inf")

    @property
    def origin(self) -> str:
        """The origin of the API, as the start of a URL."""
        return urls.root(self.base_url)

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
        if time.monotonic() >= self.expires:
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
        name = _PORT.sub("", host)
        if port is None:
            is_own = host.isascii() and ("." not in name or name in {*_LOOPBACK, urls.origin(self.base_url)[1]})
        else:
            is_own = name in _LOOPBACK and (host.removeprefix(name) or ":80") == f":{port}"
        if not is_own:
            raise Refusal(421, "host", "the Host header is not that of the proxy")

    def _has_key(self, head: RequestHead) -> bool:
        """Return whether the request has the key as a bearer token, or as the password of Basic authentication."""
        scheme, _, value = head.headers.get("Authorization").partition(" ")
        key = value.strip().encode()
        if scheme.lower() == "basic":
            try:
                key = base64.b64decode(key, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        return scheme.lower() in {"bearer", "basic"} and compare_digest(key, self.key.encode())

    def _resolved(self, head: RequestHead, host: str) -> str:
        """Return the URL of the target of *head*; an absolute one must be that of the proxy or of the API."""
        target = head.target
        if not target.startswith("/"):
            found = {urls.after_origin(target, each) for each in (f"http://{host}", self.base_url)} - {None}
            if not found:
                raise Refusal(421, "target", "the target is neither a path nor a URL of the proxy or of the API")
            target = found.pop() or "/"
        try:
            return urls.resolve(self.origin, target)
        except UsageError as error:
            raise Refusal(400, "target", error.message.replace("PATH", "the target", 1)) from None

    def _check_allowed(self, head: RequestHead, url: str) -> None:
        names = [*self.added, *(name.decode() for name, _ in head.headers.raw)]
        if self.is_read_only:
            try:
                read_only.check(head.method, names, remedy="start the proxy with --write")
            except UsageError as error:
                raise Refusal(403, "read-only", str(error)) from None
        if not self.allowed:
            return
        if name := read_only.override_in(names) or read_only.override_in(names, read_only.PATH_OVERRIDES):
            raise Refusal(403, "not-allowed", f"the header {name} selects another method or path; see --allow")
        path = url.removeprefix(self.origin).partition("?")[0]
        if not _is_unambiguous(path):
            raise Refusal(403, "not-allowed", "servers may understand this path as another one; see --allow")
        if not any(each.matches(head.method, path) for each in self.allowed):
            raise Refusal(
                403, "not-allowed", f"{head.method} for this path is not allowed; see --allow of `xapi proxy`"
            )


def _is_unambiguous(path: str) -> bool:
    """Return whether *path* stays the same path for a server that decodes it, however often.

    It is not if a decoded form has dot segments, with parameters too (`..;x`), or control characters, or is not UTF-8
    (overlong forms).
    """
    for _ in range(_MAX_DECODINGS):
        try:
            decoded = unquote(path, errors="strict")
        except UnicodeDecodeError:
            return False
        if _NAVIGATION.search(decoded):
            return False
        if decoded == path:
            return True
        path = decoded
    return False
