"""The HTTP server of the sandbox, with h11: passes requests to `api` and sends the responses."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http import HTTPStatus
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import h11

from xapi_cli.errors import UsageError
from xapi_cli.features.sandbox import api
from xapi_cli.features.sandbox.accounts import Accounts

OnResponse = Callable[[str, str, int], None]  # receives method, path and status; both texts are as received
_MAX_HEADERS = 128 * 1024  # bytes
_SMALL = 64 * 1024  # bytes of a body that is read before the response, so that the connection can be reused
_DISCARD_TIME = 5  # seconds


class Server(ThreadingTCPServer):
    """A server for *accounts* on *port*, with one thread for each connection; raises UsageError if it cannot listen.

    Threads call *on_response* before they send a response.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False  # idle clients do not delay the shutdown
    request_queue_size = 512  # many processes may connect concurrently

    def __init__(self, port: int, accounts: Accounts, on_response: OnResponse | None) -> None:
        self.accounts, self.on_response = accounts, on_response
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            what = f"cannot listen on 127.0.0.1:{port}: {error.strerror}"
            raise UsageError(what, hint="choose another --port") from error

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of broken connections: clients may be killed at any time."""


class _Handler(BaseRequestHandler):
    """One connection."""

    request: socket.socket
    server: Server

    def setup(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        self._connection = h11.Connection(h11.SERVER, _MAX_HEADERS)
        self._method = self._target = "-"

    def handle(self) -> None:
        try:
            while self._exchange():
                self._connection.start_next_cycle()
        except h11.RemoteProtocolError as error:
            self._send(api.error(error.error_status_hint, "invalid_request", str(error)))

    def _exchange(self) -> bool:
        """Respond to the next request; return whether there may be another one."""
        event = self._event()
        if not isinstance(event, h11.Request):  # the client has closed the connection
            return False
        self._method, self._target = event.method.decode(), event.target.decode("latin-1")
        headers: dict[str, str] = {}
        for name, value in ((name.decode(), value.decode(errors="replace")) for name, value in event.headers):
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        body, is_expected = self._body(), self._connection.they_are_waiting_for_100_continue
        if "transfer-encoding" not in headers and not is_expected and int(headers.get("content-length", "0")) <= _SMALL:
            body = iter([b"".join(body)])
        path, _, query = self._target.partition("?")
        request = api.SandboxRequest(self._method, path, query, headers, body)
        response = api.respond(request, self.server.accounts)
        will_be_sent = not self._connection.they_are_waiting_for_100_continue
        self._send(response)
        # read the rest of the body: an immediate close could reset the connection, and the client lose the response
        end = time.monotonic() + _DISCARD_TIME
        while will_be_sent and self._connection.their_state is h11.SEND_BODY and time.monotonic() < end:
            self._event()
        return self._connection.our_state is h11.DONE and self._connection.their_state is h11.DONE

    def _event(self) -> Any:
        while (event := self._connection.next_event()) is h11.NEED_DATA:
            self._connection.receive_data(self.request.recv(65536))
        return event

    def _body(self) -> Iterator[bytes]:
        """Yield the body of the request, which a client may only send after 100 Continue."""
        if self._connection.they_are_waiting_for_100_continue:
            self.request.sendall(self._connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        while isinstance(event := self._event(), h11.Data):
            yield bytes(event.data)

    def _send(self, response: api.Response) -> None:
        if self.server.on_response is not None:
            self.server.on_response(self._method, self._target, response.status)
        content = json.dumps(response.content, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        headers = {
            "Date": formatdate(usegmt=True),
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            **response.headers,
        }
        if self._connection.their_state is not h11.DONE:  # respond before a large body arrives, and do not read it
            headers["Connection"] = "close"
        events = [
            h11.Response(
                status_code=response.status,
                reason=HTTPStatus(response.status).phrase,
                headers=list(headers.items()),
            ),
            *([] if self._method == "HEAD" else [h11.Data(data=content)]),
            h11.EndOfMessage(),
        ]
        self.request.sendall(b"".join(self._connection.send(each) or b"" for each in events))
