"""The output of --verbose: request lines, status lines and headers, with secrets redacted."""

import re
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from xapi_cli.system.render import printable

if TYPE_CHECKING:
    import httpx

_SECRET_NAME = re.compile(
    r"auth|cookie|token|secret|passw|credential|session|signature|assertion|saml|ticket|api[-_]?key"
    r"|^(?:key|sig|code|pwd|jwt|otp)$",
    re.IGNORECASE,
)
_USER_INFO = re.compile(r"//[^/?#\s<>\"]*@")
_PARAMETER = re.compile(r"[?&#;]([^=?&#;]*)=")
_END_OF_VALUE = re.compile(r"[&#>]|$")  # >: a Link header has its URL in angle brackets
HIDDEN = "***"


class VerboseLog:
    """httpx event hooks that report requests and responses to *say*, line by line, with *secrets* redacted."""

    def __init__(self, say: Callable[[str], None], secrets: Iterable[str | None] = ()) -> None:
        self._say = say
        self._secrets = {secret for secret in secrets if secret}
        self._began = 0.0

    @property
    def hooks(self) -> dict[str, list[Callable[..., Any]]]:
        """The event hooks, in the format of `httpx.Client`."""
        return {"request": [self._request], "response": [self._response]}

    def trace(self, line: str) -> None:
        """Report a *line* about the connection."""
        self._say(printable(self._without_secrets(line)))

    def _request(self, request: "httpx.Request") -> None:
        authorization = request.headers.get("Authorization", "")
        if authorization:
            self._secrets.add(authorization.partition(" ")[2] or authorization)
        target = request.url.raw_path.decode("ascii", "replace")
        self._began = time.monotonic()
        self._tell(">", f"{request.method} {redacted_url(target)} HTTP/1.1", request.headers.raw)

    def _response(self, response: "httpx.Response") -> None:
        version = str(response.extensions.get("http_version", b"HTTP/1.1"), "ascii")
        reason = response.extensions.get("reason_phrase", b"").decode("utf-8", "backslashreplace")
        self._say(f"* answered after {round((time.monotonic() - self._began) * 1000)} ms")
        self._tell("<", f"{version} {response.status_code} {reason}".rstrip(), response.headers.raw)

    def _tell(self, sign: str, first: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        lines = [first]
        for raw_name, raw_value in headers:
            name, value = raw_name.decode("ascii", "replace"), raw_value.decode("utf-8", "backslashreplace")
            lines.append(f"{name}: {redacted(name, value)}")
        for line in (*lines, ""):
            self._say(printable(f"{sign} {self._without_secrets(line)}".rstrip()))

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text


def redacted(name: str, value: str) -> str:
    """Return the header *value* for display: hidden if *name* denotes a secret, else with the URLs in it redacted."""
    if not _SECRET_NAME.search(name) or name.lower() == "www-authenticate":
        return redacted_url(value)
    scheme, blank, _ = value.partition(" ")
    return f"{scheme} {HIDDEN}" if blank and name.lower().endswith("authorization") else HIDDEN


def redacted_url(text: str) -> str:
    """Return *text*, a URL or a value with URLs in it, with user info and the values of secret parameters redacted.

    A parameter is secret if its name denotes a secret, or if its value is an encoded URL with secrets. It can be in a
    query, in a fragment or after a semicolon.
    """
    text = _USER_INFO.sub(f"//{HIDDEN}@", text)
    shown, start = "", 0
    for found in _PARAMETER.finditer(text):
        if found.start() < start:
            continue
        ending = _END_OF_VALUE.search(text, found.end())
        end = ending.start() if ending else len(text)
        if _SECRET_NAME.search(found[1].strip()) or _encodes_secrets(text[found.end() : end]):
            shown += text[start : found.end()] + HIDDEN
            start = end
    return shown + text[start:]


def _encodes_secrets(value: str) -> bool:
    if "%" not in value:
        return False
    from urllib.parse import unquote

    plain = unquote(value)
    return plain != value and (redacted_url(plain) != plain or _encodes_secrets(plain))


def joined_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by lowercase name; the values of a repeated header are joined by `, `."""
    joined: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("utf-8", "backslashreplace")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined
