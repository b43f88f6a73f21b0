"""The exchange of a forwarded request over a connection that takes nothing."""

import socket

from xapi_cli.http.connection import Connection, Route
from xapi_cli.proxy.streamed_exchange import StreamedExchange
from xapi_cli.proxy.upload import Upload


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
