"""The HTTP server of the sandbox: passes requests to `api` and sends the responses."""

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Self

from xapi_cli.errors import UsageError
from xapi_cli.features.sandbox import api
from xapi_cli.features.sandbox.accounts import Accounts
from xapi_cli.features.sandbox.request_body import InvalidBody, RequestBody

OnResponse = Callable[[str, str, int], None]  # receives method, path and status; both texts are as received


class Server(ThreadingHTTPServer):
    """A server with one thread for each connection."""

    daemon_threads = True
    block_on_close = False  # idle clients do not delay the shutdown
    request_queue_size = 512  # many processes may connect concurrently
    accounts: Accounts
    on_response: OnResponse | None

    @classmethod
    def listening(cls, port: int, accounts: Accounts, on_response: OnResponse | None = None) -> Self:
        """Return a server for *accounts* that listens on *port*; raises UsageError if it cannot.

        Threads call *on_response* before they send a response.
        """
        try:
            server = cls(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a valid port number"
            raise UsageError(f"cannot listen on 127.0.0.1:{port}: {reason}", hint="choose another --port") from error
        server.accounts, server.on_response = accounts, on_response
        return server

    def server_bind(self) -> None:
        """Bind the socket without a DNS lookup, which HTTPServer.server_bind() performs."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # only AF_INET

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of broken connections: clients may be killed at any time."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "xapi-sandbox"
    sys_version = ""
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024  # headers and body in one segment
    server: Server

    _expects_continue = False
    _body: RequestBody | None = None  # of the current request

    def respond(self) -> None:
        send_continue = self._send_continue if self._expects_continue else None
        self._expects_continue = False
        self._body = RequestBody(self.rfile, self.headers, send_continue)
        path, _, query = self.path.partition("?")
        try:
            request = api.SandboxRequest(self.command, path, query, self.headers, self._body)
            self._send(api.respond(request, self.server.accounts))
        except InvalidBody as error:
            self.close_connection = True
            self._send(api.error(400, "invalid_request", str(error)))
        self._discard(self._body)
        self._body = None

    do_DELETE = do_GET = do_HEAD = do_OPTIONS = do_PATCH = do_POST = do_PUT = respond  # noqa: N815  # http.server's names

    def handle_expect_100(self) -> bool:
        """Send 100 Continue only when the body is read, so that a 401 can be sent first."""
        self._expects_continue = True
        return True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Report the response to the caller of `Server.listening`."""
        if self.server.on_response is not None:
            path = getattr(self, "path", "-")  # missing if the request line is not valid
            self.server.on_response(self.command or "-", path, int(code))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # http.server's name
        """Log nothing: stderr is for the output of the command."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send errors of http.server itself, such as for an unknown method, as JSON."""
        self.close_connection = True
        self.request_version = self.protocol_version  # parsing of the request may have failed
        self._send(api.error(code, "invalid_request", message or explain or "invalid request"))

    def _send_continue(self) -> None:
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()

    def _send(self, response: api.Response) -> None:
        content = json.dumps(response.content, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        if self._body is not None and not self._body.was_read and not self._body.is_small:
            self.close_connection = True  # respond before a large body arrives; do not read it to reuse the connection
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()

    def _discard(self, body: RequestBody) -> None:
        """Discard an unread body: an immediate close could reset the connection, and the client lose the response."""
        if body.was_read or (body.is_expected and self.close_connection):
            return
        try:
            body.discard()
        except InvalidBody:
            self.close_connection = True
