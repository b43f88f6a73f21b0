"""The exchange of a forwarded request: what it waits for, and what may be sent again."""

import math
import socket

from xapi_cli.http.connection import Connection, Route
from xapi_cli.proxy.streamed_exchange import StreamedExchange, Upload


class FullConnection(Connection):
    """A used connection with TLS that is full: it took no byte, but may have sent a part of what was encrypted."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock, Route("https", "api.test", 443))
        self.tls = "TLSv1.3"
        self.end_response("GET", 200)

    def send_now(self, data: memoryview) -> int:
        return 0


def test_a_post_of_which_tls_may_have_sent_a_part_is_not_sent_again() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        exchange = StreamedExchange(FullConnection(ours), "POST", b"POST / HTTP/1.1\r\n\r\n", Upload(0), 1.0)
        assert exchange.may_resend

        exchange.send()
        assert not exchange.may_resend


def test_the_wait_for_an_api_that_takes_nothing_is_limited_after_a_wait_for_the_client() -> None:
    class FullAfterHead(Connection):
        def send_now(self, data: memoryview) -> int:
            return len(data) if bytes(data).startswith(b"POST") else 0

    ours, theirs = socket.socketpair()
    with ours, theirs:
        upload, connection = Upload(2), FullAfterHead(ours, Route("http", "api.test", 80))
        exchange = StreamedExchange(connection, "POST", b"POST / HTTP/1.1\r\n\r\n", upload, 1.0)
        exchange.send()
        assert exchange.expires == math.inf

        upload.take(bytearray(b"a"))
        exchange.send()
        assert exchange.expires < math.inf


def test_the_end_of_the_upload_does_not_limit_a_pause_in_the_response() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        upload, connection = Upload(1), Connection(ours, Route("http", "api.test", 80))
        exchange = StreamedExchange(connection, "POST", b"POST / HTTP/1.1\r\n\r\n", upload, 1.0)
        exchange.send()
        exchange.pause()

        upload.take(bytearray(b"a"))
        exchange.send()
        assert exchange.expires == math.inf

        exchange.resume()
        assert exchange.expires < math.inf
