"""How a connection reports its end."""

import select
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.servers import Server, Step, reset, send
from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.error_text import describe_error
from xapi_cli.http.timeouts import Timeouts, Wait


def _error_of(operation: Callable[[], int | bytes | None]) -> int | bytes | OSError | None:
    """Return the error that *operation* raises, otherwise its result."""
    try:
        return operation()
    except OSError as error:
        return error


@pytest.mark.parametrize("is_tls", [False, True])
@pytest.mark.parametrize("sent_before", [[], [send(b"half a response")]])
def test_a_reset_that_sending_has_noticed_is_reported_when_receiving(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, sent_before: list[Step], is_tls: bool
) -> None:
    """The system reports a reset once, and then the end of the connection, as if the response were complete."""
    with (
        Server([*sent_before, reset()], tls=server_tls if is_tls else None) as server,
        socket.create_connection((server.host, server.port)) as sock,
    ):
        descriptor = sock.fileno()
        connection = Connection(sock, Route("https" if is_tls else "http", server.host, server.port))
        if is_tls:
            connection.start_tls(client_tls, server.host, Wait(Timeouts(), 20, lambda: "no connection"))
        poll = select.poll()
        poll.register(descriptor, 0)
        assert poll.poll(20_000)[0][1] & select.POLLERR
        sending = _error_of(lambda: connection.send_now(memoryview(b"a request")))
        while isinstance(receiving := _error_of(connection.receive_now), bytes):
            assert receiving, "the end was regular"
        connection.close()
        assert isinstance(sending, OSError)
        assert isinstance(receiving, OSError)
        assert describe_error(receiving) == describe_error(sending)
        assert is_tls or isinstance(receiving, ConnectionResetError)  # before Python 3.13, TLS hides the reset


@pytest.mark.parametrize(("reason", "text"), [(None, "TLS failed"), ("NO_SUCH_THING", "TLS failed (no such thing)")])
def test_a_tls_error_is_described_by_the_reason_that_openssl_gives(reason: Any, text: str) -> None:
    error = ssl.SSLError()
    error.reason = reason

    assert describe_error(error) == (text, None)
