"""Whether others can read a connection, which its peer's address decides, and how a connection reports its end."""

import select
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.servers import Server, Step, hang, reset, send
from xapi_cli.http.connection import Connection, Route, is_loopback
from xapi_cli.http.error_text import describe_error
from xapi_cli.http.proxies import Proxy
from xapi_cli.http.timeouts import Timeouts, Wait

LOCAL_PROXY = Proxy("http", "localhost", 3128)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.255.0.3", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("128.0.0.1", False),
        ("0.0.0.0", False),  # noqa: S104 - nothing is bound to it
        ("::", False),
        ("::ffff:128.0.0.1", False),
        ("fe80::1", False),
        ("", False),
        ("localhost", False),
        ("api.localhost", False),
        ("127.0.0.1.test", False),
        ("127.test", False),
    ],
)
def test_loopback_is_an_address_not_a_name(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


@pytest.mark.parametrize(
    ("route", "exposed"),
    [
        (Route("http", "api.test", 80), False),
        (Route("https", "api.test", 443, LOCAL_PROXY), False),
        (Route("http", "127.0.0.1", 80, LOCAL_PROXY), False),
        (Route("http", "api.test", 80, LOCAL_PROXY), True),
        (Route("http", "api.localhost", 80, LOCAL_PROXY), True),
        (Route("http", "192.0.2.1", 80, LOCAL_PROXY), True),
    ],
)
def test_a_connection_to_loopback_is_exposed_only_beyond_a_proxy(route: Route, exposed: bool) -> None:
    with Server([hang()]) as server:
        connection = Connection(socket.create_connection((server.host, server.port)), route)
        assert connection.is_exposed is exposed
        connection.close()


class _Elsewhere(socket.socket):
    """A socket that reports a peer on another machine."""

    def getpeername(self) -> tuple[str, int]:
        return ("192.0.2.1", 80)


@pytest.mark.parametrize("proxy", [None, LOCAL_PROXY])
@pytest.mark.parametrize("host", ["api.test", "localhost", "api.localhost", "127.0.0.1"])
def test_a_connection_to_another_machine_is_exposed_regardless_of_its_name(host: str, proxy: Proxy | None) -> None:
    with _Elsewhere() as sock:
        assert Connection(sock, Route("http", host, 80, proxy)).is_exposed
        assert not Connection(sock, Route("https", host, 443, proxy)).is_exposed


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
