"""A secret that is found again in whatever disguise it leaves, and a server that holds what it was told."""

import base64
import json
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus

from tests.servers import Peer, Server

_ALPHABET = string.ascii_letters + string.digits


def _core() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(24))


@dataclass(frozen=True)
class Canary:
    """A random secret: letters and digits in the middle, and around them what has to be escaped here and there."""

    name: str
    before: str = ""
    after: str = ""
    core: str = field(default_factory=_core)

    @property
    def text(self) -> str:
        """The secret itself."""
        return f"{self.before}{self.core}{self.after}"

    def forms(self) -> Mapping[str, bytes]:
        """Return what the secret looks like, by the name of the disguise."""
        text = self.text
        return {
            "plain": self.core.encode(),
            "its first half": self.core[:12].encode(),
            "in full": text.encode(),
            "URL-escaped": quote(text, safe="").encode(),
            "URL-escaped in lower case": quote(text, safe="").lower().encode(),
            "form-escaped": quote_plus(text).encode(),
            "JSON-escaped": json.dumps(text)[1:-1].encode(),
            "reversed": self.core[::-1].encode(),
            "hexadecimal": self.core.encode().hex().encode(),
            "UTF-16": self.core.encode("utf-16-le"),
            **{f"base64, shifted by {shift}": _base64(self.core, shift) for shift in range(3)},
        }

    def disguises(self, data: bytes) -> list[str]:
        """Return the disguises in which the secret is in *data*."""
        return [name for name, form in self.forms().items() if form in data]


def _base64(core: str, shift: int) -> bytes:
    """Return what base64 makes of *core* when *shift* bytes stand before it: the characters that are its alone."""
    encoded = base64.b64encode(b"\0" * shift + core.encode())
    return encoded[(0, 2, 3)[shift] : (shift + len(core)) // 3 * 4]


PASSWORD = Canary("password", 'p&=+ %é"\\', "漢'")
OLD = Canary("old token", "o.~+/", "==")
NEW = Canary("new token", "n.~+/", "==")
SECRETS = (PASSWORD, OLD, NEW)


class Api(Server):
    """The documented API, as *manner* wants it to behave; it grants NEW, and *elsewhere* is where it redirects to."""

    def __init__(self, manner: str, elsewhere: str) -> None:
        super().__init__([self._serve])
        self.manner = manner
        self.elsewhere = elsewhere
        self.logins = bytearray()  # what came to the token endpoint, and to all others
        self.calls = bytearray()

    def _serve(self, peer: Peer) -> None:
        while True:
            start = len(peer.received)
            peer.read_request()
            asked = bytes(peer.received[start:])
            at_login = asked.startswith(b"POST /x-api/token ")
            if at_login:
                self.logins += asked
            else:
                self.calls += asked
            answer = self._grant(asked) if at_login else self._answer(asked)
            if answer is None:
                return
            peer.sock.sendall(answer)

    def _grant(self, asked: bytes) -> bytes | None:
        match self.manner:
            case "refuses":
                said = json.dumps({"error": PASSWORD.text, "error_description": asked.decode()})
                return _response(f"400 {quote(PASSWORD.text)}", said.encode(), f"X-Said: {PASSWORD.text}")
            case "redirects":
                return _response("307 Away", b"", f"Location: {self.elsewhere}/{quote(PASSWORD.text)}")
            case "breaks":
                return None
            case "babbles":
                said = json.dumps({"access_token": f"{NEW.text}\r\nX: {PASSWORD.text}"})
                return _response(f"200 {PASSWORD.text}", said.encode())
        return _response("200 OK", json.dumps({"access_token": NEW.text, "expires_in": 3600}).encode())

    def _answer(self, asked: bytes) -> bytes | None:
        token = OLD.text if OLD.text.encode() in asked else NEW.text
        match self.manner:
            case "refuses" | "babbles":
                return _response("401 Unauthorized", b"no", f"X-Token: {token}")
            case "kills the token" if token == OLD.text:
                return _response("401 Unauthorized", b"no")
            case "redirects":
                return _response("302 Away", b"away", f"Location: {self.elsewhere}/there")
            case "repeats":
                return _response(
                    f"418 {'x' * 36} {token}", b"no", f"X-Token: {token}", f"Set-Cookie: token={quote(token)}"
                )
            case "breaks":
                return None
        return _response("200 OK", b'{"ok": true}', "Content-Type: application/json")


def _response(status: str, body: bytes, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]).encode() + body
