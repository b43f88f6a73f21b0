"""Secrets that can be found in every encoding, and a server that records what it receives."""

import base64
import json
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus

from tests.commands.api import response
from tests.support.servers import Peer, Server

_ALPHABET = string.ascii_letters + string.digits


def _core() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(24))


@dataclass(frozen=True)
class Canary:
    """A random secret: letters and digits, surrounded by characters that some encodings escape."""

    name: str
    before: str = ""
    after: str = ""
    core: str = field(default_factory=_core)

    @property
    def text(self) -> str:
        """The secret itself."""
        return f"{self.before}{self.core}{self.after}"

    def forms(self) -> Mapping[str, bytes]:
        """Return the encoded secret by the name of the encoding."""
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

    def encodings(self, data: bytes) -> list[str]:
        """Return the encodings in which the secret occurs in *data*."""
        return [name for name, form in self.forms().items() if form in data]


def _base64(core: str, shift: int) -> bytes:
    """Return the base64 characters of *core* after *shift* other bytes, without those that depend on other bytes."""
    encoded = base64.b64encode(b"\0" * shift + core.encode())
    return encoded[(0, 2, 3)[shift] : (shift + len(core)) // 3 * 4]


PASSWORD = Canary("password", 'p&=+ %é"\\', "漢'")
OLD = Canary("old token", "o.~+/", "==")
NEW = Canary("new token", "n.~+/", "==")
SECRETS = (PASSWORD, OLD, NEW)


class Api(Server):
    """The documented API that behaves as *behavior* states; it issues NEW, and redirects to *elsewhere*."""

    def __init__(self, behavior: str, elsewhere: str) -> None:
        super().__init__([self._serve])
        self.behavior = behavior
        self.elsewhere = elsewhere
        self.logins = bytearray()  # bytes received by the token endpoint, and by all others
        self.calls = bytearray()

    def _serve(self, peer: Peer) -> None:
        while True:
            start = len(peer.received)
            peer.read_request()
            request = bytes(peer.received[start:])
            at_login = request.startswith(b"POST /x-api/token ")
            if at_login:
                self.logins += request
            else:
                self.calls += request
            reply = self._grant(request) if at_login else self._respond(request)
            if reply is None:
                return
            peer.sock.sendall(reply)

    def _grant(self, request: bytes) -> bytes | None:
        match self.behavior:
            case "rejects":
                message = json.dumps({"error": PASSWORD.text, "error_description": request.decode()})
                return response(f"400 {quote(PASSWORD.text)}", message.encode(), f"X-Said: {PASSWORD.text}")
            case "redirects":
                return response("307 Away", b"", f"Location: {self.elsewhere}/{quote(PASSWORD.text)}")
            case "disconnects":
                return None
            case "sends garbage":
                message = json.dumps({"access_token": f"{NEW.text}\r\nX: {PASSWORD.text}"})
                return response(f"200 {PASSWORD.text}", message.encode())
        return response("200 OK", json.dumps({"access_token": NEW.text, "expires_in": 3600}).encode())

    def _respond(self, request: bytes) -> bytes | None:
        token = OLD.text if OLD.text.encode() in request else NEW.text
        match self.behavior:
            case "rejects" | "sends garbage":
                return response("401 Unauthorized", b"no", f"X-Token: {token}")
            case "revokes the token" if token == OLD.text:
                return response("401 Unauthorized", b"no")
            case "redirects":
                return response("302 Away", b"away", f"Location: {self.elsewhere}/there")
            case "repeats":
                return response(
                    f"418 {'x' * 36} {token}", b"no", f"X-Token: {token}", f"Set-Cookie: token={quote(token)}"
                )
            case "disconnects":
                return None
        return response("200 OK", b'{"ok": true}', "Content-Type: application/json")
