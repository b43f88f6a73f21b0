"""An API with configurable responses that counts requests and invalidates tokens after a number of calls."""

import json
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from tests.support.program import Xapi
from tests.support.servers import HandlerServer

PASSWORD = "canary-password"


class ReceivedRequest(NamedTuple):
    """A request as the server sees it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Reply(NamedTuple):
    """A response of the server."""

    body: bytes = b'{"ok":true}'
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)


class Api(HandlerServer):
    """Listen within a `with` block; *response* creates the replies, a token is valid for *lives* calls."""

    request_queue_size = 128

    def __init__(
        self,
        response: Callable[[ReceivedRequest], Reply | None] = lambda received: Reply(),
        *,
        lives: int | None = None,
        open_to_all: bool = False,
    ) -> None:
        super().__init__(_Handler)
        self.response, self.lives, self.open_to_all = response, lives, open_to_all
        self.lock = threading.Lock()
        self.logins = 0
        self.alive: dict[str, int] = {}
        self.counts: Counter[str] = Counter()  # by path, responses other than 401
        self.rejected = 0
        self.requests: list[ReceivedRequest] = []
        self.login_status = 200

    @property
    def settings(self) -> dict[str, str | None]:
        """The environment with which a command logs in here."""
        return {"XAPI_BASE_URL": self.url, "XAPI_USERNAME": "me@example.com", "XAPI_PASSWORD": PASSWORD}

    def grant(self) -> str:
        with self.lock:
            self.logins += 1
            token = f"token-{self.logins}"
            self.alive = {token: self.lives or 10**9}
            return token

    def accepts(self, authorization: str) -> bool:
        if self.open_to_all:
            return True
        token = authorization.removeprefix("Bearer ")
        with self.lock:
            left = self.alive.get(token, 0)
            if left:
                self.alive[token] = left - 1
            return left > 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Api

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = ReceivedRequest(self.command, self.path, headers, body)
        if self.path == "/x-api/token":
            self._login()
            return
        with self.server.lock:
            self.server.requests.append(received)
        reply = self._reply_to(received)
        if reply is None:
            self.close_connection = True
            self.connection.close()
        else:
            self._send(reply)

    do_GET = do_HEAD = do_POST = _handle  # noqa: N815 - the names that http.server looks for
    do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _handle  # noqa: N815 - the same

    def _login(self) -> None:
        if self.server.login_status != 200:
            with self.server.lock:
                self.server.logins += 1
            self._send(Reply(b'{"error":"invalid_grant"}', self.server.login_status))
            return
        token = {"access_token": self.server.grant(), "token_type": "bearer", "expires_in": 3600}
        self._send(Reply(json.dumps(token).encode()))

    def _reply_to(self, received: ReceivedRequest) -> Reply | None:
        if not self.server.accepts(received.headers.get("authorization", "")):
            with self.server.lock:
                self.server.rejected += 1
            return Reply(b"{}", 401)
        reply = self.server.response(received)
        with self.server.lock:
            self.server.counts[received.path] += 1
        return reply

    def _send(self, reply: Reply) -> None:
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)


def jsonl(*lines: Any) -> str:
    """Return *lines* as input."""
    return "".join(json.dumps(line) + "\n" for line in lines)


def paths(count: int, start: int = 0) -> str:
    """Return input with *count* paths, each with its number as id."""
    return "".join(f'{{"id":{number},"path":"/n/{number}"}}\n' for number in range(start, start + count))


def out_lines(text: str) -> list[dict[str, Any]]:
    """Return output lines."""
    return [json.loads(line) for line in text.splitlines()]


def batch(
    xapi: Xapi,
    api: Api,
    *arguments: str,
    input: str | bytes = "",  # noqa: A002 - subprocess's name
    **more: Any,
) -> tuple[int, list[dict[str, Any]], str]:
    """Run `xapi batch`; return exit code, output lines and stderr."""
    outcome = xapi("batch", *arguments, input=input, env=api.settings | more.pop("env", {}), **more)
    return outcome.code, out_lines(outcome.out), outcome.err
