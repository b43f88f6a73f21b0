"""The address of the peer, not its name, determines whether others can read a connection."""

import socket

import pytest

from tests.servers import Server, hang
from xapi_cli.http.connection import Connection, Route, is_loopback
from xapi_cli.http.proxies import Proxy

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
