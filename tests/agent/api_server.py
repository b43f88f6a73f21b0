"""The API for the comparison of calls: it responds the same way in each run, and records the requests."""

import gzip
import json
import re
import threading

from tests.support.servers import Peer, Server, Step

USERNAME, PASSWORD = "me@example.com", "correct horse"
ME = {"id": 7, "email": USERNAME, "name": "Zoë", "numbers": [1.10, 12345678901234567890]}

_REASONS = {200: b"OK", 302: b"Found"}


class ApiServer(Server):
    """The API within a `with` block; a login is accepted with `PASSWORD`."""

    def __init__(self) -> None:
        super().__init__([self._step()])
        self.requests: list[bytes] = []
        self._lock = threading.Lock()
        self._issued = 0
        self._failed = 0  # requests to /unavailable-twice
        self.accepts_stored_tokens = True

    def invalidate_tokens(self) -> None:
        """Reject the tokens that were issued so far."""
        self.accepts_stored_tokens = False

    def _step(self) -> Step:
        def step(peer: Peer) -> None:
            start = 0
            while True:
                peer.read_request()
                received, start = bytes(peer.received[start:]), len(peer.received)
                with self._lock:
                    self.requests.append(received)
                    response = self._response(received)
                if response is None:  # never
                    peer.server.stopping.wait(60)
                    return
                peer.sock.sendall(response)
                if b"\r\nConnection: close\r\n" in response or not response:
                    return

        return step

    def _response(self, received: bytes) -> bytes | None:
        head, _, body = received.partition(b"\r\n\r\n")
        method, target, _ = head.partition(b"\r\n")[0].decode().split(" ")
        path = target.partition("?")[0]
        if path == "/x-api/token":
            return self._login(body)
        if not self._is_authorized(head):
            return _response(401, {"detail": "invalid token"})
        if found := re.fullmatch(r"/status/(\d+)", path):
            return _response(int(found[1]), {"status": int(found[1])})
        if path == "/unavailable-twice":
            self._failed += 1
            return _response(503 if self._failed <= 2 else 200, {"try": self._failed}, "Retry-After: 0")
        return _fixed(path, method, body)

    def _login(self, body: bytes) -> bytes:
        if b"password=correct+horse" not in body and b"password=correct%20horse" not in body:
            return _response(400, {"error": "invalid_grant", "error_description": "wrong password"})
        self._issued += 1
        return _response(200, {"access_token": f"token-{self._issued}", "token_type": "bearer", "expires_in": 3600})

    def _is_authorized(self, head: bytes) -> bool:
        found = re.search(rb"\r\n[Aa]uthorization: Bearer ([\w-]+)", head)
        return found is not None and (self.accepts_stored_tokens or found[1] != b"token-1")


def _fixed(path: str, method: str, body: bytes) -> bytes | None:
    """Return the response to requests whose token is valid; None if there is none."""
    if path == "/echo":
        return _response(200, body, "Content-Type: application/octet-stream")
    if path == "/gzip":
        return _response(200, gzip.compress(json.dumps(ME).encode(), mtime=0), "Content-Encoding: gzip")
    if path == "/never":
        return None
    if path == "/empty":
        return b"HTTP/1.1 204 No Content\r\n\r\n"
    if path in _RAW:
        return _RAW[path]
    content = json.dumps(ME, ensure_ascii=False).encode()
    complete = _response(200, content, "Content-Type: application/json", "X-Secret: access_token=abc")
    return complete.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == "HEAD" else complete


def _response(status: int, body: bytes | object, *headers: str) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [b"HTTP/1.1 %d %s" % (status, _REASONS.get(status, b"Reason")), b"Content-Length: %d" % len(data)]
    return b"\r\n".join([*lines, *(header.encode() for header in headers)]) + b"\r\n\r\n" + data


_RAW = {
    "/redirect": _response(302, b"", "Location: /x-api/me"),
    "/loop": _response(302, b"", "Location: /loop"),
    "/elsewhere": _response(302, b"", "Location: http://localhost:9/x-api/me"),
    "/chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n",
    "/binary": _response(200, bytes(range(256)), "Content-Type: application/octet-stream"),
    "/terminal": _response(200, b"\x1b[31mred\x1b[0m\r\n", "Content-Type: text/plain"),
    "/truncated": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc",
    "/cut-chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nab",
    "/malformed": b"SSH-2.0-OpenSSH_9.2\r\nConnection: close\r\n\r\n",
    "/lost": b"",
    "/until-close": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc",
    "/large": _response(200, b"0123456789abcdef" * 65536),
}
