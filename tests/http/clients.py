"""Clients of the transport, and request bodies, for the tests of the HTTP layer."""

import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import trustme

from tests.support.servers import Server
from xapi_cli.http.httpx_transport import HttpxTransport
from xapi_cli.http.transport import Transport

CANARY = "hunter2-canary"
SOON = 30  # seconds; less than a wait that is aborted, far more than a busy machine needs
EARLY = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 4\r\n\r\nwho?"
START = b"HTTP/1.1 200 OK\r\n"


def no_tls() -> ssl.SSLContext:
    raise AssertionError("no https here")


def tls_of(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def client(
    transport: Transport | None = None, *, timeout: float | httpx.Timeout = 5, headers: dict[str, str] | None = None
) -> httpx.Client:
    sending = HttpxTransport(transport or Transport(no_tls))
    return httpx.Client(transport=sending, timeout=timeout, headers=headers, trust_env=False)


def get(server: Server, *, timeout: float | httpx.Timeout = 5, **extensions: object) -> httpx.Response:
    with client(timeout=timeout) as http:
        return http.get(server.url, extensions=extensions)


class Source(httpx.SyncByteStream):
    """A body that can be iterated repeatedly, and that counts the iterations."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks
        self.times = 0

    def __iter__(self) -> Iterator[bytes]:
        self.times += 1
        yield from self.chunks


class Zeros(httpx.SyncByteStream):
    """A large body that needs no memory."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(self.size // 65536):
            yield bytes(65536)


def resolving(monkeypatch: pytest.MonkeyPatch, resolve: Callable[[str, int], list[tuple[str, int]]]) -> None:
    """Resolve names under .test with *resolve*."""
    real = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, type: int = 0, flags: int = 0) -> Any:  # noqa: A002  # socket's own names
        if isinstance(host, bytes) and host.endswith(b".test") and not flags:
            infos = []
            for address in resolve(host.decode(), port):
                family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
                infos.append((family, socket.SOCK_STREAM, 6, "", address))
            return infos
        return real(host, port, type=type, flags=flags)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def invalid(error: str) -> str:
    return f"the response from {{}} is not valid HTTP ({error})"


TOO_LONG = invalid("status line and headers of more than 100,000 bytes")
