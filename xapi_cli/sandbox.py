"""A test server on loopback that implements the documented API and its documented errors.

It is not the code of the real service: responses that the API documentation does not
specify follow RFC 6749 and RFC 6750.
"""

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Self
from urllib.parse import parse_qsl

from xapi_cli.errors import UsageError

MONTH = 30 * 24 * 60 * 60


@dataclass(frozen=True)
class User:
    """A user account; with *master* rights, the user can call the API."""

    number: int
    email: str
    name: str
    master: bool
    password: str = field(repr=False)


# Each password contains characters that fail unless they are percent-encoded.
MASTER = User(1, "master@example.com", "Mara Master", master=True, password="correct horse + b%20ttery & stäple=1")
MEMBER = User(2, "member@example.com", "Mika Member", master=False, password="ein Träger & 100% + mehr=?#")

PROJECTS = (
    {"id": 1, "name": "Winter Cup", "status": "active"},
    {"id": 2, "name": "Spring Open", "status": "active"},
    {"id": 3, "name": "Autumn League", "status": "archived"},
)


class Sandbox:
    """A context manager that serves the API on loopback; *port* 0 selects a free port.

    *expires_in* is the lifetime of tokens in seconds.
    """

    def __init__(self, port: int = 0, expires_in: int = MONTH) -> None:
        self.expires_in = expires_in
        self.login_attempts = 0
        self.logins = 0
        self.requests = 0  # API requests without logins, including rejected ones
        self.unauthorized = 0
        self._tokens: dict[str, tuple[User, float]] = {}
        self._lock = threading.Lock()
        self._server = _listen(port, self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def base_url(self) -> str:
        """Return the base URL of the server."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def settings(self) -> dict[str, str]:
        """Return the environment variables with which xapi logs in to this server as the master user."""
        return {"XAPI_BASE_URL": self.base_url, "XAPI_USERNAME": MASTER.email, "XAPI_PASSWORD": MASTER.password}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def log_in(self, username: str, password: str) -> str | None:
        """Return a new token, or None if *username* and *password* do not match."""
        user = next((user for user in (MASTER, MEMBER) if user.email == username), None)
        with self._lock:
            self.login_attempts += 1
            if user is None or not secrets.compare_digest(user.password.encode(), password.encode()):
                return None
            self.logins += 1
            token = secrets.token_urlsafe(675)  # 900 characters: opaque and long, as documented
            self._forget_expired()
            self._tokens[token] = (user, time.monotonic() + self.expires_in)
            return token

    def user_of(self, token: str) -> User | None:
        """Return the user of *token*, or None if it is unknown, expired or revoked."""
        with self._lock:
            user, expires_at = self._tokens.get(token, (None, 0.0))
            return user if time.monotonic() < expires_at else None

    def kill_tokens(self) -> int:
        """Revoke all tokens; return the number of tokens that were valid."""
        with self._lock:
            self._forget_expired()
            killed = len(self._tokens)
            self._tokens.clear()
            return killed

    def count(self, status: int) -> None:
        """Count an API request with the response *status*."""
        with self._lock:
            self.requests += 1
            self.unauthorized += status == 401

    def _forget_expired(self) -> None:
        now = time.monotonic()
        self._tokens = {token: owner for token, owner in self._tokens.items() if now < owner[1]}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # idle clients do not delay the shutdown
    request_queue_size = 512  # many processes may connect concurrently
    sandbox: Sandbox

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer.server_bind() performs a DNS lookup
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # only AF_INET

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of broken connections: clients may be killed at any time."""


def _listen(port: int, sandbox: Sandbox) -> _Server:
    try:
        server = _Server(("127.0.0.1", port), _Handler)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no port has that number"
        raise UsageError(f"cannot listen on 127.0.0.1:{port}: {reason}", hint="choose another --port") from error
    server.sandbox = sandbox
    return server


@dataclass(frozen=True)
class _Answer:
    status: int
    content: Any
    headers: dict[str, str] = field(default_factory=dict)


class _BadBodyError(Exception):
    """The request body is truncated, too large or incorrectly framed; the connection cannot be reused."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "xapi-sandbox"
    sys_version = ""
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024  # headers and body in one segment
    server: _Server

    _expects_100 = False
    _body_read = False

    def answer(self) -> None:
        """Respond to a request with any method."""
        self._body_read = False
        path, _, query = self.path.partition("?")
        try:
            self._send(self._routed(path, query))
        except _BadBodyError as error:
            self.close_connection = True
            self._send(_error(400, "invalid_request", str(error)))
        self._drop_body()
        self._expects_100 = False

    do_DELETE = do_GET = do_HEAD = do_OPTIONS = do_PATCH = do_POST = do_PUT = answer  # noqa: N815  # http.server's names

    def handle_expect_100(self) -> bool:
        """Send 100 Continue only when the body is read, so that a 401 can be sent first."""
        self._expects_100 = True
        return True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # http.server's name
        """Log nothing: stderr is for the output of the command."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send errors of http.server itself, such as for an unknown method, as JSON."""
        self.close_connection = True
        self.request_version = self.protocol_version  # parsing of the request may have failed
        self._body_read = True
        self._send(_error(code, "invalid_request", message or explain or "refused"))

    def _routed(self, path: str, query: str) -> _Answer:
        if path == "/x-api/token":
            return self._only_post(self._token)
        if path == "/sandbox/kill-tokens":
            return self._only_post(lambda: _Answer(200, {"killed": self.server.sandbox.kill_tokens()}))
        if path.startswith("/x-api/"):
            answer = self._api(path, query)
            self.server.sandbox.count(answer.status)
            return answer
        return _error(404, "not_found", "the API lies under /x-api/")

    def _only_post(self, then: Callable[[], _Answer]) -> _Answer:
        if self.command == "POST":
            return then()
        return _error(405, "invalid_request", "POST is wanted here", {"Allow": "POST"})

    def _token(self) -> _Answer:
        no_store = {"Cache-Control": "no-store", "Pragma": "no-cache"}  # RFC 6749, section 5.1
        if self.headers.get_content_type() != "application/x-www-form-urlencoded":
            return _error(400, "invalid_request", "the body is to be application/x-www-form-urlencoded", no_store)
        form = _form(b"".join(self._body(limit=64 * 1024)))
        if form is None or not form.keys() >= {"grant_type", "username", "password"}:
            reason = "grant_type, username and password are wanted, once each, percent-encoded"
            return _error(400, "invalid_request", reason, no_store)
        if form["grant_type"] != "password":
            return _error(400, "unsupported_grant_type", "grant_type has to be password", no_store)
        token = self.server.sandbox.log_in(form["username"], form["password"])
        if token is None:
            return _error(400, "invalid_grant", "username and password do not match", no_store)
        expires_in = self.server.sandbox.expires_in
        return _Answer(200, {"access_token": token, "token_type": "bearer", "expires_in": expires_in}, no_store)

    def _api(self, path: str, query: str) -> _Answer:
        scheme, _, token = self.headers.get("Authorization", "").strip().partition(" ")
        if scheme.lower() != "bearer" or not token:
            return _challenge(401, None, "an Authorization header with a bearer token is wanted")
        user = self.server.sandbox.user_of(token.strip())
        if user is None:
            return _challenge(401, "invalid_token", "the token is unknown or has expired")
        if not user.master:
            return _challenge(403, "insufficient_scope", "only users with master rights may use this API")
        return self._resource(path, query, user)

    def _resource(self, path: str, query: str, user: User) -> _Answer:
        if path == "/x-api/echo":
            return _Answer(200, self._echo(path, query))
        if path not in {"/x-api/me", "/x-api/projects"}:
            return _error(404, "not_found", "there is no such resource")
        if self.command not in {"GET", "HEAD"}:
            return _error(405, "invalid_request", "GET is wanted here", {"Allow": "GET, HEAD"})
        if path == "/x-api/me":
            return _Answer(200, {"id": user.number, "email": user.email, "name": user.name, "rights": "master"})
        status = dict(parse_qsl(query)).get("status")
        return _Answer(200, [project for project in PROJECTS if status in {None, project["status"]}])

    def _echo(self, path: str, query: str) -> dict[str, Any]:
        length, digest, start = 0, hashlib.sha256(), b""
        for chunk in self._body():
            length += len(chunk)
            digest.update(chunk)
            if length <= _MEBIBYTE:
                start += chunk
        about = {
            "method": self.command,
            "path": path,
            "query": parse_qsl(query, keep_blank_values=True),
            "headers": self._headers_shown(),
            "length": length,
            "sha256": digest.hexdigest(),
        }
        return about | (_content(start) if length <= _MEBIBYTE else {})

    def _headers_shown(self) -> dict[str, str]:
        names = dict.fromkeys(name.lower() for name in self.headers if name.lower() != "authorization")
        values = {name: ", ".join(self.headers.get_all(name, [])) for name in names}
        return {name: value.encode("latin-1").decode(errors="replace") for name, value in values.items()}

    def _body(self, limit: int | None = None) -> Iterator[bytes]:
        """Yield the body of the request in chunks; raises _BadBodyError if it has more than *limit* bytes."""
        if self._expects_100:
            self.send_response_only(100)
            self.end_headers()
            self.wfile.flush()
        self._body_read = True
        length = 0
        for chunk in self._pieces():
            length += len(chunk)
            if limit is not None and length > limit:
                raise _BadBodyError(f"the body is larger than {limit} bytes")
            yield chunk

    def _pieces(self) -> Iterator[bytes]:
        coding, length = self.headers.get("Transfer-Encoding"), self.headers.get("Content-Length")
        if coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise _BadBodyError("the length of the body is unclear")
            yield from self._chunks()
        elif length is not None:
            if not (length.isascii() and length.isdigit()) or len(self.headers.get_all("Content-Length", [])) > 1:
                raise _BadBodyError("Content-Length is no number")
            yield from self._exactly(int(length))

    def _chunks(self) -> Iterator[bytes]:
        while size := self._chunk_size():
            yield from self._exactly(size)
            if self.rfile.readline(3) != b"\r\n":
                raise _BadBodyError("a chunk is longer than it said")
        while self.rfile.readline(_LINE) not in {b"\r\n", b"\n", b""}:
            pass  # trailers

    def _chunk_size(self) -> int:
        digits = self.rfile.readline(_LINE).split(b";")[0].strip()
        if not digits or digits.strip(b"0123456789abcdefABCDEF"):
            raise _BadBodyError("the size of a chunk is no number")
        return int(digits, 16)

    def _exactly(self, length: int) -> Iterator[bytes]:
        while length:
            piece = self.rfile.read(min(length, 64 * 1024))
            if not piece:
                raise _BadBodyError("the body was cut off")
            length -= len(piece)
            yield piece

    def _send(self, answer: _Answer) -> None:
        body = json.dumps(answer.content, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        if not self._body_read and not self._is_body_small():
            self.close_connection = True  # respond before a large body arrives; do not read it to reuse the connection
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def _is_body_small(self) -> bool:
        length = self.headers.get("Content-Length", "0")
        known = "Transfer-Encoding" not in self.headers and length.isascii() and length.isdigit()
        return known and int(length) <= (0 if self._expects_100 else 64 * 1024)

    def _drop_body(self) -> None:
        """Discard the unread body, with a time limit: an immediate close could reset the connection.

        The client could then lose the response.
        """
        if self._body_read or (self._expects_100 and self.close_connection):
            return
        self._body_read = True
        end = time.monotonic() + 5
        try:
            for _ in self._pieces():
                if time.monotonic() > end:
                    break
        except _BadBodyError:
            self.close_connection = True


_MEBIBYTE = 1024 * 1024
_LINE = 1024


def _form(body: bytes) -> dict[str, str] | None:
    """Return the form fields of *body*, or None if it is not valid or repeats a field (RFC 6749, section 3.2)."""
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError:
        return None
    return dict(pairs) if len(dict(pairs)) == len(pairs) else None


def _content(body: bytes) -> dict[str, Any]:
    """Return *body* as `text` and `json`, each only if it is valid."""
    content: dict[str, Any] = {}
    try:
        content["text"] = body.decode()
        content["json"] = json.loads(body)
        json.dumps(content["json"], ensure_ascii=False, allow_nan=False).encode()  # fails if not serializable
    except (ValueError, RecursionError):
        content.pop("json", None)
    return content


def _error(status: int, code: str, description: str, headers: dict[str, str] | None = None) -> _Answer:
    return _Answer(status, {"error": code, "error_description": description}, headers or {})


def _challenge(status: int, code: str | None, description: str) -> _Answer:
    """Return an error with the challenge of RFC 6750; *code* is None if the request has no token."""
    challenge = 'Bearer realm="x-api"' + (f', error="{code}", error_description="{description}"' if code else "")
    return _error(status, code or "unauthorized", description, {"WWW-Authenticate": challenge})
